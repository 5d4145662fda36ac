//! Sends sockets whose `close` blocks for an hour, with requests: `linger COUNT`.

use std::convert::Infallible;

use nlx_tests::attack::linger::Sink;
use nlx_tests::attack::use_all_descriptors;

use crate::descriptors::Sender;
use crate::{Target, hold, number};

/// Sockets per connection, and per packet.
const BATCH: usize = 500;
const EACH: usize = 100;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [count] = *args else { return Err("COUNT is missing".into()) };
    let count: usize = number(count)?;
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let mut sink = Sink::default();
    let mut sender = Sender::new(target);
    let mut sent = 0;
    while sent < count && !sender.is_refused() {
        let batch = BATCH.min(count - sent);
        let sockets = (0..batch).map(|_| sink.lingering()).collect::<Result<Vec<_>, _>>();
        let sockets = sockets.map_err(|errno| format!("no socket with data: {errno}"))?;
        sender.send(sockets, EACH);
        sent += batch;
    }
    hold(&format!("{sent} sockets in {} packets", sender.packets))
}

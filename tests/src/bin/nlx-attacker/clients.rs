//! The maximum of connections that the helper accepts: `clients COUNT`.

use std::convert::Infallible;

use nlx_tests::attack::use_all_descriptors;
use nlx_tests::client::Client;

use crate::{Target, hold, number};

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [count] = *args else { return Err("COUNT is missing".into()) };
    use_all_descriptors().map_err(|errno| format!("the limit of descriptors: {errno}"))?;
    let count = number::<usize>(count)?;
    let held: Vec<Client> =
        (0..count).map_while(|_| Client::connect(&target.socket, "clients").ok()).collect();
    hold(&format!("{} connections of {count}", held.len()))
}

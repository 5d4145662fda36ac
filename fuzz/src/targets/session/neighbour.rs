//! A client that keeps to the protocol, beside one that does not.

use std::sync::Arc;

use nlx_core::{Address, BufferHandle, OperationKind};
use nlx_driver_proto::{Entry, Hello, Request, Segment, StartTm};
use nlx_helper::{Departure, Host};

use super::client::{Client, EVENTS, write_within};
use crate::targets::same;

const MESSAGE: &[u8] = b"undisturbed";

/// Offset of the message in the sending and in the receiving buffer.
const FROM: u64 = 0;
const TO: u64 = 4096;

/// Root's client on a portal that others do not reach. It has a receive buffer and one to send
/// from.
pub(super) struct Neighbour {
    client: Client,
    pub(super) address: Address,
}

impl Neighbour {
    pub(super) fn new(host: &Arc<Host>) -> Neighbour {
        let mut client = Client::new(host, 0);
        let address = "0@lo:12345:30:*".parse().expect("an address");
        let start = StartTm { address, events_max: EVENTS, lazy: false };
        for request in [
            Request::Hello(Hello::new("neighbour")),
            Request::CreateArena { bytes: 8192, huge: false, near: None },
            Request::StartTm(start),
        ] {
            client.ask(&request);
        }
        let arena = client.arenas[0].0;
        for (buffer, offset) in [(sender(), FROM), (receiver(), TO)] {
            let segment = Segment { arena, offset, length: 4096 };
            client.push(Entry::Register { buffer: BufferHandle(buffer), segment }.write());
        }
        client.operate(0, receiver(), 1, OperationKind::Receive { min_receive_size: 64, max_messages: 1 });
        client.drain(usize::MAX);
        write_within(&client.arenas[0].2, FROM, MESSAGE);
        Neighbour { address: client.tms[0].address, client }
    }

    /// Checks that a message to itself arrives, whatever the other client has done.
    pub(super) fn exchange(&mut self) {
        let length = MESSAGE.len() as u64;
        self.client.operate(0, sender(), 2, OperationKind::Send { length, to: self.address });
        self.client.drain(usize::MAX);
        self.client.check();
        let mut events = self.client.events(0);
        events.sort_unstable_by_key(|event| event.cookie);
        let reported: Vec<_> =
            events.iter().map(|event| (event.cookie, event.status(), event.unlinked())).collect();
        same(reported, vec![(1, Ok(()), true), (2, Ok(()), true)], "the neighbour's events");
        same((events[0].length, events[0].sender()), (length, Some(self.address)), "its message");
        let range = TO as usize..TO as usize + MESSAGE.len();
        let received = self.client.arenas[0].2.read(range).expect("no lease conflicts").to_vec();
        same(&received[..], MESSAGE, "the bytes of its message");
    }

    pub(super) fn leave(mut self) {
        self.client.ask(&Request::StopTm { tm: self.client.tms[0].handle });
        self.client.close();
        assert!(
            self.client.departure.as_ref().is_some_and(Departure::is_over),
            "the neighbour leaves nothing"
        );
    }
}

fn sender() -> u64 {
    super::name(0, 0)
}

fn receiver() -> u64 {
    super::name(1, 0)
}

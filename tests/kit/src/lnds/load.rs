//! Messages in flight.

use lnet_api::{EventKind, MdOptions};
use lnet_nid::ProcessId;

use super::{Kind, Node};
use crate::buffers::{filled, whole};

/// The lengths of PUTs.
const LENGTHS: [usize; 4] = [64, 5000, 1 << 20, 3976];
/// The lengths of GETs, whose data is written by RDMA. The REPLY of a shorter GET is a separate
/// message, and if it is lost the GET ends with the transaction's timeout.
const GET_LENGTHS: [usize; 2] = [5000, 1 << 20];

/// Match bits of a server's buffers for PUTs.
pub const PUTS: u64 = 1000;
/// Match bits of a server's buffers for GETs.
pub const GETS: u64 = 2000;

/// PUTs and GETs in flight from one node to another.
#[derive(Debug)]
pub struct Load {
    puts: usize,
    gets: usize,
}

impl Load {
    /// Starts `count` PUTs and `count` GETs.
    pub fn begin<K: Kind>([a, b]: [&Node<K>; 2], count: usize) -> Load {
        for number in 0..count {
            let length = LENGTHS[number % LENGTHS.len()];
            let (bits, asked) = (number as u64, GET_LENGTHS[number % GET_LENGTHS.len()]);
            b.post(&whole(length), 1000 + bits, MdOptions::OP_PUT);
            b.post(&filled(whole(asked), bits), 2000 + bits, MdOptions::OP_GET);
            a.put_unasked(b.id, &filled(whole(length), bits), 1000 + bits);
            a.get(b.id, &whole(asked), 2000 + bits);
        }
        Load { puts: count, gets: count }
    }

    /// Starts `count` PUTs and `count` GETs to a server that has buffers with the match bits
    /// [`PUTS`] and [`GETS`].
    pub fn at_server<K: Kind>(a: &Node<K>, server: ProcessId, count: usize) -> Load {
        for number in 0..count {
            a.put_unasked(server, &whole(LENGTHS[number % LENGTHS.len()]), PUTS);
            a.get(server, &whole(GET_LENGTHS[number % GET_LENGTHS.len()]), GETS);
        }
        Load { puts: count, gets: count }
    }

    /// Returns the number of PUTs that have ended, and of GETs.
    pub fn ended<K: Kind>(node: &Node<K>) -> [usize; 2] {
        let events = node.events();
        let ended = |kind, wanted: fn(&lnet_api::Event) -> bool| {
            events.iter().filter(|event| event.kind == kind && wanted(event)).count()
        };
        // A GET ends with its REPLY, or with a SEND that failed.
        let puts = ended(EventKind::Send, |event| event.match_bits.0 < 2000);
        let gets = ended(EventKind::Reply, |_| true)
            + ended(EventKind::Send, |event| event.match_bits.0 >= 2000 && event.status.is_err());
        [puts, gets]
    }

    /// Returns whether all have ended.
    ///
    /// # Panics
    /// If one has ended twice.
    pub fn has_ended<K: Kind>(&self, node: &Node<K>) -> bool {
        let [puts, gets] = Load::ended(node);
        assert!(puts <= self.puts && gets <= self.gets, "ended twice: {:?}", node.events());
        [puts, gets] == [self.puts, self.gets]
    }
}

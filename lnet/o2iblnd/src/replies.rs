//! The check of short replies to a GET_REQ: whether the bytes counted by a GET_DONE have been
//! written (lnet-measured, "Short replies over o2ib").
//!
//! A kernel node collects up to `wrq_sge` pieces of its memory (2 by default) for one RDMA
//! write. It posts the write when it has that number of pieces, or when a fragment of the
//! descriptor is full. A reply that ends inside a fragment can leave pieces collected and never
//! posted; the GET_DONE counts their bytes all the same. With `wrq_sge=1` on that node nothing is
//! lost, but no message says which value the node has. Reporting such a reply would deliver bytes
//! that no peer has written.
//!
//! So a reply is accepted if it has the sink's length, or ends at the end of a fragment of the
//! sink ([`ends_inside`]), or comes from a node of nlx, which writes every byte that it counts. The
//! incarnation identifies nodes of nlx: it is in the head of each message, its owner chooses it,
//! and other nodes only compare it (lnet-wire 32). The incarnation of an NI of nlx begins with
//! [`MARK`]; a kernel's is a clock reading, which does not. All other short replies end their GET
//! with EIO.
//!
//! Payloads of PUTs cannot be lost in this way: a PUT_ACK describes exactly the bytes that are
//! wanted, so that the last write fills the last fragment.

use lnet_api::Errno;
use lnet_proto::ib::{IMMEDIATE_MAX, RdmaFragment};

use crate::connection::Connection;
use crate::memory::warn_failed;
use crate::op_data::Described;

/// The first 16 bits of an incarnation of nlx. A clock that counts nanoseconds since 1970 in 63
/// bits, or coarser units, never has this value.
const MARK: u64 = 0xfe6e;

/// The bits of an incarnation below the mark.
const MARK_SHIFT: u32 = 48;

/// Returns the incarnation of an NI for a number that no earlier incarnation had. The remaining
/// nanoseconds repeat after 78 hours: two incarnations are equal only if they begin at a multiple
/// of that distance, to the nanosecond.
pub(crate) const fn marked(incarnation: u64) -> u64 {
    MARK << MARK_SHIFT | incarnation & ((1 << MARK_SHIFT) - 1)
}

/// Returns whether a peer with this incarnation writes every byte that its GET_DONE counts.
const fn writes_all(incarnation: u64) -> bool {
    incarnation >> MARK_SHIFT == MARK
}

/// Returns whether the end of `bytes` bytes, written from the first fragment on, is inside a
/// fragment.
fn ends_inside(fragments: &[RdmaFragment], bytes: u32) -> bool {
    let mut left = u64::from(bytes);
    for fragment in fragments {
        if left == 0 {
            break;
        }
        match left.checked_sub(fragment.length.into()) {
            Some(rest) => left = rest,
            None => return true,
        }
    }
    false
}

/// The reason why a reply is not accepted.
#[derive(Debug, thiserror::Error)]
#[error(
    "a GET of {sink} bytes is answered by {bytes}, which kernel nodes may not have written (wrq_sge): ask for exactly as many \
     bytes as there are, or for at most {most}",
    most = IMMEDIATE_MAX
)]
struct ShortReply {
    sink: u64,
    bytes: u32,
}

/// Checks the reply to a GET into `sink`, where GET_DONE counts `bytes` bytes, and returns `bytes`.
///
/// # Errors
/// EIO for a reply that may not have been written completely.
pub(crate) fn check(conn: &Connection, sink: &Described, bytes: u32) -> Result<u32, Errno> {
    if writes_all(conn.link.peer.stamp) || !ends_inside(&sink.fragments, bytes) {
        return Ok(bytes);
    }
    conn.shard().counters.rx.short_replies.one();
    let sink = sink.fragments.iter().map(|fragment| u64::from(fragment.length)).sum();
    Err(warn_failed(conn, &ShortReply { sink, bytes }, Errno::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_of_nlx_is_no_clock_reading() {
        // The clocks of 2026 and 2262 in nanoseconds, that of 2026 in microseconds, and the
        // extremes.
        for clock in [1_795_000_000_000_000_000, i64::MAX as u64, 1_795_000_000_000_000, 1, u64::MAX] {
            assert!(!writes_all(clock), "{clock:#x}");
            assert!(writes_all(marked(clock)) && marked(clock) != marked(clock.wrapping_add(1)));
        }
    }

    #[test]
    fn a_reply_ends_with_a_fragment_or_inside_one() {
        let of = |lengths: &[u32]| -> Vec<RdmaFragment> {
            lengths.iter().map(|&length| RdmaFragment { length, address: 0 }).collect()
        };
        let ends = |lengths: &[u32]| -> Vec<u32> {
            let all = of(lengths);
            (0..=lengths.iter().sum()).filter(|&bytes| !ends_inside(&all, bytes)).collect()
        };
        assert_eq!(ends(&[4]), [0, 4]);
        assert_eq!(ends(&[4, 3, 1]), [0, 4, 7, 8]);
        assert_eq!(ends(&[2, 0, 2]), [0, 2, 4]);
    }
}

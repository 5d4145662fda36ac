//! Information of the system about a TCP connection (`TCP_INFO`), from which the driver sees
//! whether a peer takes data.

use std::mem::offset_of;

use nix::libc::tcp_info;

/// The system's information about a TCP connection at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpFacts {
    /// The size of the largest segment sent, in bytes.
    pub mss: u32,
    /// The largest packet on the path known to this host, in bytes.
    pub path_mtu: u32,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Segments retransmitted since the connection began.
    pub retransmissions: u32,
    /// Retransmissions of the oldest unacknowledged segment; 0 as soon as anything is acknowledged.
    pub unanswered: u8,
    /// Unanswered probes for room at the other end.
    pub probes: u8,
    /// Bytes that wait to be sent or acknowledged; sent ones count in whole segments.
    pub unacked_bytes: u64,
}

impl TcpFacts {
    /// The bytes of TCP_INFO that are read: up to the last member used. Linux has had them since
    /// 4.6.
    pub(super) const BYTES: usize = offset_of!(tcp_info, tcpi_notsent_bytes) + size_of::<u32>();

    /// Parses the system's structure; members that the system did not write are 0.
    pub(super) fn parse(info: &[u8]) -> TcpFacts {
        let word = |at: usize| {
            let bytes = info.get(at..at + size_of::<u32>()).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let mss = word(offset_of!(tcp_info, tcpi_snd_mss));
        let in_flight = u64::from(word(offset_of!(tcp_info, tcpi_unacked))) * u64::from(mss);
        TcpFacts {
            mss,
            path_mtu: word(offset_of!(tcp_info, tcpi_pmtu)),
            rtt_us: word(offset_of!(tcp_info, tcpi_rtt)),
            retransmissions: word(offset_of!(tcp_info, tcpi_total_retrans)),
            unanswered: info.get(offset_of!(tcp_info, tcpi_retransmits)).copied().unwrap_or(0),
            probes: info.get(offset_of!(tcp_info, tcpi_probes)).copied().unwrap_or(0),
            unacked_bytes: in_flight + u64::from(word(offset_of!(tcp_info, tcpi_notsent_bytes))),
        }
    }

    /// Returns whether data waits for room at the other end, whose system answers: one or two
    /// probes may be under way, or lost.
    #[must_use]
    pub fn waits_for_room(&self) -> bool {
        self.unacked_bytes > 0 && self.unanswered == 0 && self.probes <= 2
    }

    /// Returns whether segments are retransmitted without an answer: at least twice, because one
    /// may get lost anywhere.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.unanswered >= 2 && self.unacked_bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_does_not_write_is_zero() {
        assert_eq!(TcpFacts::parse(&[]), TcpFacts::default());
        let mut info = [0; TcpFacts::BYTES];
        info[offset_of!(tcp_info, tcpi_snd_mss)..][..4].copy_from_slice(&1448_u32.to_ne_bytes());
        info[offset_of!(tcp_info, tcpi_unacked)..][..4].copy_from_slice(&3_u32.to_ne_bytes());
        info[offset_of!(tcp_info, tcpi_notsent_bytes)..][..4].copy_from_slice(&7_u32.to_ne_bytes());
        info[offset_of!(tcp_info, tcpi_retransmits)] = 2;
        let facts = TcpFacts::parse(&info);
        assert_eq!((facts.mss, facts.unacked_bytes, facts.is_stuck()), (1448, 3 * 1448 + 7, true));
        assert_eq!(TcpFacts::parse(&info[..TcpFacts::BYTES - 4]).unacked_bytes, 3 * 1448);
        assert!(!TcpFacts { unanswered: 1, ..facts }.is_stuck());
        info[offset_of!(tcp_info, tcpi_probes)] = 3;
        assert_eq!(TcpFacts::parse(&info).probes, 3);
        let waiting = TcpFacts { unanswered: 0, probes: 2, ..facts };
        assert!(waiting.waits_for_room() && !facts.waits_for_room());
        assert!(!TcpFacts { probes: 3, ..waiting }.waits_for_room());
        assert!(!TcpFacts { unacked_bytes: 0, ..waiting }.waits_for_room());
    }
}

//! Process ids: the process behind a NID.

use std::fmt;
use std::str::FromStr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{Nid, NidError, text};

/// The text of [`Pid::ANY`].
const ANY_TEXT: &str = "LNET_PID_ANY";

/// The number of a process behind a NID (lnet-wire 2). This is LNet's own number, not the operating
/// system's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Pid(pub u32);

impl Pid {
    /// The process id of every kernel node, and of nodes that talk to them.
    pub const LNET: Pid = Pid(12345);
    /// The wildcard: every process.
    pub const ANY: Pid = Pid(u32::MAX);
    /// Flag bit: the peer connected from an unprivileged port (lnet-wire 27).
    pub const USERSPACE: u32 = 0x8000_0000;
    /// Bits that a process id must not use.
    pub const RESERVED_MASK: u32 = 0xf000_0000;

    /// Returns the identity that a node assigns to a peer connected from an unprivileged TCP port
    /// (lnet-wire 27).
    #[must_use]
    pub const fn of_unprivileged_port(port: u16) -> Pid {
        Pid(Pid::USERSPACE | port as u32)
    }

    /// Returns whether the userspace flag is set; false for [`Pid::ANY`].
    #[must_use]
    pub const fn is_userspace(self) -> bool {
        !self.is_any() && self.0 & Pid::USERSPACE != 0
    }

    /// Returns whether this is [`Pid::ANY`].
    #[must_use]
    pub const fn is_any(self) -> bool {
        self.0 == Pid::ANY.0
    }

    /// Parses `pid`, a part of `text`.
    fn parse(text: &str, pid: &str) -> Result<Pid, NidError> {
        if pid == ANY_TEXT {
            return Ok(Pid::ANY);
        }
        let (digits, flag, limit) = match pid.strip_prefix('U') {
            Some(digits) => (digits, Pid::USERSPACE, !Pid::USERSPACE),
            None => (pid, 0, u32::MAX),
        };
        match text::parse_decimal(digits, limit) {
            Some(number) => Ok(Pid(number | flag)),
            None => Err(NidError::Pid { text: text.to_owned(), pid: pid.to_owned(), limit }),
        }
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Pid::ANY => f.write_str(ANY_TEXT),
            pid if pid.is_userspace() => write!(f, "U{}", pid.0 & !Pid::USERSPACE),
            Pid(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Debug for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pid {
    type Err = NidError;

    fn from_str(text: &str) -> Result<Pid, NidError> {
        text::check_length(text)?;
        Pid::parse(text, text)
    }
}

impl From<u32> for Pid {
    fn from(number: u32) -> Pid {
        Pid(number)
    }
}

impl From<Pid> for u32 {
    fn from(pid: Pid) -> u32 {
        pid.0
    }
}

/// A process on a node: `12345-10.0.0.1@tcp` (lnet-wire 4).
///
/// The userspace flag prints as `U` before the number (`U40000-10.0.0.1@tcp`), and [`Pid::ANY`] as
/// `LNET_PID_ANY`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProcessId {
    /// The NID of the node's interface.
    pub nid: Nid,
    /// The number of the process behind that NID.
    pub pid: Pid,
}

const _: () = assert!(size_of::<ProcessId>() == 24);

impl ProcessId {
    /// The wildcard: every process on every node.
    pub const ANY: ProcessId = ProcessId { nid: Nid::ANY, pid: Pid::ANY };

    /// Returns the process `pid` on `nid`.
    #[must_use]
    pub const fn new(nid: Nid, pid: Pid) -> ProcessId {
        ProcessId { nid, pid }
    }

    /// Returns the LNet process, [`Pid::LNET`], on `nid`.
    #[must_use]
    pub const fn lnet(nid: Nid) -> ProcessId {
        ProcessId { nid, pid: Pid::LNET }
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pid, self.nid)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ProcessId {
    type Err = NidError;

    fn from_str(text: &str) -> Result<ProcessId, NidError> {
        text::check_length(text)?;
        let (pid, nid) = text.split_once('-').ok_or_else(|| NidError::NoPid { text: text.to_owned() })?;
        Ok(ProcessId { pid: Pid::parse(text, pid)?, nid: nid.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_ids_are_read_and_printed() {
        let nid = "10.0.0.1@tcp".parse().unwrap();
        let table = [
            (Pid::LNET, "12345-10.0.0.1@tcp"),
            (Pid(0), "0-10.0.0.1@tcp"),
            (Pid::ANY, "LNET_PID_ANY-10.0.0.1@tcp"),
            (Pid::of_unprivileged_port(40000), "U40000-10.0.0.1@tcp"),
        ];
        for (pid, text) in table {
            let process = ProcessId::new(nid, pid);
            assert_eq!(process.to_string(), text);
            assert_eq!(text.parse(), Ok(process));
        }
        assert!(Pid::of_unprivileged_port(40000).is_userspace());
        assert!(!Pid::ANY.is_userspace() && !Pid::LNET.is_userspace());
    }

    #[test]
    fn malformed_process_ids_are_refused() {
        let table = [
            "10.0.0.1@tcp",
            "-10.0.0.1@tcp",
            "+1-10.0.0.1@tcp",
            "4294967296-10.0.0.1@tcp",
            "U-10.0.0.1@tcp",
            "U2147483648-10.0.0.1@tcp",
            "u1-10.0.0.1@tcp",
            "0x1-10.0.0.1@tcp",
            "1 -10.0.0.1@tcp",
            "1-",
            "1-x@tcp",
        ];
        for text in table {
            let error = text.parse::<ProcessId>().unwrap_err();
            assert_eq!(error.errno(), 22, "{text}: {error}");
        }
    }
}

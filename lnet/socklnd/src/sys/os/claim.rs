//! The claim of a NID by one process of a host.

use std::os::fd::{AsRawFd, OwnedFd};

use lnet_api::Errno;
use lnet_nid::Nid;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};

use crate::SockError;

/// The table of Unix sockets in the network namespace of this thread. Abstract names begin with `@`
/// there.
const TABLE: &str = "/proc/thread-self/net/unix";

/// The index of the name among the fields of a socket's line.
const NAME_FIELD: usize = 7;

/// Exclusive use of a NID on this host: an abstract Unix socket is bound to its name. The system
/// releases the name when the process ends, in whatever way.
///
/// The claim keeps two nodes from sharing a NID even if one of them does not listen on TCP. The
/// socket does not listen either: any local user could leave descriptors in the queue of a
/// listening one, and closing these can block this process at its end. A second name has the
/// process id of the holder.
pub struct Claim {
    _name: OwnedFd,
    _holder: Option<OwnedFd>,
}

impl Claim {
    /// Claims a NID of any network; dropping the claim releases it.
    ///
    /// # Errors
    /// [`SockError::NidTaken`] (EADDRINUSE) names the holder; EMFILE without descriptors.
    pub fn new(nid: Nid) -> Result<Claim, SockError> {
        let name = name_of(nid);
        match bound(&name) {
            // The NID is claimed even if the second name cannot be bound.
            Ok(socket) => Ok(Claim {
                _name: socket,
                _holder: bound(&format!("{}{}", holder_prefix(nid), std::process::id())).ok(),
            }),
            Err(Errno::EADDRINUSE) => Err(SockError::NidTaken { nid, holder: holder(nid) }),
            Err(errno) => Err(SockError::System { what: format!("claim {nid} for this process"), errno }),
        }
    }
}

fn name_of(nid: Nid) -> String {
    format!("nlx/{nid}")
}

/// Returns the second name without the process id at its end.
fn holder_prefix(nid: Nid) -> String {
    format!("nlx/{nid}/pid/")
}

fn bound(name: &str) -> Result<OwnedFd, Errno> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    Ok(fd)
}

/// Returns the holder of a NID on this host, within this network namespace, as text: a program's
/// name and process id. `None` if the NID is free.
///
/// ```
/// assert_eq!(lnet_socklnd::sys::holder_of("127.77.66.54@tcp".parse()?), None);
/// # Ok::<(), lnet_nid::NidError>(())
/// ```
#[must_use]
pub fn holder_of(nid: Nid) -> Option<String> {
    let table = std::fs::read_to_string(TABLE).unwrap_or_default();
    let name = name_of(nid);
    abstract_names(&table).any(|known| known == name).then(|| holder(nid))
}

/// Returns the holder of a NID, as text. Any local user can bind the second name of another
/// process: use it in messages only.
fn holder(nid: Nid) -> String {
    let table = std::fs::read_to_string(TABLE).unwrap_or_default();
    let prefix = holder_prefix(nid);
    let pid = abstract_names(&table).find_map(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
    let Some(pid) = pid else { return "another process".to_string() };
    match std::fs::read(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("{} (pid {pid})", printable(&comm)),
        Err(_) => format!("the process with pid {pid}"),
    }
}

fn abstract_names(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter_map(|line| line.split_whitespace().nth(NAME_FIELD)?.strip_prefix('@'))
}

/// Returns a program's name as its process sets it, which may be any bytes, with control characters
/// escaped for the terminal.
fn printable(comm: &[u8]) -> String {
    String::from_utf8_lossy(comm).trim_end().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::connect;

    use super::*;

    #[test]
    fn a_holder_cannot_write_to_the_terminal_of_the_caller() {
        assert_eq!(printable(b"nlx\n"), "nlx");
        for hostile in [&b"a\x1b[2Jb\n"[..], b"a\nb\r", b"\xff\x9b\x07", "\u{9b}2J\u{202e}x".as_bytes()] {
            let name = printable(hostile);
            assert!(!name.contains(|char: char| char.is_control() || char == '\u{202e}'), "{name:?}");
        }
    }

    #[test]
    fn a_claim_names_its_holder_and_takes_no_connection() {
        let nid: Nid = "127.77.66.55@tcp".parse().unwrap();
        assert_eq!(holder_of(nid), None);
        let held = Claim::new(nid).unwrap();
        let me = format!("(pid {})", std::process::id());
        assert!(holder_of(nid).is_some_and(|holder| holder.contains(&me)));
        assert!(Claim::new(nid).err().unwrap().to_string().contains(&me));
        for name in [name_of(nid), format!("{}{}", holder_prefix(nid), std::process::id())] {
            for kind in [SockType::Stream, SockType::SeqPacket, SockType::Datagram] {
                let fd = socket(AddressFamily::Unix, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
                let address = UnixAddr::new_abstract(name.as_bytes()).unwrap();
                let outcome = connect(fd.as_raw_fd(), &address);
                assert!(matches!(outcome, Err(Errno::ECONNREFUSED | Errno::EPROTOTYPE)), "{outcome:?}");
            }
        }
        drop(held);
        assert_eq!(holder_of(nid), None);
    }
}

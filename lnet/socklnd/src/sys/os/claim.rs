use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use lnet_api::Errno;
use lnet_nid::Nid;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt::PeerCredentials,
};

use super::errno;
use crate::SockError;

/// A NID held by this process, and by no other on the host: an abstract Unix socket named after it listens. The system
/// gives the name back when the process ends, however it ends.
///
/// It keeps two nodes from sharing a NID even if one of them does not listen on TCP, and says who holds it.
pub struct Claim(#[expect(dead_code, reason = "held for its name")] UnixListener);

impl Claim {
    /// Claims a NID, of whatever network, until this is dropped.
    ///
    /// # Errors
    /// [`SockError::NidTaken`] (EADDRINUSE) names the holder; EMFILE without descriptors.
    pub fn new(nid: Nid) -> Result<Claim, SockError> {
        let system = |errno| SockError::System { what: format!("claim {nid} for this process"), errno };
        let name = format!("nlx/{nid}");
        let address = SocketAddr::from_abstract_name(&name).map_err(|error| system(self::errno(&error)))?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Claim(listener)),
            Err(error) if self::errno(&error) == Errno::EADDRINUSE => {
                Err(SockError::NidTaken { nid, holder: holder(&name) })
            }
            Err(error) => Err(system(self::errno(&error))),
        }
    }
}

/// Who holds a NID on this host, within this network namespace: a program's name and process id, in words. `None` if the
/// NID is free.
///
/// ```
/// assert_eq!(lnet_socklnd::sys::holder_of("127.77.66.54@tcp".parse()?), None);
/// # Ok::<(), lnet_nid::NidError>(())
/// ```
#[must_use]
pub fn holder_of(nid: Nid) -> Option<String> {
    let name = format!("nlx/{nid}");
    match holder_pid(&name) {
        Err(Errno::ECONNREFUSED) => None,
        _ => Some(holder(&name)),
    }
}

/// Who listens behind the name, in words.
fn holder(name: &str) -> String {
    let Ok(pid) = holder_pid(name) else { return "another process".to_string() };
    match std::fs::read(format!("/proc/{pid}/comm")) {
        Ok(comm) => format!("{} (pid {pid})", printable(&comm)),
        Err(_) => format!("the process with pid {pid}"),
    }
}

/// A program's name as its process gives it, which may be any bytes, in characters that do nothing to a terminal.
fn printable(comm: &[u8]) -> String {
    String::from_utf8_lossy(comm).trim_end().escape_debug().to_string()
}

/// Nobody accepts these connections, and thousands of them fill the holder's queue: never wait for room in it.
fn holder_pid(name: &str) -> Result<i32, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
    getsockopt(&fd, PeerCredentials).map(|credentials| credentials.pid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_cannot_write_to_the_terminal_of_who_asks() {
        assert_eq!(printable(b"nlx\n"), "nlx");
        for hostile in [&b"a\x1b[2Jb\n"[..], b"a\nb\r", b"\xff\x9b\x07", "\u{9b}2J\u{202e}x".as_bytes()] {
            let name = printable(hostile);
            assert!(!name.contains(|char: char| char.is_control() || char == '\u{202e}'), "{name:?}");
        }
    }

    #[test]
    fn a_holder_whose_queue_is_full_is_still_refused_at_once() {
        let nid: Nid = "127.77.66.55@tcp".parse().unwrap();
        assert_eq!(holder_of(nid), None);
        let _held = Claim::new(nid).unwrap();
        let me = format!("(pid {})", std::process::id());
        assert!(holder_of(nid).is_some_and(|holder| holder.contains(&me)));
        let named = |error: SockError| error.to_string();
        assert!(named(Claim::new(nid).err().unwrap()).contains(&me));
        // As many asked before as the queue holds, and more.
        let full = (0..10_000).find_map(|_| holder_pid(&format!("nlx/{nid}")).err());
        assert_eq!(full, Some(Errno::EAGAIN));
        assert!(named(Claim::new(nid).err().unwrap()).contains("another process"));
        assert!(holder_of(nid).is_some_and(|holder| holder.contains("another process")));
    }
}

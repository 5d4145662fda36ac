//! The socket that systemd has made already (sd_listen_fds(3)).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{SockType, getsockopt, sockopt};

use crate::failure::Failure;

/// The first descriptor that it hands over.
const FIRST: i32 = 3;

/// The listening socket, if there is one. To be called once, before anything else is opened.
pub(super) fn socket() -> Result<Option<OwnedFd>, Failure> {
    let variable = |name| std::env::var(name).ok();
    if variable("LISTEN_PID") != Some(std::process::id().to_string()) {
        return Ok(None);
    }
    match variable("LISTEN_FDS").as_deref() {
        None | Some("0") => return Ok(None),
        Some("1") => {}
        Some(count) => {
            return Err(refuse(&format!("LISTEN_FDS={count}: one socket is expected")));
        }
    }
    // SAFETY: systemd says so by the two variables: the descriptor is open, and this process's to use; nothing else here
    // knows its number.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    check(&socket)?;
    Ok(Some(socket))
}

fn check(socket: &OwnedFd) -> Result<(), Failure> {
    let is_packets = getsockopt(socket, sockopt::SockType).is_ok_and(|kind| kind == SockType::SeqPacket);
    let listens = getsockopt(socket, sockopt::AcceptConn).unwrap_or(false);
    if !(is_packets && listens) {
        let number = socket.as_raw_fd();
        return Err(refuse(&format!("descriptor {number} is no listening socket of type SOCK_SEQPACKET")));
    }
    let set = fcntl(socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .and_then(|_| fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)));
    set.map(drop).map_err(|errno| refuse(&errno.to_string()))
}

fn refuse(why: &str) -> Failure {
    Failure::at("listen", lnet_api::Errno::EINVAL, format!("the socket of systemd: {why}"))
        .hint("the socket unit needs one 'ListenSequentialPacket=' with the path of the socket")
}

//! The interface to systemd: the socket that it has created already (sd_listen_fds(3)), and the
//! state of the service, as a datagram to the socket that `NOTIFY_SOCKET` names (sd_notify(3)).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::socket::{SockType, getsockopt, sockopt};

use crate::failure::{Context, Failure};

/// The variables that systemd sets for this process alone.
pub(super) const VARIABLES: [&str; 7] = [
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "MAINPID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// The first descriptor that it passes.
const FIRST: i32 = 3;

/// Returns the listening socket, if there is one. Must be called once, before anything else is
/// opened.
#[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
pub(super) fn listening_socket() -> Result<Option<OwnedFd>, Failure> {
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
    // SAFETY: systemd guarantees it by the two variables: the descriptor is open, and owned by this
    // process; no other code here uses its number.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    check(&socket)?;
    Ok(Some(socket))
}

fn check(socket: &OwnedFd) -> Result<(), Failure> {
    let is_packets = getsockopt(socket, sockopt::SockType).is_ok_and(|kind| kind == SockType::SeqPacket);
    let listens = getsockopt(socket, sockopt::AcceptConn).unwrap_or(false);
    if !(is_packets && listens) {
        let number = socket.as_raw_fd();
        return Err(refuse(&format!("descriptor {number} is not a listening socket of type SOCK_SEQPACKET")));
    }
    let set = fcntl(socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .and_then(|_| fcntl(socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)));
    set.map(drop).map_err(|errno| refuse(&errno.to_string()))
}

fn refuse(reason: &str) -> Failure {
    Failure::at("listen", lnet_api::Errno::EINVAL, format!("the socket of systemd: {reason}"))
        .hint("the socket unit needs one 'ListenSequentialPacket=' with the path of the socket")
}

/// The socket of the service manager that started this process and expects notifications, if there
/// is one.
pub(super) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// # Errors
    /// `NOTIFY_SOCKET` names a socket that is invalid.
    pub(super) fn from_environment() -> Result<Notify, Failure> {
        let socket = variable("NOTIFY_SOCKET").map(|name| connect(&name)).transpose()?;
        let mine = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let limit = variable("WATCHDOG_USEC").filter(|_| mine).and_then(|text| text.parse().ok());
        // Two notifications in systemd's time limit, as its manual recommends.
        Ok(Notify { socket, watchdog: limit.map(|limit| Duration::from_micros(limit) / 2) })
    }

    /// Returns the interval at which systemd expects a sign of life.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Sends a notification. There is no answer; errors are ignored.
    pub(super) fn send(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "cannot notify systemd through NOTIFY_SOCKET");
        }
    }
}

fn connect(name: &str) -> Result<(UnixDatagram, SocketAddr), Failure> {
    let action = format!("NOTIFY_SOCKET={name}");
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().context(&action)?;
    socket.set_nonblocking(true).context(&action)?;
    Ok((socket, address.context(&action)?))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

//! What systemd wants to know (sd_notify(3)): a datagram to the socket that `NOTIFY_SOCKET` names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::failure::{Context, Failure};

/// Whoever started this process and wants to hear of it; nobody, without systemd.
pub(super) struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// # Errors
    /// A socket that is named but cannot be.
    pub(super) fn from_environment() -> Result<Notify, Failure> {
        let variable = |name| std::env::var(name).ok();
        let socket = variable("NOTIFY_SOCKET").map(|name| connect(&name)).transpose()?;
        let mine = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let limit = variable("WATCHDOG_USEC").filter(|_| mine).and_then(|text| text.parse().ok());
        // Twice in the time that it allows, as its manual asks.
        Ok(Notify { socket, watchdog: limit.map(|limit| Duration::from_micros(limit) / 2) })
    }

    /// How often it wants to hear that all is well.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Tells it. It does not answer, and its absence ends nothing.
    pub(super) fn send(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(state.as_bytes(), address) {
            tracing::warn!(%error, "NOTIFY_SOCKET does not take what it is told");
        }
    }
}

fn connect(name: &str) -> Result<(UnixDatagram, SocketAddr), Failure> {
    let what = format!("NOTIFY_SOCKET={name}");
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let socket = UnixDatagram::unbound().context(&what)?;
    socket.set_nonblocking(true).context(&what)?;
    Ok((socket, address.context(&what)?))
}

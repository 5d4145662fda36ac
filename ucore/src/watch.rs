//! The thread of a domain that detects the end of its helper.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nix::errno::Errno;
use nlx_core::CoreError;

use crate::link::HelperLink;
use crate::ucore::DomainState;

/// Pause before the second attempt to reconnect: a helper that is restarted is back in less than a
/// second.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Limit of the pauses, each of which is twice the one before: short for an operator, and without
/// noticeable cost.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Starts the thread. It sleeps until the helper closes its end of the socket. It ends with the
/// link, which may outlive the domain: memory that the helper may still write to stays until the
/// helper is gone.
pub(crate) fn start(domain: &Arc<DomainState>, link: Arc<HelperLink>) -> Result<(), CoreError> {
    let domain = Arc::downgrade(domain);
    let thread = std::thread::Builder::new().name("nlx-helper".into());
    match thread.spawn(move || watch(&domain, link)) {
        Ok(_) => Ok(()),
        Err(error) => Err(CoreError::Transport {
            action: "watch the helper",
            reason: error.to_string(),
            errno: error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw),
        }),
    }
}

fn watch(domain: &Weak<DomainState>, mut link: Arc<HelperLink>) {
    loop {
        link.wait_for_end();
        match reconnect(domain) {
            Some(next) => link = next,
            None => return,
        }
    }
}

/// Reconnects, with retries; `None` if the domain is dropped or does not reconnect.
fn reconnect(domain: &Weak<DomainState>) -> Option<Arc<HelperLink>> {
    let mut pause = FIRST_PAUSE;
    let mut last = None;
    loop {
        let alive = domain.upgrade()?;
        let closing = alive.closing.clone();
        let path = alive.options.path();
        tracing::info!(path = %path.display(), "the connection to the helper has ended");
        if !alive.options.reconnect {
            return None;
        }
        point!(ConnectingAgain);
        match alive.connect_again() {
            Ok(link) => {
                tracing::info!(path = %path.display(), "connected to the helper again");
                return Some(link);
            }
            Err(error) => {
                let errno = Some(error.errno());
                // The helper runs, and refuses this client.
                match error.errno() {
                    Errno::ENOENT | Errno::ECONNREFUSED => {
                        tracing::debug!(%error, ?pause, "cannot connect to the helper yet; trying again")
                    }
                    _ if errno == last => {
                        tracing::debug!(%error, ?pause, "cannot connect to the helper yet; trying again")
                    }
                    _ => {
                        tracing::warn!(path = %path.display(), %error, "the helper refuses this client; trying again")
                    }
                }
                last = errno;
            }
        }
        drop(alive);
        if closing.wait(pause) {
            return None;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

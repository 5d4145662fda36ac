//! The place of a session's console: a socket in the user's folder, named after `LST_SESSION`.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use lnet_api::Errno;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;
use nlx_lst::print::REFUSED;

use crate::failure::{Context, Failure};

/// Maximum length in bytes of the messages that an ended console leaves.
const LAST_WORDS_MAX: u64 = 4096;

/// The socket of a session's console, in a folder that only its user can access.
pub(super) struct Place {
    key: u32,
    folder: PathBuf,
}

impl Place {
    /// Returns the place of the session that `LST_SESSION` names, for a command.
    pub(super) fn of_environment(command: &str) -> Result<Place, Failure> {
        let given = std::env::var("LST_SESSION").ok();
        let key = given.as_deref().and_then(|text| text.parse().ok()).filter(|key| *key != 0);
        let refused = || {
            let what = match &given {
                Some(text) => format!("LST_SESSION is '{text}', not a number from 1 to {}", u32::MAX),
                None => "LST_SESSION, which names the session, is not set".to_string(),
            };
            Failure::at("lst", Errno::EINVAL, format!("{command}: {what}"))
                .hint("'export LST_SESSION=$$' in the shell, before 'nlx lst new_session'; or 'nlx lst script', 'nlx lst run'")
                .exit(REFUSED)
        };
        Place::of(key.ok_or_else(refused)?)
    }

    /// Returns the place of a session.
    pub(super) fn of(key: u32) -> Result<Place, Failure> {
        let folder = lnet_node::runtime_folder().context("there is no folder for the session's socket")?;
        Ok(Place { key, folder })
    }

    pub(super) fn key(&self) -> u32 {
        self.key
    }

    /// Returns the path of the socket. It lacks the suffix by which `nlx status` finds sockets.
    fn socket(&self) -> PathBuf {
        self.folder.join(format!("lst-{}", self.key))
    }

    fn last_words(&self) -> PathBuf {
        self.folder.join(format!("lst-{}.ended", self.key))
    }

    /// Connects to the console; `None` if there is none, or it was killed.
    pub(super) fn connect(&self) -> Result<Option<UnixStream>, Failure> {
        match UnixStream::connect(self.socket()) {
            Ok(stream) if is_own(&stream) => Ok(Some(stream)),
            Ok(_) => Err(Failure::at("lst", Errno::EPERM, "the session's socket is served by another user")),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(Failure::new(format!("cannot reach the console of the session: {error}"))),
        }
    }

    /// Listens for commands. Replaces the socket of a console that was killed.
    pub(super) fn listen(&self) -> Result<UnixListener, Failure> {
        if self.connect()?.is_some() {
            let message = format!("LST_SESSION={} has a console already", self.key);
            return Err(Failure::at("listen", Errno::EADDRINUSE, message));
        }
        self.close();
        UnixListener::bind(self.socket()).context("cannot listen for the commands of the session")
    }

    /// Removes the socket.
    pub(super) fn close(&self) {
        // Fails only if the socket is gone already.
        let _ = fs::remove_file(self.socket());
    }

    /// Leaves words for the next command: why there is no session any more.
    pub(super) fn leave_last_words(&self, words: &str) {
        // Without them the command still says that there is no session.
        let _ = fs::write(self.last_words(), words);
    }

    /// Returns the messages that a console left when it ended by itself, and removes them.
    pub(super) fn take_last_words(&self) -> Option<String> {
        let mut words = String::new();
        let read = fs::File::open(self.last_words()).ok()?.take(LAST_WORDS_MAX).read_to_string(&mut words);
        let _ = fs::remove_file(self.last_words());
        read.ok().map(|_| words)
    }
}

/// Returns whether the process at the other end belongs to this user.
pub(super) fn is_own(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| Uid::from_raw(peer.uid()) == Uid::effective())
}

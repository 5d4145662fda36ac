//! Processes that visit the folders of other users.
//!
//! A user can delay any system call on their folder without limit, even past SIGKILL. While a
//! `readdir` waits for memory that never comes, and another process waits to create a file, no
//! other process can list the folder or find a name in it. And the sender of descriptors that come
//! with an answer can delay their `close` as long as it likes. So the searching process makes none
//! of these calls: a child process for each folder opens it, lists it, connects to its sockets and
//! reads the answers, and may be left behind. Another child lists the directory in which users have
//! their folders. The searching process only has a pipe from each child.
//!
//! A child's output is a sequence of frames: a kind, a number, a length, and bytes.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use parking_lot::Mutex;

use super::find::{self, Descriptors};
use super::folder::{FOLDERS_MAX, FolderPlace};

/// The length of a frame's header: its kind, its number and the length of its bytes.
pub(super) const HEADER_BYTES: usize = 9;

/// Kinds of frames.
pub(super) mod kind {
    /// A user who may have a folder in the listed place: the number is the user id.
    pub(crate) const USER: u8 = 1;
    /// The folder is open: the number is the id of its owner, the bytes are its file system and its
    /// inode.
    pub(crate) const FOLDER: u8 = 2;
    /// The next node in the folder: the number is its process id.
    pub(crate) const NODE: u8 = 3;
    /// The end of a list: all users, or all nodes, have been listed.
    pub(crate) const LISTED: u8 = 4;
    /// The answer of a node: the number is the index of the node in the folder, the bytes are the
    /// answer.
    pub(crate) const ANSWER: u8 = 5;
    /// The failure of a node: the number is the index of the node, the bytes are the error.
    pub(crate) const FAILED: u8 = 6;
}

/// The program whose processes visit the folders of other users.
#[derive(Debug, Clone)]
pub struct Asker {
    program: PathBuf,
    args: Vec<OsString>,
    descriptors: Descriptors,
}

/// A running child of an [`Asker`]. Dropping it kills the child, without waiting for its end.
#[derive(Debug)]
pub(super) struct AskerProcess(Option<Child>);

/// Killed children that had not ended when they were last checked. The next start or drop reaps
/// those that have ended since.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

/// The maximum number of such children: those that one search starts. At the limit, further
/// searches start no child.
const LEFT_MAX: usize = 2 * FOLDERS_MAX + FolderPlace::ALL.len();

/// The task of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// List the users who may have a folder in this place.
    List(FolderPlace),
    /// Query the nodes in this user's folder. The service's folder ignores the user.
    Visit(FolderPlace, u32),
}

impl Asker {
    /// Creates an asker of a program that calls [`visit_for_another`] with all arguments that
    /// follow these.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Asker {
        let args = args.into_iter().map(Into::into).collect();
        Asker { program: program.into(), args, descriptors: Descriptors::Refused }
    }

    /// Sets whether nodes may send descriptors with their answers on every kernel, as they can
    /// before Linux 6.16; default no. A child that cannot close them is left behind.
    #[must_use]
    pub fn accept_descriptors(mut self, accept: bool) -> Asker {
        self.descriptors = if accept { Descriptors::Accepted } else { Descriptors::Refused };
        self
    }

    /// Starts a child. Returns the non-blocking pipe of its frames.
    ///
    /// # Errors
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) while too many earlier children have not ended;
    /// otherwise the system's error.
    pub(super) fn start(&self, task: Task, time: Duration) -> io::Result<(File, AskerProcess)> {
        if reap(None) >= LEFT_MAX {
            let reason = format!("{LEFT_MAX} processes that visited folders have not ended");
            return Err(io::Error::new(io::ErrorKind::WouldBlock, reason));
        }
        let mut command = Command::new(&self.program);
        command.args(&self.args).args(task.to_args(time, self.descriptors));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let output = child.stdout.take().map(OwnedFd::from);
        let process = AskerProcess(Some(child));
        let output = File::from(output.ok_or(io::ErrorKind::BrokenPipe)?);
        fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((output, process))
    }
}

impl Drop for AskerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // The call fails for a child that has ended. A child that sleeps in a system call may
            // exist until the call returns.
            let _ = child.kill();
            reap(Some(child));
        }
    }
}

/// Adds `child` to the children that were left behind, and reaps those that have ended. Returns the
/// number of children still left.
fn reap(child: Option<Child>) -> usize {
    let mut left = LEFT.lock();
    left.extend(child);
    left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    left.len()
}

impl Task {
    fn to_args(self, time: Duration, descriptors: Descriptors) -> [String; 5] {
        let (verb, place, user) = match self {
            Task::List(place) => ("list", place, 0),
            Task::Visit(place, user) => ("visit", place, user),
        };
        let descriptors = if descriptors == Descriptors::Accepted { "accept" } else { "refuse" };
        [verb, place.name(), &user.to_string(), &time.as_millis().to_string(), descriptors]
            .map(str::to_string)
    }

    fn parse(args: &[String]) -> Option<(Task, Duration, Descriptors)> {
        let [verb, place, user, time, descriptors] = args else { return None };
        let place = FolderPlace::ALL.into_iter().find(|known| known.name() == place)?;
        let task = match verb.as_str() {
            "list" => Task::List(place),
            "visit" => Task::Visit(place, user.parse().ok()?),
            _ => return None,
        };
        let descriptors = match descriptors.as_str() {
            "accept" => Descriptors::Accepted,
            "refuse" => Descriptors::Refused,
            _ => return None,
        };
        Some((task, Duration::from_millis(time.parse().ok()?), descriptors))
    }

    /// Returns the path that the child visits, for messages.
    pub(super) fn path(self) -> PathBuf {
        match self {
            Task::List(place) => place.path().to_path_buf(),
            Task::Visit(place, user) => place.folder(user),
        }
    }
}

/// Runs the task of an [`Asker`]'s child: visits one folder, or lists the place of the folders, and
/// writes the results to standard output. The child must end with its parent.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) for other arguments than an [`Asker`] adds; the
/// system's error for writing.
pub fn visit_for_another(args: &[String]) -> io::Result<()> {
    let begun = Instant::now();
    let (task, time, descriptors) = Task::parse(args).ok_or(io::ErrorKind::InvalidInput)?;
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut send = |kind, number: u32, bytes: &[u8]| output.write_all(&frame(kind, number, bytes));
    match task {
        Task::List(place) => {
            for user in place.users() {
                send(kind::USER, user, &[])?;
            }
            send(kind::LISTED, 0, &[])
        }
        Task::Visit(place, user) => {
            let folder = place.open(user).ok();
            if let Some((folder, (device, inode))) =
                folder.as_ref().and_then(|one| one.inode().map(|inode| (one, inode)))
            {
                let bytes = [device.to_le_bytes(), inode.to_le_bytes()].concat();
                send(kind::FOLDER, folder.owner().as_raw(), &bytes)?;
            }
            let nodes = find::query_nodes(folder.as_slice(), descriptors);
            for node in &nodes {
                send(kind::NODE, node.pid(), &[])?;
            }
            send(kind::LISTED, 0, &[])?;
            find::read_all(nodes, begun + time, |index, answer| match answer {
                Ok(text) => send(kind::ANSWER, index as u32, text.as_bytes()),
                Err(error) => send(kind::FAILED, index as u32, written(&error).as_bytes()),
            })
        }
    }
}

fn frame(kind: u8, number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(number.to_le_bytes());
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.extend(bytes);
    frame
}

/// Returns the text of a node's error, as a child sends it.
fn written(error: &io::Error) -> String {
    let word = match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => return format!("errno {errno}"),
        (None, io::ErrorKind::TimedOut) => "time",
        (None, io::ErrorKind::PermissionDenied) => "denied",
        (None, io::ErrorKind::FileTooLarge) => "long",
        (None, io::ErrorKind::InvalidData) => "invalid",
        _ => "other",
    };
    format!("{word} {error}")
}

/// Parses the text of [`written`].
pub(super) fn read(text: &str) -> Option<io::Error> {
    let (word, rest) = text.split_once(' ')?;
    let kind = match word {
        "errno" => return rest.parse().ok().map(io::Error::from_raw_os_error),
        "time" => return Some(io::ErrorKind::TimedOut.into()),
        "denied" => io::ErrorKind::PermissionDenied,
        "long" => io::ErrorKind::FileTooLarge,
        "invalid" => return Some(io::ErrorKind::InvalidData.into()),
        "other" => io::ErrorKind::Other,
        _ => return None,
    };
    Some(io::Error::new(kind, rest))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nix::errno::Errno;

    use super::*;

    #[test]
    fn an_error_is_read_as_it_was_written() {
        let errors = [
            io::Error::from_raw_os_error(Errno::EFBIG as i32),
            io::ErrorKind::TimedOut.into(),
            io::ErrorKind::InvalidData.into(),
            io::Error::new(io::ErrorKind::PermissionDenied, "process 1\nserves this socket"),
            io::Error::new(io::ErrorKind::FileTooLarge, "long"),
            io::Error::other(""),
        ];
        for error in errors {
            let read = read(&written(&error)).unwrap();
            assert_eq!((read.kind(), read.to_string()), (error.kind(), error.to_string()));
        }
        for text in ["", "errno", "errno x", "what else"] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    /// A killed child is reaped once it has ended, by the next start or drop.
    #[test]
    fn no_process_that_has_ended_is_left() {
        let asker = Asker::new("sh", ["-c", "exec sleep 1000"]);
        let (_output, process) = asker.start(Task::List(FolderPlace::Shared), Duration::ZERO).unwrap();
        let pid = process.0.as_ref().unwrap().id();
        let is_there = || Path::new(&format!("/proc/{pid}")).exists();
        assert!(is_there());
        drop(process);
        while is_there() {
            reap(None);
        }
    }

    #[test]
    fn a_task_is_read_as_it_was_written() {
        for (task, descriptors) in [
            (Task::List(FolderPlace::Sessions), Descriptors::Refused),
            (Task::Visit(FolderPlace::Service, 0), Descriptors::Accepted),
            (Task::Visit(FolderPlace::Shared, u32::MAX), Descriptors::Refused),
        ] {
            let time = Duration::from_millis(1234);
            let args = task.to_args(time, descriptors);
            assert_eq!(Task::parse(&args), Some((task, time, descriptors)));
            assert_eq!(Task::parse(&args[..4]), None);
        }
    }
}

//! Processes that ask nodes of other users.
//!
//! Descriptors can come with an answer, and whoever reads the answer closes them. A `close` takes as long as the sender of the
//! descriptor likes, and may outlast SIGKILL. Since Linux 6.16 a socket refuses them. Before that, a node of another user is
//! asked by a process of its own, which may be left behind: it connects, checks who serves the socket, and copies the answer
//! to a pipe. The asking process has the pipe alone.
//!
//! Such a process first says on its output, in one line, whether the node could be asked; the answer follows.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::find::{ANSWER_MAX, PART, Refusal, connected, unconnected};
use super::folder::SocketFile;

/// The socket file that such a process is to connect to: its standard input.
const INPUT: &str = "/proc/self/fd/0";

/// The first line of one that has asked.
const ASKED: &str = "asked";

/// The longest first line, in bytes.
const LINE_MAX: usize = 64;

/// Bytes that the pipe has room for: any answer of a node, which is less than a tenth of the longest that is read, so that all
/// of it is there at the deadline. An ordinary user may have as much.
const PIPE_BYTES: i32 = 1 << 20;

/// The program that asks nodes of other users where the kernel lets descriptors come with their answers: before Linux 6.16.
#[derive(Debug, Clone)]
pub struct Asker {
    program: PathBuf,
    args: Vec<OsString>,
    always: bool,
}

/// A running process of an [`Asker`]. It is killed with this value, and nobody waits for it to end.
#[derive(Debug)]
pub(super) struct AskerProcess(Child);

/// Why a process has not asked.
#[derive(Debug)]
pub(super) enum NotAsked {
    /// The process could not be started, or has not said what it should.
    Failed(io::Error),
    /// The node cannot be asked.
    Refused(Refusal),
}

impl Asker {
    /// A program that calls [`ask_for_another`] with the last two of its arguments: the number of a process and that of a user,
    /// which are appended to these.
    pub fn new<A: Into<OsString>>(program: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Asker {
        Asker { program: program.into(), args: args.into_iter().map(Into::into).collect(), always: false }
    }

    /// Whether it asks nodes of other users on every kernel; without this call it does not.
    #[must_use]
    pub fn always(mut self, always: bool) -> Asker {
        self.always = always;
        self
    }

    /// Whether it also asks where the kernel refuses descriptors.
    pub(super) fn is_always(&self) -> bool {
        self.always
    }

    /// Starts a process that asks a node. Returns the pipe that the answer comes through, which does not block.
    pub(super) fn ask(
        &self,
        file: &SocketFile,
        pid: u32,
        user: u32,
    ) -> Result<(File, AskerProcess), NotAsked> {
        let file = file.share().map_err(NotAsked::Failed)?;
        let mut command = Command::new(&self.program);
        command.args(&self.args).args([pid.to_string(), user.to_string()]);
        command.stdin(Stdio::from(file)).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(NotAsked::Failed)?;
        let output = child.stdout.take().map(OwnedFd::from);
        let process = AskerProcess(child);
        let mut output =
            File::from(output.ok_or_else(|| NotAsked::Failed(io::ErrorKind::BrokenPipe.into()))?);
        let line = first_line(&mut output).map_err(NotAsked::Failed)?;
        if line != ASKED {
            let invalid = || NotAsked::Failed(io::ErrorKind::InvalidData.into());
            return Err(Refusal::parse(&line).map_or_else(invalid, NotAsked::Refused));
        }
        let prepared = fcntl(&output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        prepared.map_err(|errno| NotAsked::Failed(errno.into()))?;
        // Where its users have all their pages of pipes, late answers beyond 64 KiB are lost.
        let _ = fcntl(&output, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        Ok((output, process))
    }
}

impl Drop for AskerProcess {
    fn drop(&mut self) {
        // Both fail for one that has ended. One that is in a `close` stays until that returns.
        let _ = self.0.kill();
        let _ = self.0.try_wait();
    }
}

/// Reads up to the end of the first line, and not beyond. The process says it before it reads from the node: nothing that a user
/// does holds it up.
fn first_line(output: &mut File) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < LINE_MAX {
        output.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into());
        }
        line.extend(byte);
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// The work of a process of an [`Asker`]: asks the node whose socket file is standard input, if this process of this user serves
/// it, and writes the answer to standard output, 1 MiB and a byte at the most. The process must end with its parent.
///
/// # Errors
/// What the system says to reading the answer and writing it.
pub fn ask_for_another(pid: u32, user: u32) -> io::Result<()> {
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    // Descriptors may come on every kernel, so that what works here works on older ones, too.
    let socket = unconnected().map_err(Refusal::System);
    let mut stream = match socket.and_then(|socket| connected(socket, Path::new(INPUT), pid, user)) {
        Ok(stream) => stream,
        Err(refusal) => return output.write_all(refusal.line().as_bytes()),
    };
    output.write_all(format!("{ASKED}\n").as_bytes())?;
    stream.set_nonblocking(false)?;
    let mut part = vec![0; PART];
    let mut room = ANSWER_MAX + 1;
    while room > 0 {
        let most = room.min(PART);
        match stream.read(&mut part[..most]) {
            Ok(0) => break,
            Ok(count) => {
                output.write_all(&part[..count])?;
                room -= count;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Refusal {
    /// As a process of an [`Asker`] says it.
    fn line(&self) -> String {
        match self {
            Refusal::System(errno) => format!("errno {}\n", *errno as i32),
            Refusal::Another { pid, user } => format!("served {pid} {user}\n"),
        }
    }

    fn parse(line: &str) -> Option<Refusal> {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["errno", errno] => Some(Refusal::System(Errno::from_raw(errno.parse().ok()?))),
            ["served", pid, user] => {
                Some(Refusal::Another { pid: pid.parse().ok()?, user: user.parse().ok()? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_read_as_it_was_written() {
        for refusal in [Refusal::System(Errno::ECONNREFUSED), Refusal::Another { pid: -1, user: u32::MAX }] {
            let line = refusal.line();
            let read = Refusal::parse(line.strip_suffix('\n').unwrap()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{refusal:?}"));
        }
        for line in ["", "asked", "errno", "errno x", "served 1", "served 1 2 3"] {
            assert!(Refusal::parse(line).is_none(), "{line}");
        }
    }

    /// A program that is none of ours, as one that was replaced meanwhile.
    #[test]
    fn a_program_that_does_not_ask_is_refused() {
        let ask = |program: &str, args: &[&str]| {
            let file = super::super::tests::any_socket_file();
            match Asker::new(program, args).ask(&file, 1, 2) {
                Err(NotAsked::Failed(error)) => error.kind(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask("/none/such", &[]), io::ErrorKind::NotFound);
        assert_eq!(ask("true", &[]), io::ErrorKind::UnexpectedEof);
        assert_eq!(ask("echo", &["well"]), io::ErrorKind::InvalidData);
        assert_eq!(ask("yes", &[&"x".repeat(LINE_MAX)]), io::ErrorKind::InvalidData);
    }
}

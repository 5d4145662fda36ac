//! The other process: a second run of this test program, which executes one of the tests that are
//! ignored otherwise. Its standard input is the queue's memory.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::{MIN_SLOTS, QueueMemory, SharedMemory};

/// Slots of the memory: enough for a ring that grows occasionally during a long run.
pub(super) const MAX_SLOTS: u32 = 256;

/// The environment variable with the path of the other process's [`Board`].
const BOARD: &str = "NLX_TEST_BOARD";

/// The environment variable with the words of [`Other::start_with`].
const WORDS: &str = "NLX_TEST_WORDS";

/// The other process; killed when dropped, so that a failing test leaves no process behind.
pub(super) struct Other(Child);

impl Other {
    /// Starts the ignored test `role` with a new queue. Returns this process's mapping.
    pub(super) fn start(role: &str) -> (Self, SharedMemory) {
        Self::spawn(Self::command(role))
    }

    /// Starts the ignored test `role` with `words` in its environment and a board that both
    /// processes map.
    pub(super) fn start_with(role: &str, words: &str) -> (Self, SharedMemory, Board) {
        let board = Board::new();
        let (other, memory) = Self::spawn(Self::command(role).env(BOARD, board.path()).env(WORDS, words));
        (other, memory, board)
    }

    fn command(role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", &format!("tests::{role}"), "--ignored", "--nocapture", "--test-threads=1"]);
        command
    }

    fn spawn(mut command: impl std::borrow::BorrowMut<Command>) -> (Self, SharedMemory) {
        let (memory, fd) = SharedMemory::create(MAX_SLOTS).unwrap();
        let child = command.borrow_mut().stdin(fd).stdout(Stdio::null()).spawn().unwrap();
        (Other(child), memory)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id().try_into().unwrap())
    }

    pub(super) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Stops the process at any instruction, and returns once it is stopped.
    pub(super) fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        self.stands_still();
    }

    /// Blocks until the process is stopped.
    pub(super) fn stands_still(&self) {
        waitid(Id::Pid(self.pid()), WaitPidFlag::WSTOPPED).unwrap();
    }

    pub(super) fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Fails the test if the process has ended, which it does only after it has found and printed a
    /// fault.
    pub(super) fn check(&mut self) {
        assert!(!self.has_ended(), "the other process has failed");
    }

    pub(super) fn finish(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The process may have ended already, so the error is ignored.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Maps the memory that the first process passed as standard input.
pub(super) fn inherited() -> SharedMemory {
    SharedMemory::attach(std::io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap()
}

/// Returns the words from the first process.
pub(super) fn words() -> String {
    std::env::var(WORDS).unwrap()
}

/// A word of a [`Board`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// The point that was hit, counted from 1.
    Hit,
    /// The number of events that the consumer has provisioned.
    Submitted,
    /// The number of times the consumer has made the ring smaller.
    Shrinks,
    /// The number of these shrinks that the producer has accepted.
    Accepted,
    /// Nonzero when the other process should end.
    Finish,
}

/// Words that both processes write, separate from the queue: they replace a control connection.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    /// Memory that no queue uses; the stamps of its slots are the words.
    words: SharedMemory,
    fd: Arc<OwnedFd>,
}

impl Board {
    fn new() -> Self {
        let (words, fd) = SharedMemory::create(MIN_SLOTS + Word::Finish as u32).unwrap();
        Board { words, fd: Arc::new(fd) }
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd())
    }

    /// Maps the board of the first process.
    pub(super) fn inherited() -> Self {
        let path = std::env::var(BOARD).unwrap();
        let fd = OwnedFd::from(OpenOptions::new().read(true).write(true).open(path).unwrap());
        Board { words: SharedMemory::attach(fd.try_clone().unwrap()).unwrap(), fd: Arc::new(fd) }
    }

    pub(crate) fn word(&self, word: Word) -> &AtomicU64 {
        &self.words.slots()[word as usize].stamp
    }

    pub(super) fn get(&self, word: Word) -> u64 {
        self.word(word).load(Acquire)
    }

    /// Adds to a word that only this process writes.
    pub(super) fn add(&self, word: Word, number: u64) {
        let word = self.word(word);
        word.store(word.load(Relaxed) + number, Release);
    }
}

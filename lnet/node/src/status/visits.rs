//! The children of one search through other users' folders, and their results up to the deadline.
//!
//! Their output is bounded, because a user can make each of them write much. This module never
//! waits for a child beyond the deadline, nor for its end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};

use super::asker::{self, Asker, AskerProcess, HEADER_BYTES, Task, kind};
use super::find::{ANSWER_MAX, ANSWERS_MAX, BeyondShare, NODES_MAX, PART, RunningNode, wait};
use super::folder::{FOLDERS_MAX, FolderPlace};

/// The maximum number of reads of a pipe after the deadline, for data that arrived before it.
const LATE_READS: usize = (1 << 20) / PART;

/// A folder that was not visited, or not in time.
#[derive(Debug)]
pub struct UnreadFolder {
    path: PathBuf,
    error: io::Error,
}

/// The children of one search.
pub(super) struct Visits<'a> {
    asker: &'a Asker,
    deadline: Instant,
    /// The process whose node alone is searched for; `None` to search for all.
    wanted: Option<u32>,
    all: Vec<Visit>,
    unread: Vec<UnreadFolder>,
    /// The folders that have been visited: their file systems and inodes, so that none is visited
    /// twice.
    seen: Vec<(u64, u64)>,
    /// The number of folders with nodes.
    with_nodes: usize,
}

/// A running child, and its output so far.
struct Visit {
    task: Task,
    output: File,
    process: Option<AskerProcess>,
    /// Bytes that do not make a complete frame yet.
    bytes: Vec<u8>,
    /// Number of bytes of an answer that are still to be skipped.
    skipped: usize,
    /// For a child that lists: the number of users received.
    users: usize,
    /// The owner of the folder, and its nodes.
    user: u32,
    nodes: Vec<VisitedNode>,
    is_listed: bool,
}

struct VisitedNode {
    pid: u32,
    answer: Option<io::Result<String>>,
}

/// A complete frame of a child's output.
struct Frame {
    kind: u8,
    number: u32,
    bytes: Vec<u8>,
}

impl UnreadFolder {
    /// Returns the path of the folder that was not read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the error: [`TimedOut`](io::ErrorKind::TimedOut) if the folder was not read by the
    /// deadline.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl<'a> Visits<'a> {
    /// Creates an empty set. The searching process itself has visited the folders `seen`, of which
    /// `with_nodes` have nodes.
    pub(super) fn new(
        asker: &'a Asker,
        deadline: Instant,
        wanted: Option<u32>,
        seen: Vec<(u64, u64)>,
        with_nodes: usize,
    ) -> Visits<'a> {
        Visits { asker, deadline, wanted, all: Vec::new(), unread: Vec::new(), seen, with_nodes }
    }

    /// Starts all children, and reads their output until they have ended, the wanted node has
    /// answered, or the deadline is reached.
    pub(super) fn run(&mut self) {
        let tasks = [
            Task::List(FolderPlace::Sessions),
            Task::Visit(FolderPlace::Service, 0),
            Task::List(FolderPlace::Shared),
        ];
        tasks.into_iter().for_each(|task| self.start(task));
        let mut part = vec![0; PART];
        loop {
            let rest = self.deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() || self.wanted.is_some_and(|pid| self.has_answer_of(pid)) {
                break;
            }
            let fds = self.all.iter().enumerate().filter(|(_, visit)| visit.process.is_some());
            let (indices, mut fds): (Vec<usize>, Vec<PollFd<'_>>) = fds
                .map(|(index, visit)| (index, PollFd::new(visit.output.as_fd(), PollFlags::POLLIN)))
                .unzip();
            if fds.is_empty() || wait(&mut fds, rest).is_err() {
                break;
            }
            let ready = indices.into_iter().zip(&fds).filter(|(_, fd)| fd.any().unwrap_or(true));
            let ready: Vec<usize> = ready.map(|(index, _)| index).collect();
            for index in ready {
                self.read(index, &mut part);
            }
        }
        for index in 0..self.all.len() {
            let mut reads = 0;
            while self.all[index].process.is_some() && reads < LATE_READS && self.read(index, &mut part) {
                reads += 1;
            }
        }
    }

    fn has_answer_of(&self, pid: u32) -> bool {
        let mut nodes = self.all.iter().flat_map(|visit| &visit.nodes);
        nodes.any(|node| node.pid == pid && matches!(node.answer, Some(Ok(_))))
    }

    /// Returns the maximum number of bytes of all answers from one folder.
    pub(super) fn share(&self) -> usize {
        ANSWERS_MAX / self.with_nodes.max(1)
    }

    /// Kills the remaining children. Returns the nodes of each folder, and the folders that were
    /// not listed.
    pub(super) fn end(mut self) -> (Vec<Vec<RunningNode>>, Vec<UnreadFolder>) {
        let mut folders = Vec::new();
        for visit in self.all {
            let error = io::ErrorKind::TimedOut;
            if !visit.is_listed && visit.process.is_some() {
                self.unread.push(UnreadFolder { path: visit.task.path(), error: error.into() });
            }
            let nodes = visit.nodes.into_iter();
            let nodes = nodes.map(|node| {
                let answer = node.answer.unwrap_or_else(|| Err(error.into()));
                RunningNode::read_by_process(node.pid, visit.user, answer)
            });
            folders.push(nodes.collect());
        }
        (folders, self.unread)
    }

    fn start(&mut self, task: Task) {
        let rest = self.deadline.saturating_duration_since(Instant::now());
        // The output of a listing child may be read after the deadline: then no child is started
        // any more.
        let started = match rest.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => self.asker.start(task, rest),
        };
        match started {
            Ok((output, process)) => self.all.push(Visit {
                task,
                output,
                process: Some(process),
                bytes: Vec::new(),
                skipped: 0,
                users: 0,
                user: 0,
                nodes: Vec::new(),
                is_listed: false,
            }),
            Err(error) => self.unread.push(UnreadFolder { path: task.path(), error }),
        }
    }

    /// Reads a child's output once. Returns whether there may be more.
    fn read(&mut self, index: usize, part: &mut [u8]) -> bool {
        let visit = &mut self.all[index];
        let read = match visit.output.read(part) {
            Ok(0) if visit.is_listed => {
                visit.process = None;
                return false;
            }
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                visit.bytes.extend_from_slice(&part[..count]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => Err(error),
        };
        let handled = read.and_then(|()| self.handle(index));
        if let Err(error) = handled {
            let visit = &mut self.all[index];
            visit.process = None;
            self.unread.push(UnreadFolder { path: visit.task.path(), error });
            return false;
        }
        self.all[index].process.is_some()
    }

    /// Handles all complete frames.
    fn handle(&mut self, index: usize) -> io::Result<()> {
        loop {
            let share = self.share();
            let Some(Frame { kind, number, bytes }) = self.all[index].frame(share)? else { return Ok(()) };
            let visit = &mut self.all[index];
            match (visit.task, kind) {
                (_, kind::LISTED) => visit.is_listed = true,
                (Task::List(place), kind::USER) => {
                    visit.users += 1;
                    if visit.users <= FOLDERS_MAX {
                        self.start(Task::Visit(place, number));
                    }
                }
                (Task::Visit(..), kind::FOLDER) => {
                    let halves = bytes.as_chunks::<8>().0;
                    let &[device, inode] = halves else { return Err(io::ErrorKind::InvalidData.into()) };
                    let folder = (u64::from_le_bytes(device), u64::from_le_bytes(inode));
                    visit.user = number;
                    if self.seen.contains(&folder) {
                        (visit.is_listed, visit.process) = (true, None);
                        return Ok(());
                    }
                    self.seen.push(folder);
                }
                (Task::Visit(..), kind::NODE) if visit.nodes.len() < NODES_MAX => {
                    visit.nodes.push(VisitedNode { pid: number, answer: None });
                    if visit.nodes.len() == 1 {
                        self.with_nodes += 1;
                        let share = self.share();
                        self.all.iter_mut().for_each(|visit| visit.trim(share));
                    }
                }
                (Task::Visit(..), kind::ANSWER) => {
                    let text = String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into());
                    visit.node(number)?.answer = Some(text);
                }
                (Task::Visit(..), kind::FAILED) => {
                    let error = str::from_utf8(&bytes).ok().and_then(asker::read);
                    visit.node(number)?.answer = Some(Err(error.ok_or(io::ErrorKind::InvalidData)?));
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

impl Visit {
    fn node(&mut self, index: u32) -> io::Result<&mut VisitedNode> {
        self.nodes.get_mut(index as usize).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Removes and returns the next frame, once it is complete. An answer beyond this share of the
    /// folder is dropped.
    fn frame(&mut self, share: usize) -> io::Result<Option<Frame>> {
        loop {
            let skipped = self.skipped.min(self.bytes.len());
            self.bytes.drain(..skipped);
            self.skipped -= skipped;
            let Some(&[kind, n0, n1, n2, n3, l0, l1, l2, l3]) = self.bytes.first_chunk::<HEADER_BYTES>()
            else {
                return Ok(None);
            };
            let number = u32::from_le_bytes([n0, n1, n2, n3]);
            let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            if length > ANSWER_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            if kind == kind::ANSWER && self.kept() + length > share {
                self.node(number)?.answer = Some(Err(beyond(share)));
                self.skipped = HEADER_BYTES + length;
                continue;
            }
            let Some(bytes) = self.bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
            let frame = Frame { kind, number, bytes: bytes.to_vec() };
            self.bytes.drain(..HEADER_BYTES + length);
            return Ok(Some(frame));
        }
    }

    /// Returns the number of bytes of the kept answers.
    fn kept(&self) -> usize {
        self.nodes.iter().map(VisitedNode::kept).sum()
    }

    /// Drops answers beyond a share that has become smaller.
    fn trim(&mut self, share: usize) {
        let mut kept = 0;
        for node in &mut self.nodes {
            let length = node.kept();
            match kept + length > share {
                true => node.answer = Some(Err(beyond(share))),
                false => kept += length,
            }
        }
    }
}

impl VisitedNode {
    fn kept(&self) -> usize {
        self.answer.as_ref().and_then(|answer| answer.as_ref().ok()).map_or(0, String::len)
    }
}

fn beyond(bytes: usize) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, BeyondShare { bytes })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A program that is not the expected one, for example after a replacement, gives an error.
    #[test]
    fn a_program_that_does_not_visit_is_refused() {
        let kinds = |program: &str, args: &[&str]| {
            let asker = Asker::new(program, args);
            let mut visits =
                Visits::new(&asker, Instant::now() + Duration::from_secs(60), None, Vec::new(), 0);
            visits.run();
            let (nodes, unread) = visits.end();
            assert!(nodes.iter().all(Vec::is_empty));
            unread.iter().map(|folder| folder.error().kind()).collect::<Vec<_>>()
        };
        assert_eq!(kinds("/none/such", &[]), [io::ErrorKind::NotFound; 3]);
        assert_eq!(kinds("true", &[]), [io::ErrorKind::UnexpectedEof; 3]);
        assert_eq!(kinds("yes", &[]), [io::ErrorKind::InvalidData; 3]);
    }

    /// The search ends once the wanted node has answered, without waiting for others.
    #[test]
    fn who_looks_for_one_node_waits_for_no_other() {
        let frame = |kind: u8, number: u32, bytes: &[u8]| {
            [&[kind], &number.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat()
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for part in [
            frame(kind::FOLDER, 1000, &[7; 16]),
            frame(kind::NODE, 4711, &[]),
            frame(kind::NODE, 4712, &[]),
            frame(kind::ANSWER, 1, b"{}"),
        ] {
            std::io::Write::write_all(&mut file, &part).unwrap();
        }
        let command = format!("cat '{}'; exec sleep 1000", file.path().display());
        let asker = Asker::new("sh", ["-c", &command]);
        let deadline = Instant::now() + Duration::from_secs(3600);
        let mut visits = Visits::new(&asker, deadline, Some(4712), Vec::new(), 0);
        visits.run();
        assert!(visits.has_answer_of(4712) && !visits.has_answer_of(4711));
    }

    /// A child without output is left behind at the deadline, and its folder is reported.
    #[test]
    fn a_process_that_says_nothing_is_left_at_the_deadline() {
        let asker = Asker::new("sh", ["-c", "exec sleep 1000"]);
        let mut visits =
            Visits::new(&asker, Instant::now() + Duration::from_millis(100), None, Vec::new(), 0);
        visits.run();
        let (_, unread) = visits.end();
        let paths: Vec<&Path> = unread.iter().map(UnreadFolder::path).collect();
        assert_eq!(paths, ["/run/user", "/run/nlx/nlx", "/tmp"].map(Path::new));
        assert!(unread.iter().all(|folder| folder.error().kind() == io::ErrorKind::TimedOut));
    }

    /// A user whose name arrives after the deadline is not visited any more.
    #[test]
    fn nothing_is_started_behind_the_deadline() {
        let asker = Asker::new("sh", ["-c", "exec sleep 1000"]);
        let mut visits = Visits::new(&asker, Instant::now() + Duration::from_secs(3600), None, Vec::new(), 0);
        visits.start(Task::List(FolderPlace::Shared));
        visits.deadline = Instant::now();
        visits.all[0].bytes = [&[kind::USER][..], &1000_u32.to_le_bytes(), &[0; 4]].concat();
        visits.handle(0).unwrap();
        let unread: Vec<_> = visits.unread.iter().map(|one| (one.path(), one.error().kind())).collect();
        assert_eq!(unread, [(Path::new("/tmp/nlx-1000"), io::ErrorKind::TimedOut)]);
        assert_eq!(visits.all.len(), 1);
    }
}

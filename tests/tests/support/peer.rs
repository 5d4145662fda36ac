//! Nodes in other processes: `nlx-peer`, controlled line by line. Nothing here sleeps: each step
//! waits for an answer.

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far longer than any answer here takes; a test that waits longer has failed.
pub const HUNG: Duration = Duration::from_secs(60);

/// The port of the nodes of these tests, each of which has a different address.
pub const PORT: u16 = 21_900;

/// Returns an address of this host that no other test uses, in this process or in a concurrent one.
pub fn address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let process = std::process::id() % (50 << 8);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(number < 255, "too many addresses for one test program");
    Ipv4Addr::new(127, 200 + (process >> 8) as u8, process as u8, number as u8)
}

/// Calls `done` repeatedly until it returns true; panics after [`HUNG`].
#[track_caller]
pub fn hung_unless(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < HUNG, "not in {HUNG:?}: {what}");
    }
}

/// A process with one or more nodes; it is killed when the test ends.
pub struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Answers that no call has waited for yet.
    early: Vec<String>,
    next_job: u32,
    pub addresses: Vec<Ipv4Addr>,
}

/// `key=value…` of an answer.
#[derive(Debug, Clone)]
pub struct Values(pub String);

impl Values {
    /// Returns the words of a list, `key=word,word…`.
    pub fn words(&self, key: &str) -> Vec<String> {
        let value = self.0.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let words = value.unwrap_or_else(|| panic!("no list {key} in {self:?}")).split(',');
        words.filter(|word| !word.is_empty()).map(str::to_string).collect()
    }

    pub fn number(&self, key: &str) -> u64 {
        let value = self.0.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no number {key} in {self:?}"))
    }
}

impl Peer {
    /// Starts one node on this host, at `PORT`.
    pub fn start(address: Ipv4Addr, options: &str) -> Peer {
        let program = Command::new(env!("CARGO_BIN_EXE_nlx-peer"));
        Peer::spawn(program, &[address], &format!("port={PORT} {options}"))
    }

    /// Starts one node for each address, in a process that `program` starts.
    pub fn spawn(mut program: Command, addresses: &[Ipv4Addr], options: &str) -> Peer {
        let nodes = addresses.iter().map(|address| format!("node=tcp({address})"));
        program.args(options.split_whitespace().map(str::to_string).chain(nodes));
        let mut child =
            program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("nlx-peer starts");
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let addresses = addresses.to_vec();
        let mut peer = Peer { child, input, lines, early: Vec::new(), next_job: 1, addresses };
        let first = peer.line();
        assert_eq!(first, "ready");
        peer
    }

    /// Gives a node a command; returns the number of the job.
    pub fn tell(&mut self, node: usize, command: &str, values: &str) -> u32 {
        let job = self.next_job;
        self.next_job += 1;
        self.tell_job(node, command, job, values);
        job
    }

    /// Gives a node a command for an existing job.
    pub fn tell_job(&mut self, node: usize, command: &str, job: u32, values: &str) {
        writeln!(self.input.as_mut().unwrap(), "{node} {command} {job} {values}").unwrap();
    }

    /// Waits for a node's answer.
    #[track_caller]
    pub fn wait(&mut self, node: usize, word: &str, job: u32) -> Values {
        let wanted = format!("{node} {word} {job} ");
        loop {
            if let Some(at) = self.early.iter().position(|line| line.starts_with(&wanted)) {
                return Values(self.early.remove(at)[wanted.len()..].to_string());
            }
            let line = self.line();
            assert_ne!(line.split(' ').nth(1), Some("wrong"), "{line}");
            self.early.push(line);
        }
    }

    /// Gives a command and waits for its answer.
    #[track_caller]
    pub fn ask(&mut self, node: usize, command: &str, values: &str, word: &str) -> Values {
        let job = self.tell(node, command, values);
        self.wait(node, word, job)
    }

    #[track_caller]
    fn line(&mut self) -> String {
        match self.lines.recv_timeout(HUNG) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => panic!("process {} has ended", self.pid()),
            Err(RecvTimeoutError::Timeout) => panic!("no answer: {:?}", self.last_words()),
        }
    }

    /// Returns the unread output of a process: earlier lines, its counters, its sockets.
    fn last_words(&mut self) -> Vec<String> {
        let _ = writeln!(self.input.as_mut().unwrap(), "all counts 0");
        let count = self.addresses.len();
        let now = (0..count).map_while(|_| self.lines.recv_timeout(Duration::from_secs(5)).ok());
        let sockets = Command::new("ss").args(["-tn", "src", &self.addresses[0].to_string()]).output();
        let sockets =
            sockets.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
        self.early.iter().cloned().chain(now).chain([sockets]).collect()
    }

    /// Returns the NID of its first node.
    pub fn nid(&self) -> String {
        self.nid_of(0)
    }

    pub fn nid_of(&self, node: usize) -> String {
        format!("{}@tcp", self.addresses[node])
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn counts(&mut self, node: usize) -> Values {
        self.ask(node, "counts", "", "counts")
    }

    /// Waits until the node answers a ping of another one.
    #[track_caller]
    pub fn answers(&mut self, asking: &mut Peer) {
        asking.ask(0, "ping", &format!("to={}", self.nid()), "pinged");
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Kills the process.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns the number of the process's descriptors whose target begins with `kind`.
    pub fn descriptors(&self, kind: &str) -> usize {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with(kind)).count()
    }

    /// Returns whether a peer's TCP has not acknowledged everything sent from the process's network
    /// namespace.
    pub fn awaits_acknowledgement(&self) -> bool {
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/tcp", self.pid())).unwrap();
        // The fifth column is `SENT:RECEIVED`, bytes in hexadecimal digits.
        let queues = sockets.lines().skip(1).map(|line| line.split_whitespace().nth(4).unwrap());
        queues
            .map(|queue| queue.split_once(':').unwrap().0)
            .any(|sent| sent.bytes().any(|digit| digit != b'0'))
    }

    /// Returns the resident memory of the process in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs seeded lists both ways at once: every operation succeeds, and both ends find the expected
/// content.
#[track_caller]
pub fn exchange(one: &mut Peer, other: &mut Peer, seed: u64, list: &str) {
    let lists =
        [(seed, one.nid()), (seed + 1, other.nid())].map(|(seed, nid)| (format!("seed={seed} {list}"), nid));
    let [(first, one_nid), (second, other_nid)] = lists;
    let expected = [
        other.tell(0, "expect", &format!("{first} from={one_nid}")),
        one.tell(0, "expect", &format!("{second} from={other_nid}")),
    ];
    other.wait(0, "posted", expected[0]);
    one.wait(0, "posted", expected[1]);
    let run = [
        one.tell(0, "run", &format!("{first} to={other_nid}")),
        other.tell(0, "run", &format!("{second} to={one_nid}")),
    ];
    for done in [one.wait(0, "done", run[0]), other.wait(0, "done", run[1])] {
        assert_eq!(done.number("failed"), 0, "{done:?}");
    }
    other.wait(0, "done", expected[0]);
    one.wait(0, "done", expected[1]);
}

/// Traffic between two nodes that runs until it is stopped, verified byte by byte.
pub struct Stream {
    job: u32,
}

impl Stream {
    /// Makes the first node write to and read from the second one.
    #[track_caller]
    pub fn start(from: &mut Peer, to: &mut Peer, values: &str) -> Stream {
        let bits = from.pid();
        let board = format!("bits={bits} bytes={}", 4 << 20);
        to.ask(0, "board", &board, "posted");
        let job = from.tell(0, "stream", &format!("to={} {board} seed={bits} {values}", to.nid()));
        from.wait(0, "started", job);
        Stream { job }
    }

    /// Waits until `rounds` further rounds have succeeded.
    #[track_caller]
    pub fn advance(&self, from: &mut Peer, rounds: u32) -> Values {
        from.tell_job(0, "advance", self.job, &format!("by={rounds}"));
        from.wait(0, "advanced", self.job)
    }

    /// Waits until `operations` further operations have failed.
    #[track_caller]
    pub fn fail(&self, from: &mut Peer, operations: u32) -> Values {
        from.tell_job(0, "fail", self.job, &format!("by={operations}"));
        from.wait(0, "failed", self.job)
    }

    /// Ends the stream after its outstanding operations; returns its results.
    #[track_caller]
    pub fn stop(self, from: &mut Peer) -> Values {
        from.tell_job(0, "stop", self.job, "");
        from.wait(0, "done", self.job)
    }
}

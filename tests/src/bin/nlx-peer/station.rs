//! One node and its commands.
//!
//! | command | does | answers |
//! | --- | --- | --- |
//! | `expect J from= seed= count= [max=]` | posts the target's buffers of a list | `posted`, then `done` |
//! | `run J to= seed= count= [inflight=] [max=]` | runs the list | `done ok= failed= errors=` |
//! | `board J bits= bytes=` | posts memory that peers may write and read | `posted` |
//! | `stream J to= bits= bytes= lanes= seed= [size=]` | writes to such a board and reads it back, until stopped | `started` |
//! | `advance J by=` | waits for this number of further rounds of a stream | `advanced` |
//! | `fail J by=` | waits for this number of further failures of a stream | `failed` |
//! | `stop J` | ends a stream | `done rounds= failed= blank= errors=` |
//! | `ping J to= [seconds=]` | pings repeatedly until it is answered | `pinged nids= failed=` (the errnos before that) or `lost` |
//! | `counts J` | | `counts` with counters |
//! | `failure J of=` | | `failure` with the errno and the words of a peer's last failure |
//! | `conns J per_peer=` | changes `conns_per_peer` | `changed` |
//! | `restart J` | ends the node and starts it with its next incarnation | `restarted` |
//!
//! Any fault is answered with `wrong` and the reason.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use lnet_api::{EqHandle, Event, LNet, Md, MdOptions, Sleeper, Threshold, wait_until};
use lnet_node::Node;
use lnet_region::IoVec;
use nlx_testkit::events::EventLog;

use crate::board::{Board, Stream};
use crate::list::{Expect, Run};
use crate::options::Options;
use crate::words::{Words, say};

/// The job and operation of an event; an MD's `user_ptr`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tag {
    pub(crate) job: u32,
    pub(crate) number: u32,
}

impl From<u64> for Tag {
    fn from(user_ptr: u64) -> Tag {
        Tag { job: (user_ptr >> 32) as u32, number: user_ptr as u32 }
    }
}

impl From<Tag> for u64 {
    fn from(tag: Tag) -> u64 {
        u64::from(tag.job) << 32 | u64::from(tag.number)
    }
}

/// The effect of an event on a job.
pub(crate) enum Outcome {
    GoesOn,
    /// The job has ended, with these values for its answer.
    Done(String),
    Wrong(String),
}

/// A task that runs while other commands are served.
pub(crate) trait Job {
    fn event(&mut self, station: &PeerNode, number: u32, event: &Event) -> Outcome;

    /// Handles a command for this job.
    fn command(&mut self, _: &PeerNode, words: &Words<'_>) -> Outcome {
        Outcome::Wrong(format!("this job does not know {}", words.command))
    }

    /// Acts at the job's deadline.
    fn due(&mut self, _: &PeerNode, _now_ns: u64) -> Outcome {
        Outcome::GoesOn
    }

    /// Returns the time at which [`Job::due`] must be called.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
}

/// The sending half of a node's commands.
pub(crate) struct CommandSender {
    lines: Sender<String>,
    sleeper: Arc<Sleeper>,
}

/// The receiving half.
pub(crate) struct CommandReceiver {
    lines: Receiver<String>,
    sleeper: Arc<Sleeper>,
}

impl CommandSender {
    pub(crate) fn channel() -> Result<(CommandSender, CommandReceiver), String> {
        let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new().map_err(|errno| errno.to_string())?);
        let (sender, receiver) = mpsc::channel();
        Ok((
            CommandSender { lines: sender, sleeper: sleeper.clone() },
            CommandReceiver { lines: receiver, sleeper },
        ))
    }

    pub(crate) fn give(&self, line: &str) {
        // A node that has ended has reported why.
        let _ = self.lines.send(line.to_string());
        self.sleeper.wake();
    }
}

/// More events than the operations in flight can produce.
const EVENTS: usize = 4096;

/// A node, its event queue and its jobs.
pub(crate) struct PeerNode {
    number: usize,
    options: Options,
    commands: Rc<CommandReceiver>,
    /// Stores events until the node's thread takes them.
    log: Arc<EventLog>,
    /// `None` only during a restart.
    life: Option<Life>,
}

/// The parts that a restart replaces.
struct Life {
    node: Node,
    lnet: Arc<dyn LNet>,
    eq: EqHandle,
}

impl Life {
    fn begin(number: usize, options: &Options, log: &Arc<EventLog>) -> Result<Life, String> {
        let node = Node::start(&options.config(number)?).map_err(|error| error.to_string())?;
        let lnet = node.lnet();
        let eq = lnet.eq_alloc(log.clone()).map_err(|error| error.to_string())?;
        Ok(Life { node, lnet, eq })
    }
}

type Jobs = HashMap<u32, Box<dyn Job>>;

impl PeerNode {
    pub(crate) fn start(
        number: usize,
        options: &Options,
        commands: CommandReceiver,
    ) -> Result<PeerNode, String> {
        let log = EventLog::waking(commands.sleeper.clone(), EVENTS);
        let life = Some(Life::begin(number, options, &log)?);
        Ok(PeerNode { number, options: options.clone(), commands: Rc::new(commands), log, life })
    }

    /// Serves commands until it must quit.
    pub(crate) fn serve(mut self) {
        let mut jobs = Jobs::new();
        let (commands, log) = (self.commands.clone(), self.log.clone());
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let drive = self.life().node.drive();
            let mut line = None;
            let deadline_ns = jobs.values().filter_map(|job| job.deadline_ns()).min();
            wait_until(&*drive, &commands.sleeper, deadline_ns, || {
                line = line.take().or_else(|| commands.lines.try_recv().ok());
                line.is_some() || !log.is_empty()
            });
            log.swap(&mut events);
            for event in events.drain(..) {
                let tag = Tag::from(event.user_ptr);
                self.with(&mut jobs, tag.job, |job, station| job.event(station, tag.number, &event));
            }
            let now_ns = self.now_ns();
            let due = |at: Option<u64>| at.is_some_and(|deadline_ns| deadline_ns <= now_ns);
            let due: Vec<u32> =
                jobs.iter().filter(|(_, job)| due(job.deadline_ns())).map(|(id, _)| *id).collect();
            for id in due {
                self.with(&mut jobs, id, |job, station| job.due(station, now_ns));
            }
            match line {
                Some(line) if line.starts_with("quit") => return,
                Some(line) => self.obey(&mut jobs, &line),
                None => {}
            }
        }
    }

    fn with(&self, jobs: &mut Jobs, id: u32, act: impl FnOnce(&mut dyn Job, &PeerNode) -> Outcome) {
        let Some(job) = jobs.get_mut(&id) else { return };
        match act(&mut **job, self) {
            Outcome::GoesOn => {}
            Outcome::Done(values) => {
                jobs.remove(&id);
                self.say("done", id, &values);
            }
            Outcome::Wrong(reason) => self.say("wrong", id, &reason),
        }
    }

    fn obey(&mut self, jobs: &mut Jobs, line: &str) {
        let words = match Words::new(line) {
            Ok(words) => words,
            Err(reason) => return self.say("wrong", 0, &reason),
        };
        if let Err(reason) = self.serve_one(jobs, &words) {
            self.say("wrong", words.job, &format!("{line}: {reason}"));
        }
    }

    fn serve_one(&mut self, jobs: &mut Jobs, words: &Words<'_>) -> Result<(), String> {
        let id = words.job;
        let job: Box<dyn Job> = match words.command {
            "expect" => Box::new(Expect::new(words, self)?),
            "run" => Box::new(Run::new(words, self)?),
            "board" => Box::new(Board::new(words, self)?),
            "stream" => Box::new(Stream::new(words, self)?),
            "ping" => return self.ping(words),
            "counts" => {
                self.say("counts", id, &self.counts());
                return Ok(());
            }
            "failure" => {
                let failure = self.life().node.tcp().last_failure(words.value("of")?);
                let failure = failure.map_or("errno=none".to_string(), |failure| {
                    format!("errno={:?} step={:?} {failure}", failure.errno, failure.step)
                });
                self.say("failure", id, &failure);
                return Ok(());
            }
            "conns" => {
                self.life().node.tcp().set_conns_per_peer(None, words.value("per_peer")?);
                self.say("changed", id, "");
                return Ok(());
            }
            "restart" => {
                jobs.clear();
                return self.restart(id);
            }
            _ => {
                self.with(jobs, id, |job, station| job.command(station, words));
                return Ok(());
            }
        };
        jobs.insert(id, job);
        Ok(())
    }

    fn restart(&mut self, id: u32) -> Result<(), String> {
        // The NID is free once the former incarnation has ended.
        self.life = None;
        self.log.take();
        self.life = Some(Life::begin(self.number, &self.options, &self.log)?);
        self.say("restarted", id, "");
        Ok(())
    }

    fn ping(&self, words: &Words<'_>) -> Result<(), String> {
        let timeout = Duration::from_secs(words.value_or("seconds", 30)?);
        let (node, target) = (&self.life().node, words.value("to")?);
        let begun = Instant::now();
        let mut failed = BTreeSet::new();
        loop {
            match node.ping(target, None, timeout.saturating_sub(begun.elapsed())) {
                Ok(answer) => {
                    let failed: Vec<String> = failed.into_iter().collect();
                    let values = format!("nids={} failed={}", answer.nids.len(), failed.join(","));
                    self.say("pinged", words.job, &values);
                }
                Err(failure) if begun.elapsed() < timeout => {
                    failed.insert(format!("{:?}", failure.errno));
                    std::thread::yield_now();
                    continue;
                }
                Err(failure) => self.say("lost", words.job, &format!("errno={:?} {failure}", failure.errno)),
            }
            return Ok(());
        }
    }

    fn counts(&self) -> String {
        let lnet = self.life().node.counters();
        let tcp = self.life().node.tcp().counters();
        let counts = [
            ("msgs", lnet.msgs_alloc),
            ("responses", lnet.rst_alloc),
            ("errors", lnet.errors),
            ("received", lnet.recv_count),
            ("dropped", lnet.drop_count),
            ("connects", tcp.rx.connects),
            ("connect_failures", tcp.rx.connect_failures),
            ("accepts", tcp.rx.accepts),
            ("refusals", tcp.rx.refusals),
            ("handshake_timeouts", tcp.rx.handshake_timeouts),
            ("protocol_errors", tcp.rx.protocol_errors),
            ("timeouts", tcp.rx.timeouts),
            ("peers_lost", tcp.rx.peers_lost),
            ("noops", tcp.rx.noops),
            ("keepalives", tcp.tx.keepalives),
        ];
        counts.map(|(name, count)| format!("{name}={count}")).join(" ")
    }

    pub(crate) fn say(&self, word: &str, job: u32, values: &str) {
        say(&format!("{} {word} {job} {values}", self.number));
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("a restart that fails ends the process")
    }

    pub(crate) fn lnet(&self) -> &dyn LNet {
        &*self.life().lnet
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.life().node.drive().now_ns()
    }

    /// Returns an MD whose events belong to a job.
    pub(crate) fn md(&self, memory: &IoVec, threshold: Threshold, options: MdOptions, tag: Tag) -> Md {
        let (memory, eq) = (memory.clone(), Some(self.life().eq));
        Md { memory, threshold, max_size: 0, options, user_ptr: tag.into(), eq }
    }
}

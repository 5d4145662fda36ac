//! Memory that peers write and read back until the test ends, also during outages of the network.

use std::collections::BTreeMap;

use lnet_api::{
    AckRequest, Event, EventKind, Get, Md, MdHandle, MdOptions, MeSpec, Position, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_region::{IoVec, Region};

use crate::memory::Scattered;
use crate::op::portal;
use crate::random::{Random, mix, pattern};
use crate::station::{Job, Outcome, PeerNode, Tag};
use crate::words::Words;

const PORTAL: u32 = 30;

/// The pause of a lane after a failure: with an unreachable peer each attempt fails at once.
const REST_NS: u64 = 20_000_000;

/// Memory that all peers may write and read. Its own node does nothing.
pub(crate) struct Board;

impl Board {
    pub(crate) fn new(words: &Words<'_>, station: &PeerNode) -> Result<Board, String> {
        let me = MeSpec {
            portal: portal(PORTAL),
            match_id: ProcessId::ANY,
            match_bits: MatchBits(words.value("bits")?),
            ignore_bits: MatchBits(0),
            unlink: Unlink::Retain,
            position: Position::After,
        };
        let memory = IoVec::whole(Region::heap(words.value("bytes")?).map_err(|error| error.to_string())?);
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        let md = Md { memory, threshold: Threshold::Infinite, max_size: 0, options, user_ptr: 0, eq: None };
        let me = station.lnet().me_attach(&me).map_err(|error| error.to_string())?;
        station.lnet().md_attach(me, md, Unlink::Retain).map_err(|error| error.to_string())?;
        station.say("posted", words.job, "");
        Ok(Board)
    }
}

impl Job for Board {
    fn event(&mut self, _: &PeerNode, _: u32, event: &Event) -> Outcome {
        Outcome::Wrong(format!("a board has no events: {event:?}"))
    }
}

/// Lanes that each write a place of a board, with ACK, and read it back.
pub(crate) struct Stream {
    job: u32,
    peer: ProcessId,
    bits: MatchBits,
    /// The size of a place in bytes.
    size: usize,
    /// The number of places of the board.
    places: u64,
    /// The next place without a lane.
    next_place: u64,
    lanes: Vec<Lane>,
    random: Random,
    rounds: u64,
    /// Rounds that read back zeros: the peer was restarted, and the memory of its former
    /// incarnation is lost.
    blank: u64,
    errors: BTreeMap<String, u64>,
    /// The number of rounds that the test waits for.
    awaited: Option<u64>,
    /// The number of failures that the test waits for.
    feared: Option<u64>,
    stopping: bool,
}

struct Lane {
    place: u64,
    seed: u64,
    memory: Option<Scattered>,
    step: Step,
    /// Set once the ACK or REPLY has arrived.
    answered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Writing,
    Reading,
    Resting { until_ns: u64 },
    Over,
}

impl Stream {
    pub(crate) fn new(words: &Words<'_>, station: &PeerNode) -> Result<Stream, String> {
        let size = words.value_or("size", 16 << 10)?;
        let mut stream = Stream {
            job: words.job,
            peer: ProcessId { nid: words.value::<Nid>("to")?, pid: Pid::LNET },
            bits: MatchBits(words.value("bits")?),
            size,
            places: words.value::<u64>("bytes")? / size as u64,
            next_place: 0,
            lanes: Vec::new(),
            random: Random::new(words.value("seed")?),
            rounds: 0,
            blank: 0,
            errors: BTreeMap::new(),
            awaited: None,
            feared: None,
            stopping: false,
        };
        for number in 0..words.value_or("lanes", 4)? {
            let lane = Lane { place: 0, seed: 0, memory: None, step: Step::Over, answered: false };
            stream.lanes.push(lane);
            stream.move_on(number)?;
            stream.write(station, number)?;
        }
        station.say("started", words.job, "");
        Ok(stream)
    }

    /// Moves a lane to a place that no message of its past can still reach.
    fn move_on(&mut self, lane: u32) -> Result<(), String> {
        // A message whose operation has failed may still arrive, but long before the place is
        // reused.
        self.lanes[lane as usize].place = self.next_place % self.places;
        self.next_place += 1;
        if self.lanes.len() as u64 * 4 > self.places {
            return Err(format!("{} places are too few", self.places));
        }
        Ok(())
    }

    fn write(&mut self, station: &PeerNode, number: u32) -> Result<(), String> {
        let length =
            if self.random.up_to(1) == 0 { self.random.up_to(self.size) } else { self.random.up_to(200) };
        let seed = mix(self.random.next());
        let memory = Scattered::new(&pattern(seed, length), 1 + seed as usize % 4, seed)?;
        let (lane, bits, target) = (&mut self.lanes[number as usize], self.bits, self.peer);
        let md = bind(station, &memory, Tag { job: self.job, number })?;
        (lane.seed, lane.memory, lane.step, lane.answered) = (seed, Some(memory), Step::Writing, false);
        let put = Put {
            source: None,
            md,
            ack: AckRequest::Ack,
            target,
            portal: portal(PORTAL),
            match_bits: bits,
            offset: (lane.place * self.size as u64) as u32,
            hdr_data: 0,
        };
        station.lnet().put(&put).map_err(|error| error.to_string())
    }

    fn read(&mut self, station: &PeerNode, number: u32) -> Result<(), String> {
        let (lane, bits, target) = (&mut self.lanes[number as usize], self.bits, self.peer);
        let length = lane.memory.as_ref().map_or(0, |memory| memory.memory.len());
        // The memory must not contain the expected bytes before the read.
        let memory = Scattered::new(&pattern(!lane.seed, length), 1 + lane.seed as usize % 3, !lane.seed)?;
        let md = bind(station, &memory, Tag { job: self.job, number })?;
        (lane.memory, lane.step, lane.answered) = (Some(memory), Step::Reading, false);
        let get = Get {
            source: None,
            md,
            target,
            portal: portal(PORTAL),
            match_bits: bits,
            offset: (lane.place * self.size as u64) as u32,
        };
        station.lnet().get(&get).map_err(|error| error.to_string())
    }

    /// Ends a round: the bytes read must equal those written.
    fn compare(&mut self, number: u32) -> Result<(), String> {
        let lane = &self.lanes[number as usize];
        let Some(memory) = &lane.memory else { return Err("a lane without memory".to_string()) };
        let length = memory.memory.len();
        if let Err(reason) = memory.check(&pattern(lane.seed, length)) {
            if length == 0 || memory.check(&vec![0; length]).is_err() {
                return Err(format!("read back from place {}: {reason}", lane.place));
            }
            self.blank += 1;
        }
        self.rounds += 1;
        Ok(())
    }

    /// Handles the last event of a PUT or GET. The answer may come before the event that the
    /// message was sent.
    fn ended(&mut self, station: &PeerNode, number: u32, event: &Event) -> Result<(), String> {
        let lane = &mut self.lanes[number as usize];
        if let Err(errno) = event.status {
            *self.errors.entry(format!("{errno:?}")).or_default() += 1;
            lane.step = Step::Resting { until_ns: station.now_ns() + REST_NS };
            return self.move_on(number);
        }
        match lane.step {
            Step::Writing if lane.answered => self.read(station, number),
            Step::Reading if lane.answered => {
                self.compare(number)?;
                if self.stopping {
                    self.lanes[number as usize].step = Step::Over;
                    return Ok(());
                }
                self.write(station, number)
            }
            _ => Err(format!("an event out of turn: {event:?}")),
        }
    }

    fn outcome(&mut self, station: &PeerNode, result: Result<(), String>) -> Outcome {
        if let Err(reason) = result {
            return Outcome::Wrong(reason);
        }
        if self.awaited.is_some_and(|rounds| self.rounds >= rounds) {
            self.awaited = None;
            station.say("advanced", self.job, &self.tally());
        }
        if self.feared.is_some_and(|failures| self.failures() >= failures) {
            self.feared = None;
            station.say("failed", self.job, &self.tally());
        }
        if self.stopping {
            let resting = |lane: &&mut Lane| matches!(lane.step, Step::Resting { .. });
            self.lanes.iter_mut().filter(|lane| resting(lane)).for_each(|lane| lane.step = Step::Over);
            if self.lanes.iter().all(|lane| lane.step == Step::Over) {
                return Outcome::Done(self.tally());
            }
        }
        Outcome::GoesOn
    }

    fn failures(&self) -> u64 {
        self.errors.values().sum()
    }

    fn tally(&self) -> String {
        let failed = self.failures();
        let errors: Vec<_> = self.errors.iter().map(|(errno, count)| format!("{errno}:{count}")).collect();
        let (rounds, blank) = (self.rounds, self.blank);
        format!("rounds={rounds} blank={blank} failed={failed} errors={}", errors.join(","))
    }
}

fn bind(station: &PeerNode, memory: &Scattered, tag: Tag) -> Result<MdHandle, String> {
    let md = station.md(&memory.memory, Threshold::Limited(2), MdOptions::empty(), tag);
    station.lnet().md_bind(md, Unlink::Auto).map_err(|error| error.to_string())
}

impl Job for Stream {
    fn event(&mut self, station: &PeerNode, number: u32, event: &Event) -> Outcome {
        self.lanes[number as usize].answered |= matches!(event.kind, EventKind::Ack | EventKind::Reply);
        let result = if event.unlinked { self.ended(station, number, event) } else { Ok(()) };
        self.outcome(station, result)
    }

    fn command(&mut self, station: &PeerNode, words: &Words<'_>) -> Outcome {
        let result = match words.command {
            "advance" => words.value::<u64>("by").map(|by| self.awaited = Some(self.rounds + by)),
            "fail" => words.value::<u64>("by").map(|by| self.feared = Some(self.failures() + by)),
            "stop" => {
                self.stopping = true;
                Ok(())
            }
            command => Err(format!("a stream does not know {command}")),
        };
        self.outcome(station, result)
    }

    fn due(&mut self, station: &PeerNode, now_ns: u64) -> Outcome {
        let result = (0..self.lanes.len()).try_for_each(|lane| match self.lanes[lane].step {
            Step::Resting { until_ns } if until_ns <= now_ns => self.write(station, lane as u32),
            _ => Ok(()),
        });
        self.outcome(station, result)
    }

    fn deadline_ns(&self) -> Option<u64> {
        let rests = self.lanes.iter().filter_map(|lane| match lane.step {
            Step::Resting { until_ns } => Some(until_ns),
            _ => None,
        });
        rests.min()
    }
}

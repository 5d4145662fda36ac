//! Small messages, each answered, 64 in flight.

use nix::unistd::Pid;
use nlx::Event;

use super::pair::{self, NetworkPath, Pair};
use crate::cores::Cores;
use crate::error::Result;
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::ours::helper::process::Helper;
use crate::ours::lnet::rate::WINDOW;
use crate::server;

pub(crate) const NAME: &str = "xo-rate";

const MESSAGE: usize = 64;

/// Events that are taken at a time: those of a window and its answers.
const TAKEN: usize = 2 * WINDOW as usize;

/// Messages of 64 bytes, 64 in flight, each answered by a message: millions per second.
pub(crate) fn answered_messages(round: &Round) -> Result<Sample> {
    by(round, NetworkPath::InProcess)
}

/// [`answered_messages`] by any path to the network.
pub(crate) fn by(round: &Round, path: NetworkPath) -> Result<Sample> {
    let mut load = Loaded::start(round, path)?;
    let pids = load.pair.pids();
    meter::rate(round.time, &pids, || load.step())
}

/// A client that keeps the window full.
pub(crate) struct Loaded {
    pair: Pair,
    unanswered: u64,
    /// Events that were taken and not handled yet.
    taken: Vec<Event>,
}

impl Loaded {
    pub(crate) fn start(round: &Round, path: NetworkPath) -> Result<Loaded> {
        Ok(Loaded { pair: Pair::start(round, path, NAME)?, unanswered: 0, taken: Vec::with_capacity(TAKEN) })
    }

    /// Fills the window, and waits for some answers; returns their number.
    pub(crate) fn step(&mut self) -> Result<u64> {
        let party = &mut self.pair.party;
        party.send_messages(WINDOW - self.unanswered, MESSAGE)?;
        self.unanswered = WINDOW;
        let mut answers = 0;
        party.next_some(|_| answers += 1)?;
        self.unanswered -= answers;
        Ok(answers)
    }

    /// Fills the window; returns the number of operations. This is the first part of a step, which
    /// can be counted separately.
    pub(crate) fn submit(&mut self) -> Result<u64> {
        let wanted = WINDOW - self.unanswered;
        self.pair.party.send_messages(wanted, MESSAGE)?;
        self.unanswered = WINDOW;
        Ok(wanted)
    }

    /// Takes events until none is available; returns their number.
    pub(crate) fn take(&mut self) -> Result<u64> {
        self.pair.party.take(&mut self.taken)?;
        Ok(self.taken.len() as u64)
    }

    /// Handles the events; waits for one first, if there is none. Returns the number of answers
    /// among them.
    pub(crate) fn work(&mut self) -> Result<u64> {
        let (party, mut answers) = (&mut self.pair.party, 0);
        if self.taken.is_empty() {
            party.next(|_| answers += 1)?;
        }
        for event in self.taken.drain(..) {
            party.handle(event, |_| answers += 1)?;
        }
        self.unanswered -= answers;
        Ok(answers)
    }

    /// Returns the client's helper, if it has one.
    pub(crate) fn helper(&self) -> Option<Pid> {
        self.pair.helper().map(Helper::pid)
    }
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let mut party = pair::served(args)?;
    server::ready("")?;
    let mut unanswered = 0;
    loop {
        party.next_some(|_| unanswered += 1)?;
        party.send_messages(unanswered, MESSAGE)?;
        unanswered = 0;
    }
}

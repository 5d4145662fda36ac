//! Two clients that exchange messages and bulk transfers both ways, and check every byte.

use std::collections::HashSet;
use std::path::Path;

use nix::errno::Errno;
use nlx_testkit::Rng;

use super::attached::{Arena, Client, Tm};
use super::events::Event;
use super::points::Points;
use super::wire::{Address, Entry, queue};

/// Operations of each kind in a round.
pub const WINDOW: u64 = 4;
/// Bulk transfers of each kind in a round that a side offers; it begins as many.
const HALF: usize = WINDOW as usize / 2;
/// The size of a message in bytes.
pub const MESSAGE: u64 = 512;
/// The size of a bulk transfer in bytes.
pub const BULK: u64 = 64 << 10;
/// The distance in bytes between the buffers of an arena.
const PLACE: u64 = BULK;
/// The portal of all transfer machines.
pub const PORTAL: u32 = 40;
/// ECANCELED, as the status of an event.
const CANCELED: i32 = -(Errno::ECANCELED as i32);

/// The purpose of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Send,
    Receive,
    Give,
    Take,
}

const USES: [Use; 4] = [Use::Send, Use::Receive, Use::Give, Use::Take];

/// A round of transfers.
#[derive(Debug, Clone, Copy)]
struct Round {
    number: u64,
    seed: u64,
}

impl Round {
    fn cookie(self, buffer: u64) -> u64 {
        self.number << 8 | buffer & 0xff
    }

    /// Returns the seed from which the content of a machine's buffer derives.
    fn seed_of(self, tm: u64, buffer: u64) -> u64 {
        mix(self.seed ^ mix(self.number) ^ mix(tm << 8 | buffer & 0xff))
    }
}

/// The counters of a side's passive buffers in a round.
#[derive(Debug, Default)]
struct Offers {
    gives: [u64; HALF],
    takes: [u64; HALF],
}

/// One of the two clients with its resources.
#[derive(Debug)]
pub struct Side {
    /// The client.
    pub client: Client,
    /// The arena with its buffers.
    pub arena: Arena,
    /// The client's transfer machine.
    pub tm: Tm,
    counter: u64,
}

impl Side {
    /// Connects a client, and makes its arena, buffers and transfer machine.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn connect(path: &Path, nid: [u8; 20], name: &str, points: Points) -> Result<Side, String> {
        let mut client = Client::connect_with(path, name, points)?;
        let count = WINDOW * USES.len() as u64;
        let arena = client.arena(count * PLACE, false).map_err(|errno| format!("no arena: {errno}"))?;
        let tm = client.start_tm(nid, PORTAL, 64).map_err(|errno| format!("no transfer machine: {errno}"))?;
        for place in 0..count {
            let entry = Entry::register(handle(place), arena.number, place * PLACE, BULK);
            client.submit(&entry).map_err(|errno| format!("cannot register: {errno}"))?;
        }
        Ok(Side { client, arena, tm, counter: 0 })
    }

    fn operate(&mut self, entry: &Entry) -> Result<(), String> {
        self.client.operate(&mut self.tm, entry).map_err(|errno| format!("cannot submit {entry:?}: {errno}"))
    }

    fn next_counter(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn write(&self, buffer: u64, seed: u64, length: u64) {
        let at = place_of(buffer);
        let words = (0..length / 8).flat_map(|word| expected(seed, word).to_le_bytes());
        self.arena.memory.write(at, &words.collect::<Vec<_>>());
    }

    /// Returns the seed of the content at this place, if the whole content derives from it.
    fn seed(&self, buffer: u64, offset: u64, length: u64) -> Result<u64, String> {
        let bytes = self.arena.memory.read(place_of(buffer) + offset as usize, length as usize);
        let (words, _) = bytes.as_chunks::<8>();
        let seed = u64::from_le_bytes(words[0]);
        match (0..).zip(words).find(|(word, bytes)| u64::from_le_bytes(**bytes) != expected(seed, *word)) {
            None => Ok(seed),
            Some((word, _)) => {
                Err(format!("word {word} of the content of seed {seed:#x} is wrong in buffer {buffer:#x}"))
            }
        }
    }

    /// Takes events until none is outstanding, and passes each to `look`.
    fn finish(&mut self, mut look: impl FnMut(&Side, &Event) -> Result<(), String>) -> Result<(), String> {
        while self.tm.events.needed() > 0 {
            let event = self.client.event(&mut self.tm).map_err(|errno| format!("no event: {errno}"))?;
            look(self, &event)?;
        }
        Ok(())
    }

    /// Posts the receive buffers of all messages, and the passive buffers of half of the bulk
    /// transfers.
    fn offer(&mut self, round: Round) -> Result<Offers, String> {
        let tm = self.tm.handle;
        let mut offers = Offers::default();
        for number in 0..WINDOW {
            let receive = name(Use::Receive, number);
            self.operate(&Entry::receive(tm, receive, round.cookie(receive), MESSAGE, 1))?;
        }
        for number in 0..HALF {
            let (give, take) = (name(Use::Give, number as u64), name(Use::Take, number as u64));
            self.write(give, round.seed_of(tm, give), BULK);
            for (buffer, queue, counter) in [
                (give, queue::PASSIVE_SEND, &mut offers.gives[number]),
                (take, queue::PASSIVE_RECEIVE, &mut offers.takes[number]),
            ] {
                *counter = self.next_counter();
                self.operate(&Entry::passive(queue, tm, buffer, round.cookie(buffer), *counter, BULK))?;
            }
        }
        self.client.sync().map_err(|errno| format!("cannot wait for the helper: {errno}"))?;
        Ok(offers)
    }

    /// Sends all messages, and begins a bulk transfer with each buffer that the peer offers.
    fn begin_transfers(&mut self, round: Round, there: &Address, theirs: &Offers) -> Result<(), String> {
        let tm = self.tm.handle;
        for number in 0..WINDOW {
            let send = name(Use::Send, number);
            self.write(send, round.seed_of(tm, send), MESSAGE);
            self.operate(&Entry::send(tm, send, round.cookie(send), MESSAGE, there))?;
        }
        for number in 0..HALF {
            let place = (HALF + number) as u64;
            let (give, take) = (name(Use::Give, place), name(Use::Take, place));
            self.write(give, round.seed_of(tm, give), BULK);
            let from = there.descriptor(theirs.gives[number], queue::PASSIVE_SEND, BULK);
            self.operate(&Entry::active(queue::ACTIVE_RECEIVE, tm, take, round.cookie(take), BULK, &from))?;
            let to = there.descriptor(theirs.takes[number], queue::PASSIVE_RECEIVE, BULK);
            self.operate(&Entry::active(queue::ACTIVE_SEND, tm, give, round.cookie(give), BULK, &to))?;
        }
        Ok(())
    }

    /// Waits for the end of a round's operations, and checks that exactly the content which the
    /// peer's machine sent has arrived.
    fn finish_and_check(&mut self, round: Round, theirs: u64) -> Result<(), String> {
        let mut came = HashSet::new();
        self.finish(|side, event| {
            if event.status != 0 || !event.last || event.cookie != round.cookie(event.buffer) {
                return Err(format!("{event:?} in round {}", round.number));
            }
            let length = match use_of(event.buffer) {
                Use::Send | Use::Give => return Ok(()),
                Use::Receive => MESSAGE,
                Use::Take => BULK,
            };
            if event.length != length {
                return Err(format!("{event:?}: {length} bytes were sent"));
            }
            came.insert(side.seed(event.buffer, event.offset, length)?);
            Ok(())
        })?;
        let sent = (0..WINDOW)
            .flat_map(|number| [Use::Send, Use::Give].map(|used| round.seed_of(theirs, name(used, number))));
        if came != sent.collect() {
            return Err(format!(
                "round {}: the received content differs from the sent content",
                round.number
            ));
        }
        Ok(())
    }

    /// Starts an operation on each queue, none of which ends while no node answers at `silent`.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn start_everything(&mut self, silent: &Address) -> Result<Vec<Entry>, String> {
        let tm = self.tm.handle;
        let there = |queue| silent.descriptor(7, queue, BULK);
        let counters = [self.next_counter(), self.next_counter()];
        let entries = vec![
            Entry::receive(tm, handle(0), 100, 1, 3),
            Entry::send(tm, handle(1), 101, MESSAGE, silent),
            Entry::passive(queue::PASSIVE_RECEIVE, tm, handle(2), 102, counters[0], BULK),
            Entry::passive(queue::PASSIVE_SEND, tm, handle(3), 103, counters[1], BULK),
            Entry::active(queue::ACTIVE_RECEIVE, tm, handle(4), 104, BULK, &there(queue::PASSIVE_SEND)),
            Entry::active(queue::ACTIVE_SEND, tm, handle(5), 105, BULK, &there(queue::PASSIVE_RECEIVE)),
        ];
        entries.iter().try_for_each(|entry| self.operate(entry))?;
        self.client.sync().map_err(|errno| format!("cannot wait for the helper: {errno}"))?;
        self.client.points.pass("everything in flight");
        Ok(entries)
    }

    /// Cancels operations that do not end otherwise, and waits for their end.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn cancel_everything(&mut self, entries: &[Entry]) -> Result<(), String> {
        for entry in entries {
            let cancel = Entry::cancel(self.tm.handle, entry.buffer, entry.cookie);
            self.client.submit(&cancel).map_err(|errno| format!("cannot cancel: {errno}"))?;
        }
        self.client.points.pass("all cancelled");
        self.finish(|_, event| match event.status {
            CANCELED => Ok(()),
            // The error of a silent node, which may come before the cancel.
            status if status < 0 && [101, 104, 105].contains(&event.cookie) => Ok(()),
            _ => Err(format!("unexpected {event:?} of an operation without an answer")),
        })
    }

    /// Releases all resources; returns the client's points.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn end(mut self) -> Result<Points, String> {
        for place in 0..WINDOW * USES.len() as u64 {
            let deregister = Entry::deregister(handle(place));
            self.client.submit(&deregister).map_err(|errno| format!("cannot deregister: {errno}"))?;
        }
        let tm = self.tm.handle;
        self.client.stop_tm(tm).map_err(|errno| format!("cannot stop: {errno}"))?;
        let release = super::wire::arena(self.arena.number);
        let released = self.client.call(super::wire::kind::RELEASE_ARENA, &release);
        released.map_err(|errno| format!("cannot release the arena: {errno}"))?;
        Ok(self.client.points)
    }
}

/// Two clients, of one helper or of two.
#[derive(Debug)]
pub struct Pair {
    /// The two clients.
    pub sides: [Side; 2],
    /// Set to skip the check of received bytes.
    pub careless: bool,
    round: u64,
    seed: u64,
}

impl Pair {
    /// Connects two new clients. The first one has the points.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn connect(
        paths: [&Path; 2],
        nids: [[u8; 20]; 2],
        name: &str,
        points: Points,
    ) -> Result<Pair, String> {
        let one = Side::connect(paths[0], nids[0], name, points)?;
        let other = Side::connect(paths[1], nids[1], name, Points::harmless())?;
        let seed = mix(u64::from(std::process::id()) << 32 | one.client.number());
        Ok(Pair { sides: [one, other], careless: false, round: 0, seed })
    }

    /// Transfers messages and bulk both ways, and checks every byte.
    ///
    /// # Errors
    ///
    /// An operation that failed, or bytes that differ from those sent.
    pub fn round(&mut self) -> Result<(), String> {
        self.round += 1;
        let round = Round { number: self.round, seed: self.seed };
        let addresses = self.sides.each_ref().map(|side| side.tm.address);
        let handles = self.sides.each_ref().map(|side| side.tm.handle);
        let [one, other] = &mut self.sides;
        let offers = [one.offer(round)?, other.offer(round)?];
        for (here, side) in self.sides.iter_mut().enumerate() {
            side.begin_transfers(round, &addresses[1 - here], &offers[1 - here])?;
        }
        for (here, side) in self.sides.iter_mut().enumerate() {
            if self.careless {
                side.finish(|_, _| Ok(()))?;
            } else {
                side.finish_and_check(round, handles[1 - here])?;
            }
        }
        Ok(())
    }

    /// Releases all resources; returns the first client's points.
    ///
    /// # Errors
    ///
    /// The step that failed.
    pub fn end(self) -> Result<Points, String> {
        let [one, other] = self.sides;
        other.end()?;
        one.end()
    }
}

/// Returns the handle of the buffer at this index: all have the first generation.
pub fn handle(place: u64) -> u64 {
    1 << 32 | place
}

fn name(used: Use, number: u64) -> u64 {
    handle(used as u64 * WINDOW + number)
}

fn use_of(buffer: u64) -> Use {
    USES[((buffer & 0xff) / WINDOW) as usize % USES.len()]
}

fn place_of(buffer: u64) -> usize {
    ((buffer & 0xffff_ffff) * PLACE) as usize
}

/// Returns a word of the content that derives from `seed`.
fn expected(seed: u64, word: u64) -> u64 {
    if word == 0 { seed } else { mix(seed.wrapping_add(word)) }
}

/// Scrambles the bits.
pub fn mix(value: u64) -> u64 {
    Rng::new(value).next_u64()
}

//! The set-up of tests: machines, pairs, and their checks.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use nlx::{Buffer, Descriptor, Domain, EndPoint, Errno, Event, Op, OpId, Queue, TmOptions, TransferMachine};

#[cfg(feature = "verbs")]
mod rdma;
mod world;

pub(crate) use nlx_testkit::buffers::pattern;
pub(crate) use world::World;

/// A wait that takes longer is considered hung.
pub(crate) const HUNG: Option<Duration> = Some(Duration::from_secs(60));

/// A timeout that is meant to pass.
pub(crate) const SOON: Option<Duration> = Some(Duration::from_millis(20));

pub(crate) const PORTAL: u32 = 31;

/// A transfer machine and its domain.
pub(crate) struct Side {
    pub(crate) tm: TransferMachine,
    pub(crate) domain: Domain,
    /// The events passed to its callbacks, if it has callbacks.
    pub(crate) called: Option<Receiver<Event>>,
}

/// Two transfer machines that reach each other. They are dropped before the world.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) world: World,
}

impl Pair {
    pub(crate) fn on(world: World) -> Pair {
        let side = |place: usize| Side::on(&world, place, "*");
        Pair { a: side(0), b: side(1), world }
    }

    /// Sends a message from `a` to `b`, and checks that the send has succeeded.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let op = self.a.send(&self.b, bytes);
        let event = self.a.end_of(op);
        assert_eq!((event.queue, event.status, event.length), (Queue::MessageSend, Ok(()), bytes.len()));
        assert!(event.sender.is_none() && event.message.is_none());
    }

    /// Sends a message, and returns the event of its arrival at `b`.
    pub(crate) fn pass(&self, bytes: &[u8]) -> Event {
        self.send(bytes);
        let event = self.b.next();
        assert_eq!((event.queue, event.status), (Queue::MessageReceive, Ok(())));
        assert_eq!(event.sender.as_ref().map(EndPoint::address), Some(self.a.tm.address()));
        assert_eq!(event.message.as_deref(), Some(bytes));
        event
    }

    /// Waits until all messages that `a` has sent have arrived or were dropped.
    pub(crate) fn settle(&self) {
        self.a.settle(&self.world);
    }

    /// Waits until `b` has an event, without taking it. `a` drives, and has no event.
    pub(crate) fn until_pending(&self) {
        let start = Instant::now();
        while !self.b.tm.pending() {
            assert!(start.elapsed() < HUNG.unwrap(), "it hangs");
            assert!(self.a.tm.wait(Some(Duration::from_millis(1))).unwrap().is_none());
        }
    }
}

impl Side {
    pub(crate) fn on(world: &World, place: usize, id: &str) -> Side {
        let (domain, address) = (world.domain(place), wanted(world, place, id));
        if world.is_called() {
            let (tx, called) = channel();
            let builder = domain.machine().callbacks(move |_, event| drop(tx.send(event)));
            let tm = builder.start(&address).unwrap();
            return Side { tm, domain, called: Some(called) };
        }
        let tm = begin(&domain, &address).unwrap();
        Side::of(tm, domain)
    }

    /// Creates a side from a transfer machine without callbacks.
    pub(crate) fn of(tm: TransferMachine, domain: Domain) -> Side {
        Side { tm, domain, called: None }
    }

    pub(crate) fn empty(&self, bytes: usize) -> Buffer {
        self.domain.allocate(bytes).unwrap()
    }

    /// Allocates a buffer, and fills it with these bytes.
    pub(crate) fn filled(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.empty(bytes.len());
        buffer.write().unwrap().copy_from_slice(bytes);
        buffer
    }

    /// Posts a buffer for this number of messages, the last of which has at least this room.
    pub(crate) fn receive(&self, bytes: usize, messages: u32, room: usize) -> OpId {
        let op = Op::receive(self.empty(bytes)).max_messages(messages).min_receive_size(room);
        self.tm.start(op).unwrap().op
    }

    /// Posts a buffer for one message of up to `bytes` bytes.
    pub(crate) fn receive_one(&self, bytes: usize) -> OpId {
        self.tm.start(Op::receive(self.empty(bytes))).unwrap().op
    }

    /// Returns this machine's end point of another side.
    pub(crate) fn knows(&self, other: &Side) -> EndPoint {
        self.tm.end_point(&other.tm.address().to_string()).unwrap()
    }

    pub(crate) fn send(&self, to: &Side, bytes: &[u8]) -> OpId {
        self.tm.start(Op::send(self.filled(bytes), &self.knows(to)).timeout(HUNG)).unwrap().op
    }

    /// Waits until all messages that this side, at the first place, has sent to the other place
    /// have arrived or were dropped.
    pub(crate) fn settle(&self, world: &World) {
        let witness = Side::on(world, 1, "*");
        witness.receive_one(1);
        let op = self.send(&witness, &[0]);
        assert_eq!(self.end_of(op).status, Ok(()));
        assert_eq!(witness.next().length, 1);
    }

    /// Waits for the next event.
    pub(crate) fn next(&self) -> Event {
        match &self.called {
            Some(called) => called.recv_timeout(HUNG.unwrap()).expect("it hangs"),
            None => self.tm.wait(HUNG).unwrap().expect("it hangs"),
        }
    }

    /// Checks that no event comes for a while.
    pub(crate) fn has_nothing(&self) {
        match &self.called {
            Some(called) => {
                assert_eq!(called.recv_timeout(SOON.unwrap()).err(), Some(RecvTimeoutError::Timeout))
            }
            None => assert!(self.tm.wait(SOON).unwrap().is_none()),
        }
    }

    /// Returns the events that are left after a stop, and checks that no more follow.
    pub(crate) fn rest(&self) -> Vec<Event> {
        if let Some(called) = &self.called {
            let rest = called.try_iter().collect();
            assert_eq!(called.try_recv().err(), Some(TryRecvError::Disconnected), "the callback lives");
            return rest;
        }
        let mut rest = Vec::new();
        loop {
            match self.tm.wait(HUNG) {
                Ok(event) => rest.push(event.expect("there are no gaps")),
                Err(error) => {
                    assert_eq!(error.errno(), Errno::ESHUTDOWN);
                    return rest;
                }
            }
        }
    }

    /// Takes the next event, which must be the last one of this operation.
    pub(crate) fn end_of(&self, op: OpId) -> Event {
        let event = self.next();
        assert!(event.is_last(), "{event:?}");
        assert_eq!(event.op, op);
        event
    }

    /// Cancels an operation, and takes its last event.
    pub(crate) fn cancel(&self, op: OpId) {
        assert!(self.tm.cancel(op));
        let event = self.end_of(op);
        assert_eq!((event.status, event.length), (Err(Errno::ECANCELED), 0));
        assert!(!self.tm.cancel(op), "it is over");
    }

    /// Returns `(adds, cancels, successes, failures)` of a queue.
    pub(crate) fn counts(&self, queue: Queue) -> (u64, u64, u64, u64) {
        let counters = self.tm.statistics()[queue.index()];
        (counters.adds, counters.cancels, counters.successes, counters.failures)
    }
}

/// Returns the text of an address on the node of `place`.
pub(crate) fn wanted(world: &World, place: usize, id: &str) -> String {
    format!("{}:12345:{PORTAL}:{id}", world.nids[place])
}

pub(crate) fn begin(domain: &Domain, address: &str) -> Result<TransferMachine, nlx::Error> {
    domain.transfer_machine(address, TmOptions::default())
}

/// Parses the descriptor in the bytes of a message.
pub(crate) fn parsed(bytes: &[u8]) -> Descriptor {
    Descriptor::from_bytes(bytes).unwrap()
}

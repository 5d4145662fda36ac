//! What a test stands on.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::{Duration, Instant};

use nlx::{Buffer, Descriptor, Domain, EndPoint, Errno, Event, Op, OpId, Queue, TmOptions, TransferMachine};

#[cfg(feature = "verbs")]
mod rdma;
mod world;

pub(crate) use world::World;

/// What takes longer has hung.
pub(crate) const HUNG: Option<Duration> = Some(Duration::from_secs(60));

/// A timeout that is meant to pass.
pub(crate) const SOON: Option<Duration> = Some(Duration::from_millis(20));

pub(crate) const PORTAL: u32 = 31;

/// A transfer machine and its domain.
pub(crate) struct Side {
    pub(crate) tm: TransferMachine,
    pub(crate) domain: Domain,
    /// What its callbacks were given, if it has callbacks.
    pub(crate) called: Option<Receiver<Event>>,
}

/// Two transfer machines that reach each other. They end before the world does.
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

    /// A message from `a` to `b`, whose sending has ended well.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let op = self.a.send(&self.b, bytes);
        let event = self.a.end_of(op);
        assert_eq!((event.queue, event.status, event.length), (Queue::MessageSend, Ok(()), bytes.len()));
        assert!(event.sender.is_none() && event.message.is_none());
    }

    /// The same, and `b` has it.
    pub(crate) fn pass(&self, bytes: &[u8]) -> Event {
        self.send(bytes);
        let event = self.b.next();
        assert_eq!((event.queue, event.status), (Queue::MessageReceive, Ok(())));
        assert_eq!(event.sender.as_ref().map(EndPoint::address), Some(self.a.tm.address()));
        assert_eq!(event.message.as_deref(), Some(bytes));
        event
    }

    /// What `a` has sent to the other place so far has arrived, and found its buffer or none.
    pub(crate) fn settle(&self) {
        self.a.settle(&self.world);
    }

    /// `b` has an event, which stays where it is. `a` drives, and has none.
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
            let (tell, called) = channel();
            let builder = domain.machine().callbacks(move |_, event| drop(tell.send(event)));
            let tm = builder.start(&address).unwrap();
            return Side { tm, domain, called: Some(called) };
        }
        let tm = begin(&domain, &address).unwrap();
        Side::of(tm, domain)
    }

    /// A transfer machine whose events are waited for.
    pub(crate) fn of(tm: TransferMachine, domain: Domain) -> Side {
        Side { tm, domain, called: None }
    }

    pub(crate) fn empty(&self, bytes: usize) -> Buffer {
        self.domain.allocate(bytes).unwrap()
    }

    /// A buffer that holds these bytes.
    pub(crate) fn filled(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.empty(bytes.len());
        buffer.write().unwrap().copy_from_slice(bytes);
        buffer
    }

    /// Posts a buffer for as many messages, the last of which has this much room at least.
    pub(crate) fn receive(&self, bytes: usize, messages: u32, room: usize) -> OpId {
        let op = Op::receive(self.empty(bytes)).max_messages(messages).min_receive_size(room);
        self.tm.start(op).unwrap().op
    }

    /// Posts a buffer for one message of up to so many bytes.
    pub(crate) fn receive_one(&self, bytes: usize) -> OpId {
        self.tm.start(Op::receive(self.empty(bytes))).unwrap().op
    }

    /// Another one, as this one knows it.
    pub(crate) fn knows(&self, other: &Side) -> EndPoint {
        self.tm.end_point(&other.tm.address().to_string()).unwrap()
    }

    pub(crate) fn send(&self, to: &Side, bytes: &[u8]) -> OpId {
        self.tm.start(Op::send(self.filled(bytes), &self.knows(to)).timeout(HUNG)).unwrap().op
    }

    /// What this one, at the first place, has sent to the other so far has arrived, and found its
    /// buffer or none.
    pub(crate) fn settle(&self, world: &World) {
        let witness = Side::on(world, 1, "*");
        witness.receive_one(1);
        let op = self.send(&witness, &[0]);
        assert_eq!(self.end_of(op).status, Ok(()));
        assert_eq!(witness.next().length, 1);
    }

    /// The next event, however long it takes.
    pub(crate) fn next(&self) -> Event {
        match &self.called {
            Some(called) => called.recv_timeout(HUNG.unwrap()).expect("it hangs"),
            None => self.tm.wait(HUNG).unwrap().expect("it hangs"),
        }
    }

    /// No event comes for a while.
    pub(crate) fn has_nothing(&self) {
        match &self.called {
            Some(called) => {
                assert_eq!(called.recv_timeout(SOON.unwrap()).err(), Some(RecvTimeoutError::Timeout))
            }
            None => assert!(self.tm.wait(SOON).unwrap().is_none()),
        }
    }

    /// The events that are left after a stop; there are none to come.
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

    /// The last event of this operation, which is the next to come.
    pub(crate) fn end_of(&self, op: OpId) -> Event {
        let event = self.next();
        assert!(event.is_last(), "{event:?}");
        assert_eq!(event.op, op);
        event
    }

    /// Cancels an operation, and sees it end.
    pub(crate) fn cancel(&self, op: OpId) {
        assert!(self.tm.cancel(op));
        let event = self.end_of(op);
        assert_eq!((event.status, event.length), (Err(Errno::ECANCELED), 0));
        assert!(!self.tm.cancel(op), "it is over");
    }

    /// `(adds, cancels, successes, failures)` of a queue.
    pub(crate) fn counts(&self, queue: Queue) -> (u64, u64, u64, u64) {
        let counters = self.tm.statistics()[queue.index()];
        (counters.adds, counters.cancels, counters.successes, counters.failures)
    }
}

/// What an address is to be at one of the places.
pub(crate) fn wanted(world: &World, place: usize, id: &str) -> String {
    format!("{}:12345:{PORTAL}:{id}", world.nids[place])
}

pub(crate) fn begin(domain: &Domain, address: &str) -> Result<TransferMachine, nlx::Error> {
    domain.transfer_machine(address, TmOptions::default())
}

/// Bytes that differ wherever one looks.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// What a message carries a descriptor in.
pub(crate) fn parsed(bytes: &[u8]) -> Descriptor {
    Descriptor::from_bytes(bytes).unwrap()
}

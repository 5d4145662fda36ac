//! The life of a client beside another one of the same program: everything that a client can do.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use lnet_region::Fragment;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_core::{
    Address, Core, CoreTm, Descriptor, Errno, IoVec, MatchCounter, OperationKind, PassiveBuffer, Queue,
    StartAddress, TmId, TmOptions, match_bits,
};

use super::points::{Point, Trap};
use super::work::*;
use crate::{HelperOptions, Ucore};

/// Environment variable with the arguments of this process: `SOCKET ADDRESS SILENT POINT NTH`.
const WORDS: &str = "NLX_TEST_WORDS";

/// Bytes of an arena: half of the longest buffer, which so gets a separate one.
const ARENA: usize = 512 << 10;
/// Bytes of a bulk transfer.
const BULK: usize = 100_000;
/// Bytes of a message.
const MESSAGE: usize = 64;
/// Messages of a batch: far more than the slots of the helper's rings in that test.
const BATCH: u32 = 32;

/// Repeats the client's life until it reaches the point.
#[test]
#[ignore = "started by tests/tests/helper/killed.rs"]
fn client() {
    let words = std::env::var(WORDS).unwrap();
    let [socket, address, silent, point, nth] = words.split(' ').collect::<Vec<_>>()[..] else {
        panic!("five words are expected, not {words:?}")
    };
    let at = |address: &str| format!("{address}@tcp:12345:41:*").parse::<StartAddress>().unwrap();
    let (own, silent) = (at(address), at(silent).with(TmId::MIN));
    let options = HelperOptions::at(socket).name("mortal").arena_bytes(ARENA).reconnect(true);
    say("ready");
    Trap::arm(point, nth.parse().unwrap());
    loop {
        live(&options, &own, silent);
    }
}

/// Lists the points.
#[test]
#[ignore = "started by tests/tests/helper/killed.rs"]
fn points() {
    say("ready");
    Point::ALL.iter().for_each(|point| say(&format!("{point:?}")));
    say("");
}

/// Prints a line. It does not use a macro, because the test harness captures the output of macros.
fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap();
}

fn live(options: &HelperOptions, own: &StartAddress, silent: Address) {
    let [mut one, other] = [0, 1].map(|_| Party::new(options, own));
    for (from, to) in [(&one, &other), (&other, &one)] {
        exchange(from, to);
        transfer(from, to);
    }
    sleep_in_a_loop(&one);
    cancel_everything(&one, silent);
    drop_in_use(&other, own);
    one.connect_again(own);
    exchange(&one, &other);
    [one, other].into_iter().for_each(Party::end);
}

/// A domain with buffers and a transfer machine.
struct Party {
    domain: Arc<Ucore>,
    tm: Box<dyn CoreTm>,
    /// Receives messages; foreign memory.
    mail: Buffer,
    messages: Vec<Buffer>,
    /// Memory in two pieces.
    shared: Buffer,
    foreign: Buffer,
}

impl Party {
    fn new(options: &HelperOptions, own: &StartAddress) -> Party {
        let domain = Ucore::connect(options).unwrap();
        let halves = [0, 1].map(|_| {
            let region = domain.allocate(BULK / 2).unwrap();
            Fragment::new(region, 0, BULK / 2).unwrap()
        });
        let memory = IoVec::new(halves.to_vec()).unwrap();
        Party {
            tm: domain.tm_start(own, &TmOptions::default()).unwrap(),
            mail: copying(&*domain, BATCH as usize * MESSAGE),
            messages: (0..BATCH).map(|_| buffer(&*domain, MESSAGE)).collect(),
            shared: Buffer { handle: domain.register(&memory).unwrap(), memory },
            foreign: copying(&*domain, BULK),
            domain,
        }
    }

    /// Drops the connection in the middle of an operation, and waits until the domain has
    /// reconnected.
    fn connect_again(&mut self, own: &StartAddress) {
        submit(&*self.tm, &self.mail.receive(1));
        self.domain.domain.link().finish();
        let last = event(&*self.tm);
        assert_eq!((last.status(), last.unlinked()), (Err(Errno::ENOTCONN), true));
        assert!(self.tm.has_ended());
        until("the domain has reconnected", || self.domain.is_connected());
        self.tm = self.domain.tm_start(own, &TmOptions::default()).unwrap();
    }

    fn end(self) {
        let Party { domain, tm, mail, messages, shared, foreign } = self;
        tm.stop().unwrap();
        // Its arena goes with it.
        let large = buffer(&*domain, 2 * ARENA);
        for Buffer { handle, memory } in messages.into_iter().chain([mail, shared, foreign, large]) {
            drop(memory);
            domain.deregister(handle).unwrap();
        }
    }
}

/// Sends a batch of messages that is longer than the ring.
fn exchange(from: &Party, to: &Party) {
    submit(&*to.tm, &to.mail.receive(BATCH));
    let sends = from.messages.iter().zip(0..BATCH).map(|(message, number)| {
        message.fill(&number.to_le_bytes());
        message.send(MESSAGE as u64, to.tm.address())
    });
    from.tm.submit_all(None, &sends.collect::<Vec<_>>(), &mut |_, outcome| assert!(outcome.is_ok()));
    events_until(&*from.tm, BATCH as usize).iter().for_each(assert_ok);
    let came = events_until(&*to.tm, 1);
    came.iter().for_each(assert_ok);
    let numbers = came.iter().map(|came| to.mail.bytes(came.offset as usize, 4));
    assert!(numbers.eq((0..BATCH).map(|number| number.to_le_bytes().to_vec())));
}

/// Transfers bulk in both directions, from and to memory of both kinds.
fn transfer(passive: &Party, active: &Party) {
    let length = BULK as u64;
    let bytes: Vec<u8> = (0..BULK).map(|at| (at * 7 + 3) as u8).collect();
    let end = || [event(&*passive.tm), event(&*active.tm)].iter().for_each(assert_ok);

    passive.shared.fill(&bytes);
    let offered = submit(&*passive.tm, &passive.shared.to(OperationKind::PassiveSend { length }));
    let descriptor = offered.descriptor.unwrap();
    submit(&*active.tm, &active.foreign.to(OperationKind::ActiveReceive { descriptor }));
    end();
    assert!(active.foreign.bytes(0, BULK) == bytes);

    let wanted = submit(&*passive.tm, &passive.foreign.to(OperationKind::PassiveReceive));
    let descriptor = wanted.descriptor.unwrap();
    submit(&*active.tm, &active.foreign.to(OperationKind::ActiveSend { descriptor, length }));
    end();
    assert!(passive.foreign.bytes(0, BULK) == bytes);
}

/// Waits until a deadline, and in an event loop, which is woken by a call.
fn sleep_in_a_loop(party: &Party) {
    assert!(!party.tm.event_wait(Some(deadline(Duration::from_millis(1)))));
    let mut set = [PollFd::new(party.tm.descriptor().unwrap(), PollFlags::POLLIN)];
    assert!(party.tm.arm(Some(deadline(HUNG))).unwrap());
    party.tm.wake();
    assert_eq!(poll(&mut set, PollTimeout::try_from(HUNG).unwrap()), Ok(1));
    party.tm.poll();
    assert!(!party.tm.event_wait(None));
}

/// Starts and cancels an operation of each kind, towards a node that does not answer.
fn cancel_everything(party: &Party, silent: Address) {
    let length = MESSAGE as u64;
    let descriptor = |queue| {
        let match_bits = match_bits(silent.tmid, MatchCounter::new(1).unwrap());
        Descriptor::encode(&PassiveBuffer { address: silent, match_bits, queue, length }).unwrap()
    };
    let kinds = [
        OperationKind::Receive { min_receive_size: length, max_messages: 1 },
        OperationKind::Send { length, to: silent },
        OperationKind::PassiveReceive,
        OperationKind::PassiveSend { length },
        OperationKind::ActiveReceive { descriptor: descriptor(Queue::PassiveBulkSend) },
        OperationKind::ActiveSend { descriptor: descriptor(Queue::PassiveBulkReceive), length },
    ];
    let operations: Vec<_> = party.messages.iter().zip(kinds).map(|(buffer, kind)| buffer.to(kind)).collect();
    for operation in &operations {
        submit(&*party.tm, operation);
    }
    for operation in &operations {
        party.tm.cancel(operation.buffer, operation.cookie).unwrap();
    }
    let ended = events_until(&*party.tm, operations.len());
    assert!(ended.iter().all(|event| event.status().is_err()), "{ended:?}");
}

/// Drops a second transfer machine with an operation in flight.
fn drop_in_use(party: &Party, own: &StartAddress) {
    let tm = party.domain.tm_start(own, &TmOptions::default()).unwrap();
    submit(&*tm, &party.mail.receive(1));
}

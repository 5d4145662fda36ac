//! Tests that an event costs no system call while its consumer is awake. The kernel checks this:
//! the other process installs a seccomp filter that kills it at the first system call.

use std::os::unix::process::ExitStatusExt;

use nix::libc;
use nix::sys::signal::Signal;
use nlx_sync::{Sleeper, Waker};

use crate::oracle::{OracleOp, Sample, Sequence, Source};
use crate::tests::other::{Board, MAX_SLOTS, Other, Word, inherited};
use crate::{Consumer, Producer, QueueWord, SharedMemory};

const EVENTS: u64 = 20_000;

/// Makes any further system call except `exit_group` kill this thread, and with it the process.
fn give_up_system_calls() {
    /// The offset of the system call's number in the filter's data.
    const NUMBER_AT: u32 = 0;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER_AT, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_exit_group as u32, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes plain numbers; the second reads the filter, which lives until
    // the call has returned, at its length.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(refused, 0);
}

/// Ends this process without running any other code.
fn exit() -> ! {
    // SAFETY: takes a plain number and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    unreachable!("the process has ended")
}

/// If neither side of a queue sleeps, neither makes a system call.
// Covers: MT-189
#[test]
fn an_event_costs_its_producer_no_system_call_while_the_consumer_is_awake() {
    let (mut other, memory) = Other::start("calls::produce");
    let mut consumer = Consumer::new(memory).unwrap();
    consumer.grow(MAX_SLOTS - 2).unwrap();
    let mut sequence = Sequence::default();
    while sequence.seen < EVENTS && !other.has_ended() {
        sequence.step(OracleOp::Drain(64), &mut consumer);
    }
    let ended = other.finish();
    assert!(ended.success(), "{ended}");
    sequence.step(OracleOp::Drain(usize::MAX), &mut consumer);
    assert_eq!(sequence.seen, EVENTS);
}

// Covers: MT-189
#[test]
fn an_event_costs_its_consumer_no_system_call() {
    let (mut other, memory) = Other::start("calls::consume");
    let waker = Waker::futex(QueueWord::consumer(memory.clone()));
    let mut producer = Producer::new(memory).unwrap();
    let mut source = Source::default();
    while source.pushed < EVENTS && !other.has_ended() {
        source.step(OracleOp::Push, &mut producer);
        waker.wake().unwrap();
    }
    let ended = other.finish();
    assert!(ended.success(), "{ended}");
}

/// The filter works: where the consumer sleeps, the producer's system call kills the producer.
#[test]
fn the_system_notices_a_call() {
    let (mut other, memory, board) = Other::start_with("calls::produce_for_a_sleeper", "");
    QueueWord::consumer(memory).as_ref().announce();
    board.add(Word::Submitted, 1);
    assert_eq!(other.finish().signal(), Some(Signal::SIGSYS as i32));
}

// The code that runs in the other process.

struct Pushing {
    producer: Producer<Sample, SharedMemory>,
    waker: Waker<QueueWord<SharedMemory>>,
}

fn pushing() -> Pushing {
    let memory = inherited();
    Pushing {
        waker: Waker::futex(QueueWord::consumer(memory.clone())),
        producer: Producer::new(memory).unwrap(),
    }
}

#[test]
#[ignore = "started by an_event_costs_its_producer_no_system_call_while_the_consumer_is_awake"]
fn produce() {
    let Pushing { mut producer, waker } = pushing();
    let mut source = Source::default();
    give_up_system_calls();
    while source.pushed < EVENTS {
        source.step(OracleOp::Push, &mut producer);
        let woken = waker.wake();
        assert_eq!(woken, Ok(false));
    }
    exit()
}

#[test]
#[ignore = "started by the_system_notices_a_call"]
fn produce_for_a_sleeper() {
    let Pushing { mut producer, waker } = pushing();
    let board = Board::inherited();
    while board.get(Word::Submitted) == 0 {
        std::thread::yield_now();
    }
    give_up_system_calls();
    Source::default().step(OracleOp::Push, &mut producer);
    // The system call kills this process, so that it does not return.
    waker.wake().unwrap();
    exit()
}

#[test]
#[ignore = "started by an_event_costs_its_consumer_no_system_call"]
fn consume() {
    let memory = inherited();
    let sleeper = Sleeper::futex(QueueWord::consumer(memory.clone()));
    let mut consumer = Consumer::new(memory).unwrap();
    consumer.grow(MAX_SLOTS - 2).unwrap();
    let mut sequence = Sequence::default();
    give_up_system_calls();
    while sequence.seen < EVENTS {
        sequence.step(OracleOp::Drain(64), &mut consumer);
        if !consumer.is_empty() {
            // The sleep is announced and withdrawn at once, because an event is present.
            sleeper.sleep(None, || true).unwrap();
        }
    }
    exit()
}

//! A thread's work, step by step, with a client that holds it up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use lnet_api::{Clock, Drive, Tokens};
use lnet_fake::FakeLnet;
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::client::{RequestState, RingState};
use super::*;
use crate::{HostConfig, ReplyPacket};

const USER: Credentials = Credentials { pid: 2, uid: 1000, gid: 1000 };

/// A clock on which the thread blocks: every measured period takes a second.
struct Slow {
    now_ns: AtomicU64,
    tokens: Tokens,
}

impl Clock for Slow {
    fn now_ns(&self) -> u64 {
        std::thread::sleep(Duration::from_millis(1));
        self.now_ns.fetch_add(1_000_000_000, Ordering::Relaxed)
    }
}

impl Drive for Slow {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}

/// Returns a thread that measures its turns and does nothing by itself, and the other end of its
/// client's socket.
fn slow_worker() -> (Worker, OwnedFd) {
    let drive = Slow { now_ns: AtomicU64::new(0), tokens: Tokens::new(0) };
    let host = Host::new(FakeLnet::new(&["0@lo"]), Arc::new(drive), HostConfig::default());
    let shared = ServiceShared {
        host,
        config: ServiceConfig::default(),
        phase: AtomicU8::new(Phase::Serving as u8),
        worker_handles: [WorkerHandle::new().unwrap()].into(),
        counters: AdmissionCounters::default(),
        porter: Porter::in_process().unwrap(),
        next_client: AtomicU64::new(1),
        rates: UserRates::per_second(1000),
    };
    let mut worker = Worker::new(Arc::new(shared), 0, None).unwrap();
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).unwrap();
    worker.make_room(1).unwrap();
    worker.accept_client(1, ours, true, USER);
    assert!(worker.clients.served(PLACE).is_some());
    worker.turn_meter.begin(0);
    assert_eq!(worker.turn_meter.end(1_000_000_000), None);
    (worker, theirs)
}

/// The slot of the first client.
const PLACE: usize = 0;

impl Worker {
    fn rested(&self) -> u64 {
        self.shared.counters.rested.load(Ordering::Relaxed)
    }

    fn sweep_all(&mut self) {
        self.begin_sweep();
        while self.sweep_slice() {}
    }
}

#[test]
fn the_look_at_a_client_counts_for_its_user() {
    let (mut worker, _client) = slow_worker();
    worker.sweep_all();
    assert_eq!((worker.rested(), worker.has_no_turns(PLACE)), (1, true));
    worker.sweep_all();
    assert_eq!(worker.rested(), 1, "it is looked at after its rest");
    worker.resume_rested(u64::MAX);
    worker.sweep_all();
    assert_eq!(worker.rested(), 2);
}

#[test]
fn an_answer_that_has_waited_counts_for_its_user() {
    for is_reported in [true, false] {
        let (mut worker, _client) = slow_worker();
        let served = worker.clients.served(PLACE).unwrap();
        served.request_state =
            RequestState::Answering { answer: ReplyPacket::default(), until_ns: u64::MAX, crowded: true };
        if is_reported {
            worker.handle_client_event(PLACE, EpollFlags::EPOLLOUT);
        } else {
            worker.set_due(PLACE, Some(0));
            worker.handle_due(0);
        }
        assert!(matches!(worker.clients.served(PLACE).unwrap().request_state, RequestState::Reading));
        assert_eq!((worker.rested(), worker.has_no_turns(PLACE)), (1, true));
    }
}

#[test]
fn the_announcement_on_a_ring_counts_for_its_user() {
    let (mut worker, _client) = slow_worker();
    worker.clients.served(PLACE).unwrap().ring = RingState::Hot;
    worker.queue(PLACE);
    worker.rest_round();
    assert_eq!((worker.rested(), worker.has_no_turns(PLACE)), (1, true));
    worker.resume_rested(u64::MAX);
    worker.handle_doorbell(PLACE);
    assert_eq!((worker.rested(), worker.has_no_turns(PLACE)), (2, true));
}

/// Signals that took long while the network was polled.
#[test]
fn work_that_was_done_elsewhere_is_paid() {
    let (mut worker, _client) = slow_worker();
    worker.pay(PLACE, LONG_TURN.as_nanos() as u64 - 1);
    assert!(!worker.has_no_turns(PLACE));
    worker.pay(PLACE, LONG_TURN.as_nanos() as u64);
    assert_eq!((worker.rested(), worker.has_no_turns(PLACE)), (1, true));
}

/// Work for a resting user extends its rest, also if it ends the user's last connection.
#[test]
fn rests_add_up() {
    let (mut worker, client) = slow_worker();
    worker.sweep_all();
    let (first_ns, number) = worker.resting.first().unwrap();
    worker.clients.served(PLACE).unwrap().ring = RingState::Asleep;
    worker.handle_doorbell(PLACE);
    assert_eq!(worker.resting.first(), Some((first_ns + REST_MAX.as_nanos() as u64, number)));
    drop(client);
    worker.for_client(PLACE, |worker, slot| {
        worker.leave(slot);
        while worker.clients.get(slot).is_some() {
            worker.tear_down(slot, ROUND_UNITS);
        }
    });
    assert!(worker.clients.is_empty());
    assert_eq!(worker.resting.first(), Some((first_ns + 2 * REST_MAX.as_nanos() as u64, number)));
    let again = worker.enter_user(worker.shared.host.payer_of(&USER).user).unwrap();
    assert!(worker.schedule.is_suspended(again));
}

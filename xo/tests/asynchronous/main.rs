//! Operations as futures, under several runtimes, over the loopback and over TCP.

// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use nlx::{AsyncMachine, Buffer, Domain, EndPoint, NodeConfig, Op, OpId, Stop};
use nlx_testkit::buffers::pattern;
use nlx_testkit::until;

#[path = "../support/helper.rs"]
mod helper;

mod ending;
mod large;
mod messages;
mod operations;
mod pooled;
mod wakers;

/// A wait that takes longer is considered hung.
const HUNG: Option<Duration> = Some(Duration::from_secs(60));

/// Two machines that reach each other.
struct Pair {
    a: End,
    b: End,
}

struct End {
    domain: Domain,
    machine: AsyncMachine,
}

impl Pair {
    fn over_loopback() -> Pair {
        let domain = helper::domain(module_path!(), &NodeConfig::new());
        let end = || End {
            domain: domain.clone(),
            machine: domain.machine().start_async("0@lo:12345:31:*").unwrap(),
        };
        Pair { a: end(), b: end() }
    }

    /// Two nodes on addresses of this test only, and on a port that was free just before.
    fn over_tcp(test: u8) -> Pair {
        let nids = [1, 2].map(|host| format!("127.67.{test}.{host}"));
        let port = std::net::TcpListener::bind((nids[0].as_str(), 0)).unwrap().local_addr().unwrap().port();
        let end = |nid: &str| {
            let config = NodeConfig::new().net(&format!("tcp({nid})")).unwrap().accept_port(port);
            let domain = Domain::in_process(&config).unwrap();
            let machine = domain.machine().start_async(&format!("{nid}@tcp:12345:31:1")).unwrap();
            End { domain, machine }
        };
        Pair { a: end(&nids[0]), b: end(&nids[1]) }
    }

    fn to_b(&self) -> EndPoint {
        self.a.machine.end_point(&self.b.machine.address().to_string()).unwrap()
    }
}

impl End {
    fn empty(&self, bytes: usize) -> Buffer {
        self.domain.allocate(bytes).unwrap()
    }

    fn filled(&self, bytes: &[u8]) -> Buffer {
        let mut buffer = self.empty(bytes.len());
        buffer.write().unwrap().copy_from_slice(bytes);
        buffer
    }

    fn post(&self) -> OpId {
        self.machine.post(Op::receive(self.empty(4096))).unwrap().op
    }
}

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end: a minimal executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Polls a future once.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

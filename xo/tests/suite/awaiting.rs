//! Operations as futures, on every network.

use nlx::{AsyncMachine, Domain, Errno, Op, Queue, Stop, TmState};

use super::world;
use crate::bed::*;

const LENGTH: usize = 1000;

/// An asynchronous transfer machine and its domain.
struct Awaited {
    machine: AsyncMachine,
    domain: Domain,
}

impl Awaited {
    fn on(world: &World, place: usize) -> Awaited {
        let domain = world.domain(place);
        Awaited { machine: domain.machine().start_async(&wanted(world, place, "*")).unwrap(), domain }
    }

    fn empty(&self) -> nlx::Buffer {
        self.domain.allocate(LENGTH).unwrap()
    }

    fn filled(&self) -> nlx::Buffer {
        let mut buffer = self.empty();
        buffer.write().unwrap().copy_from_slice(&pattern(0, LENGTH));
        buffer
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// An operation of each queue succeeds, and its future with it.
// Covers: MT-102, MT-173, X-15
#[test]
fn an_operation_of_each_queue_is_awaited() {
    let world = world().with_threads();
    let [a, b] = [0, 1].map(|place| Awaited::on(&world, place));
    b.machine.post(Op::receive(b.empty()).timeout(HUNG)).unwrap();
    let to = a.machine.end_point(&b.machine.address().to_string()).unwrap();
    let offered = b.machine.start(Op::passive_receive(b.empty()).timeout(HUNG));
    let receives = offered.offer().clone();
    let shown = b.machine.start(Op::passive_send(b.filled()).timeout(HUNG));
    let sends = shown.offer().clone();
    let sent = a.machine.start(Op::send(a.filled(), &to).timeout(HUNG));
    let written = a.machine.start(Op::active_send(a.filled(), &receives).timeout(HUNG));
    let read = a.machine.start(Op::active_receive(a.empty(), &sends).timeout(HUNG));
    block_on(async {
        assert_eq!(b.machine.next_message().await.unwrap().message[..], pattern(0, LENGTH)[..]);
        for completion in [sent, written, shown, offered, read] {
            let completed = completion.await.unwrap();
            assert_eq!((completed.length, completed.buffer.read().unwrap().len()), (LENGTH, LENGTH));
            assert_eq!(completed.buffer.read().unwrap()[..], pattern(0, LENGTH)[..]);
        }
    });
}

/// A stop with operations of all queues in flight ends every future, with its buffer.
// Covers: MT-238
#[test]
fn a_stop_ends_every_future() {
    let world = world().with_threads();
    let [a, b] = [0, 1].map(|place| Awaited::on(&world, place));
    let offered = b.machine.start(Op::passive_receive(b.empty()));
    let receives = offered.offer().clone();
    let shown = b.machine.start(Op::passive_send(b.empty()));
    let sends = shown.offer().clone();
    assert!(offered.cancel() && shown.cancel());
    let gone =
        |ended: Result<_, nlx::Failed>| assert_eq!(ended.map(|_| ()).unwrap_err().errno(), Errno::ECANCELED);
    block_on(async {
        gone(offered.await);
        gone(shown.await);
    });
    let to = a.machine.end_point(&b.machine.address().to_string()).unwrap();
    a.machine.post(Op::receive(a.empty())).unwrap();
    let passive =
        [a.machine.start(Op::passive_receive(a.empty())), a.machine.start(Op::passive_send(a.empty()))];
    let active = [
        a.machine.start(Op::active_receive(a.empty(), &sends)),
        a.machine.start(Op::active_send(a.empty(), &receives)),
        a.machine.start(Op::send(a.empty(), &to).length(LENGTH)),
    ];
    block_on(async {
        a.machine.stop(Stop::Abort, HUNG).await.unwrap();
        for completion in passive {
            let failed = completion.await.map(|_| ()).unwrap_err();
            assert_eq!(
                (failed.errno(), failed.buffer.map(|buffer| buffer.len())),
                (Errno::ECANCELED, Some(LENGTH))
            );
        }
        for completion in active {
            // Sends may have left, and active operations may have been refused.
            if let Err(failed) = completion.await {
                let errno = failed.errno();
                assert!(
                    matches!(errno, Errno::ECANCELED | Errno::ENODATA) && failed.buffer.is_some(),
                    "{errno}"
                );
            }
        }
        assert_eq!(a.machine.next_message().await.map(|_| ()).unwrap_err().errno(), Errno::ECANCELED);
        assert_eq!(a.machine.next_message().await.map(|_| ()).unwrap_err().errno(), Errno::ESHUTDOWN);
    });
    assert_eq!((a.machine.state(), a.machine.in_flight()), (TmState::Stopped, 0));
    assert_eq!(a.machine.statistics()[Queue::MessageReceive.index()].cancels, 1);
}

//! Several machines of one node: their events are handled at the same time.

use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};

use nlx::{Errno, Stop};

use super::world;
use crate::bed::*;

/// The number of machines: the largest number of partitions.
const MACHINES: usize = 4;

/// A barrier that counts: `join` blocks until all machines' threads are in it.
#[derive(Default)]
struct Rendezvous {
    there: Mutex<usize>,
    met: Condvar,
}

impl Rendezvous {
    /// Blocks until all machines' threads are in the barrier. Returns their number, which is
    /// smaller if the wait times out.
    fn join(&self) -> usize {
        let mut there = self.there.lock().unwrap();
        *there += 1;
        self.met.notify_all();
        let missing = |there: &mut usize| *there < MACHINES;
        *self.met.wait_timeout_while(there, HUNG.unwrap(), missing).unwrap().0
    }
}

/// Each machine gets a message, and no thread that handles one goes on until all do: so none blocks
/// another machine's message or event. The messages handled here have been delivered, by few
/// threads or many; `at_once` counts those.
#[test]
fn messages_of_several_machines_are_handled_at_once() {
    let world = world().with_threads();
    let client = Side::on(&world, 0, "*");
    let (rendezvous, (tx, rx)) = (Arc::new(Rendezvous::default()), channel());
    let machines: Vec<Side> = (0..MACHINES)
        .map(|_| {
            if !world.is_called() {
                return Side::on(&world, 1, "*");
            }
            let (domain, rendezvous, tx) = (world.domain(1), rendezvous.clone(), tx.clone());
            let builder = domain.machine().callbacks(move |_, event| {
                if event.message.is_some() {
                    let _ = tx.send(rendezvous.join());
                }
            });
            let tm = builder.start(&wanted(&world, 1, "*")).unwrap();
            Side::of(tm, domain)
        })
        .collect();
    for machine in &machines {
        machine.receive_one(8);
        client.send(machine, b"come");
    }
    std::thread::scope(|scope| {
        if !world.is_called() {
            for machine in &machines {
                let (tm, rendezvous, tx) = (&machine.tm, &rendezvous, tx.clone());
                scope.spawn(move || {
                    let event = tm.wait(HUNG).unwrap().expect("it hangs");
                    assert_eq!(
                        (event.status, event.message.as_deref()),
                        (Ok::<(), Errno>(()), Some(&b"come"[..]))
                    );
                    tx.send(rendezvous.join()).unwrap();
                });
            }
        }
        for _ in &machines {
            assert_eq!(rx.recv_timeout(2 * HUNG.unwrap()), Ok(MACHINES), "those who were there at a time");
        }
    });
    for _ in &machines {
        assert_eq!(client.next().status, Ok(()));
    }
    machines.into_iter().for_each(|machine| machine.tm.stop(Stop::Abort, HUNG).unwrap());
}

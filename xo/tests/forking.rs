//! A child that is forked while the network runs does not disturb its parent's domain
//! (motr-transport 7.3).
#![cfg(feature = "in-process")]
// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork};
use nlx::{
    Batch, Buffer, BufferPoolOptions, Colour, Domain, EndPoint, Errno, Error, Event, Machine, Message,
    NodeConfig, Op, PoolCounts, Provision, Queue, RegionError, Stop, TmOptions, TmState, TransferMachine,
};

/// A child that takes longer is considered hung.
const HUNG_SECONDS: u32 = 60;

/// Runs `check` in a forked child, which exits as programs do; fails if it returns false, panics,
/// or hangs.
fn in_a_child(check: impl FnOnce() -> bool) {
    // SAFETY: only this thread exists in the child. It takes no lock that another thread of this
    // program could have held (which is what the test checks), except the allocator's, which the C
    // library makes usable in a child.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
        ForkResult::Child => {
            alarm::set(HUNG_SECONDS);
            let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
            std::process::exit(if held.unwrap_or(false) { 0 } else { 1 });
        }
    }
}

/// Two nodes over TCP: a client that waits, with posted buffers, and a server that answers in its
/// callback.
struct World {
    client: TransferMachine,
    /// The server's end point at the client.
    to: EndPoint,
    /// In flight while the machine exists.
    _server: TransferMachine,
    domain: Domain,
    idle: Buffer,
    large: Buffer,
    /// Lent out of a buffer that is still posted.
    message: Message,
}

fn node(address: &str, port: u16) -> Domain {
    let text = format!("options lnet networks=tcp({address}) accept_port={port}");
    Domain::from_text(&text).unwrap()
}

impl World {
    /// On a separate port, and on the addresses 127.0.0.`host` and the next one.
    fn new(port: u16, host: u8) -> World {
        let [own, peer] = [host, host + 1].map(|host| format!("127.0.0.{host}"));
        let (domain, other) = (node(&own, port), node(&peer, port));
        let echo = other.clone();
        let server = other.machine().callbacks(move |machine, event: Event| {
            if let (Some(message), Some(sender)) = (&event.message, &event.sender) {
                let answer = echo.buffer_of(message).unwrap();
                machine.start(Op::send(answer, sender).length(message.len())).unwrap();
            }
            post_again(&echo, machine, &event);
        });
        let server = server.start(&format!("{peer}@tcp:12345:31:1")).unwrap();
        for _ in 0..16 {
            server
                .start(Op::receive(other.allocate(4096).unwrap()).min_receive_size(64).max_messages(16))
                .unwrap();
        }
        let client = domain.transfer_machine(&format!("{own}@tcp:12345:31:1"), TmOptions::default()).unwrap();
        for _ in 0..16 {
            client
                .start(Op::receive(domain.allocate(4096).unwrap()).min_receive_size(64).max_messages(16))
                .unwrap();
        }
        let (idle, large) = (domain.allocate(64).unwrap(), domain.allocate(4 << 20).unwrap());
        let to = client.end_point(&server.address().to_string()).unwrap();
        let message = echo_of(&domain, &client, &to, b"before");
        World { client, to, _server: server, domain, idle, large, message }
    }
}

/// Posts a new buffer after an event that returned one.
fn post_again(domain: &Domain, tm: &Machine, event: &Event) {
    if event.queue == Queue::MessageReceive && event.is_last() {
        tm.start(Op::receive(domain.allocate(4096).unwrap()).min_receive_size(64).max_messages(16)).unwrap();
    }
}

/// Sends a message, and waits for the answer.
fn echo_of(domain: &Domain, client: &TransferMachine, to: &EndPoint, bytes: &[u8]) -> Message {
    client.start(Op::send(domain.buffer_of(bytes).unwrap(), to)).unwrap();
    loop {
        let event = client.wait(None).unwrap().expect("a wait without end brings an event");
        assert_eq!(event.status, Ok(()));
        post_again(domain, client, &event);
        if let Some(message) = event.message {
            assert_eq!(&message[..], bytes);
            return message;
        }
    }
}

/// Makes every call on the objects that the child has inherited.
fn everything_is_refused(world: World, parent: u32) -> bool {
    let World { client: tm, to, domain, idle, mut large, message, _server: server } = world;
    let forked = Error::Forked { process: parent };
    let memory = Error::Memory(RegionError::Forked { process: parent });
    let refused = |error: Option<Error>| error.as_ref() == Some(&forked) && forked.errno() == Errno::ESTALE;
    let now = Some(Duration::ZERO);
    assert!(refused(domain.allocate(64).err()) && refused(domain.allocate(4 << 20).err()));
    assert!(refused(domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).err()));
    assert!(refused(domain.machine().callbacks(|_, _| {}).start("0@lo:12345:31:*").err()));
    assert!(domain.nids().is_empty());
    assert_eq!(idle.read().err().as_ref(), Some(&memory));
    assert_eq!(large.write().err().as_ref(), Some(&memory));
    assert!(message.is_empty(), "its bytes are not shown");
    assert!(refused(tm.wait(now).err()) && refused(tm.wait(None).err()));
    assert!(refused(tm.poll().err()) && refused(tm.take().err()));
    assert!(refused(tm.arm().err()) && refused(tm.descriptor().err()));
    assert!(refused(tm.stop(Stop::Abort, None).err()) && refused(server.stop(Stop::Drain, None).err()));
    assert!(refused(tm.end_point(&to.to_string()).err()));
    assert_eq!((tm.state(), tm.in_flight(), tm.pending()), (TmState::Failed, 0, false));
    assert_eq!((tm.statistics(), tm.end_points()), (Default::default(), 0));
    let back = tm.start(Op::receive(idle).min_receive_size(64).max_messages(16)).unwrap_err();
    assert_eq!(back.error, forked);
    let back = tm.start(Op::send(back.buffer, tm.own_end_point()).length(5)).unwrap_err();
    assert_eq!(back.error, forked);
    let back = tm.start(Op::passive_receive(back.buffer)).unwrap_err();
    assert_eq!(back.error, forked);
    let back = tm.start(Op::passive_receive(back.buffer).length(1)).unwrap_err();
    assert_eq!(back.error, forked);
    let mut batch = Batch::new();
    batch.push(Op::send(back.buffer, tm.own_end_point()).length(5));
    let outcomes: Vec<_> = tm.submit(&mut batch).collect();
    assert!(matches!(&outcomes[..], [Err(back)] if back.error == forked));
    // Over a helper there is no node.
    if let Some(node) = domain.node() {
        assert_eq!(node.remove_ni(tm.address().nid).unwrap_err().errno(), Errno::ESTALE);
        node.shutdown(Duration::from_secs(1));
    }
    assert!(!format!("{tm:?} {domain:?} {large:?}").is_empty());
    true
}

#[test]
fn a_child_can_do_nothing_and_its_parent_goes_on() {
    let mut world = Some(World::new(21_311, 21));
    let parent = std::process::id();
    for _ in 0..3 {
        in_a_child(|| everything_is_refused(world.take().unwrap(), parent));
        // The old message is unchanged, because no message was received into the whole buffer
        // since.
        let World { client, to, domain, message, .. } = world.as_ref().unwrap();
        assert_eq!(&message[..], b"before");
        assert_eq!(&echo_of(domain, client, to, b"after")[..], b"after");
    }
    let World { client, _server: server, idle, mut large, .. } = world.unwrap();
    idle.read().unwrap();
    large.write().unwrap().fill(1);
    client.stop(Stop::Abort, None).unwrap();
    server.stop(Stop::Abort, None).unwrap();
}

#[test]
fn traffic_goes_on_while_children_come_and_go() {
    let World { client, to, domain, _server: server, .. } = World::new(21_312, 23);
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let children = scope.spawn(|| {
            (0..10).for_each(|_| in_a_child(|| true));
            drop(done);
        });
        while is_done.try_recv() == Err(mpsc::TryRecvError::Empty) {
            echo_of(&domain, &client, &to, b"again");
        }
        children.join().unwrap();
    });
    server.stop(Stop::Abort, None).unwrap();
}

#[test]
fn a_child_may_open_a_domain_of_its_own() {
    let inherited = Domain::in_process(&NodeConfig::new()).unwrap();
    in_a_child(|| {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default()).unwrap();
        tm.start(Op::receive(domain.allocate(64).unwrap()).min_receive_size(64).max_messages(16))
            .unwrap_or_else(|_| unreachable!());
        tm.start(Op::send(domain.buffer_of(b"hello").unwrap(), tm.own_end_point())).unwrap();
        let first = tm.wait(None).unwrap().unwrap();
        let second = tm.wait(None).unwrap().unwrap();
        drop(inherited.clone());
        first.status.is_ok() && second.status.is_ok()
    });
}

/// Buffers of a pool, messages in them, and machines that use it: objects that a child drops stay
/// the parent's, even if another thread was in the pool during the fork.
#[test]
fn a_child_leaves_pools_alone() {
    let domain = Domain::in_process(&NodeConfig::new()).unwrap();
    let pool = domain.pool(BufferPoolOptions::new(64).colours(1)).unwrap();
    pool.provision(8).unwrap();
    let provision = Provision { min_receive_size: 64, max_messages: 1, buffers: 2, colour: Colour::Of(0) };
    let tm = domain.machine().pool(&pool, provision).start("0@lo:12345:31:1").unwrap();
    tm.start(Op::send(domain.buffer_of(b"hello").unwrap(), tm.own_end_point())).unwrap();
    let events = [0; 2].map(|_| tm.wait(None).unwrap().unwrap());
    let mut events = Some(events);
    let forked = Error::Forked { process: std::process::id() };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let user = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                tm.set_provision(3).unwrap();
                drop(pool.get(Colour::Of(0)).unwrap());
            }
        });
        for message_first in [true, false].repeat(10) {
            in_a_child(|| {
                for mut event in events.take().unwrap() {
                    let (message, buffer) = (event.message.take(), event.buffer.take());
                    let [first, second]: [Box<dyn FnOnce()>; 2] =
                        [Box::new(|| drop(message)), Box::new(|| drop(buffer.map(Buffer::leave_pool)))];
                    if message_first {
                        (first(), second())
                    } else {
                        (second(), first())
                    };
                }
                tm.set_provision(4) == Err(forked.clone())
                    && tm.set_colour(Colour::Any) == Err(forked.clone())
                    && tm.colour() == Colour::Any
                    && pool.get(Colour::Any).map(drop) == Err(forked.clone())
                    && pool.provision(1) == Err(forked.clone())
                    && !pool.prune()
            });
        }
        done.store(true, Ordering::Relaxed);
        user.join().unwrap();
    });
    assert_eq!(pool.counts(), PoolCounts { free: 4, total: 8 });
    drop(events);
    assert_eq!(pool.counts(), PoolCounts { free: 5, total: 8 });
}

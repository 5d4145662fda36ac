//! A session: its calls fail one at a time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use lnet_api::MdHandle;
use lnet_fake::{FakeDrive, FakeLnet};
use nlx_bev_cqueue::{Consumer, Producer, SharedMemory};
use nlx_core::{
    BufferEvent, BufferHandle, Descriptor, Errno, MatchCounter, Operation, OperationKind, PassiveBuffer,
    Queue, TmId, match_bits,
};
use nlx_driver_proto::{Entry, Hello, PACKET_MAX, Refusal, Reply, Request, Segment, StartTm, Submission};
use nlx_helper::accounts::{AccountsConfig, Resource};
use nlx_helper::{Credentials, Host, HostConfig, ReplyPacket, Session};

use super::{Calm, FAILED, is_clean, starving};

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// ENOMEM, in the reply or in the last event.
    NoMemory,
}

const USER: Credentials = Credentials { pid: 2, uid: 1000, gid: 1000 };

/// A client and its session. The client's own allocations never fail.
struct World {
    lnet: Arc<FakeLnet>,
    host: Arc<Host>,
    session: Session,
    answer: ReplyPacket,
    ring: Option<Producer<Submission, SharedMemory>>,
    events: Option<Consumer<BufferEvent, SharedMemory>>,
    tm: u64,
    arena: u32,
    /// Allocations until one fails.
    left: Option<usize>,
    outcomes: Vec<(String, Outcome)>,
}

impl World {
    fn host() -> (Arc<FakeLnet>, Arc<Host>) {
        let lnet = FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]);
        let accounts = AccountsConfig::default().with_capacity(Resource::Machines, 1_000);
        let config = HostConfig { accounts, ..HostConfig::default() };
        (lnet.clone(), Host::new(Arc::new(Calm(lnet)), FakeDrive::new(), config))
    }

    /// Returns `None` without memory for a session.
    fn new(mut left: Option<usize>) -> (Arc<Host>, Option<World>) {
        let (lnet, host) = World::host();
        let session = match starving(&mut left, || Session::new(&host, USER)) {
            Ok(session) => session,
            Err(refusal) => {
                assert_eq!(refusal.errno, Errno::ENOMEM);
                return (host, None);
            }
        };
        let world = World {
            lnet,
            host: host.clone(),
            session,
            answer: ReplyPacket::default(),
            ring: None,
            events: None,
            tm: 0,
            arena: 0,
            left,
            outcomes: Vec::new(),
        };
        (host, Some(world))
    }

    /// Sends a request, and returns its reply if it was carried out. `Err`: the client is cut off,
    /// because there is no memory for an answer.
    fn ask(&mut self, request: &Request) -> Result<Option<(Reply, Vec<OwnedFd>)>, ()> {
        let mut packet = Vec::new();
        request.write(7, &mut packet);
        let World { session, answer, left, .. } = self;
        let asked = starving(left, || session.request(&packet, answer));
        if let Err(violation) = asked {
            assert_eq!(violation.errno(), Errno::ENOMEM, "{violation}");
            return Err(());
        }
        assert!(answer.packet.len() <= PACKET_MAX);
        let (_, reply) = Reply::read(&answer.packet).unwrap();
        let outcome = match reply {
            Reply::Refused(Refusal { errno, .. }) => {
                assert_eq!(errno, Errno::ENOMEM, "{request:?}: {reply:?}");
                assert!(answer.fds.is_empty());
                Outcome::NoMemory
            }
            _ => Outcome::Done,
        };
        self.outcomes.push((format!("{request:?}"), outcome));
        Ok((outcome == Outcome::Done).then(|| (reply, self.answer.take_fds().unwrap())))
    }

    fn drain(&mut self) {
        let World { session, left, .. } = self;
        starving(left, || session.drain(100)).unwrap();
    }

    fn push(&mut self, entry: &Entry) {
        self.ring.as_mut().unwrap().push(entry.write()).unwrap();
        self.drain();
    }

    fn register(&mut self, place: u64) -> BufferHandle {
        let buffer = BufferHandle(1 << 32 | place);
        let segment = Segment { arena: self.arena, offset: 64 * place, length: 64 };
        let before = self.host.status().clients[0].buffers;
        self.push(&Entry::Register { buffer, segment });
        let is_there = self.host.status().clients[0].buffers > before;
        let outcome = if is_there { Outcome::Done } else { Outcome::NoMemory };
        self.outcomes.push((format!("register {place}"), outcome));
        buffer
    }

    /// Submits an operation, and records whether it is in flight. A refused one ends with an event
    /// that has the reason: no memory, or no buffer.
    fn operate(&mut self, buffer: BufferHandle, kind: OperationKind, counter: u64) {
        let Some(events) = &mut self.events else { return };
        events.provision(kind.events_max()).unwrap();
        let counter = MatchCounter::new(counter).unwrap();
        let operation = Operation { buffer, cookie: buffer.0, kind };
        let words = format!("{kind:?}");
        self.push(&Entry::Operate { tm: self.tm, operation, counter });
        let outcome = match self.events.as_mut().unwrap().pop() {
            Ok(event) => {
                let errno = event.status().unwrap_err();
                assert!([Errno::ENOMEM, Errno::ENOENT].contains(&errno), "{words}: {errno}");
                assert!(event.unlinked() && event.buffer() == buffer);
                Outcome::NoMemory
            }
            Err(_) => Outcome::Done,
        };
        self.outcomes.push((words, outcome));
    }

    /// Requests everything that a client can, as far as there is memory. `Err`: it is cut off.
    fn script(&mut self) -> Result<(), ()> {
        let Some((_, fds)) = self.ask(&Request::Hello(Hello::new("starving")))? else {
            return Ok(());
        };
        let [ring, _doorbell] = fds.try_into().unwrap();
        self.ring = Some(Producer::new(SharedMemory::attach(ring).unwrap()).unwrap());
        let mut has_memory = false;
        if let Some((Reply::Arena { arena, .. }, fds)) =
            self.ask(&Request::CreateArena { bytes: 1 << 16, huge: false, near: None })?
        {
            self.arena = arena;
            lnet_region::seal(fds[0].as_fd()).unwrap();
            has_memory = true;
        }
        let address = "10.0.0.1@tcp:12345:40:*".parse().unwrap();
        let start = Request::StartTm(StartTm { address, events_max: 64, lazy: false });
        if let Some((Reply::Started { tm, .. }, fds)) = self.ask(&start)? {
            self.tm = tm;
            let memory = SharedMemory::attach(fds.into_iter().next().unwrap()).unwrap();
            self.events = Some(Consumer::new(memory).unwrap());
            self.ask(&Request::TmDescriptor { tm })?;
            self.ask(&Request::TmDescriptor { tm })?;
        }
        if has_memory {
            self.operations()?;
        }
        self.ask(&Request::Sync)?;
        self.ask(&Request::Nids)?;
        if let Some((Reply::Started { tm, .. }, _)) = self.ask(&start)? {
            self.ask(&Request::StopTm { tm })?;
        }
        Ok(())
    }

    fn operations(&mut self) -> Result<(), ()> {
        let peer = "10.0.0.9@tcp:12345:40:9".parse().unwrap();
        let described = |queue| {
            let bits = match_bits(TmId::new(9).unwrap(), MatchCounter::FIRST);
            Descriptor::encode(&PassiveBuffer { address: peer, match_bits: bits, queue, length: 64 }).unwrap()
        };
        let kinds = [
            OperationKind::Receive { min_receive_size: 8, max_messages: 4 },
            OperationKind::PassiveReceive,
            OperationKind::PassiveSend { length: 64 },
            OperationKind::Send { length: 64, to: peer },
            OperationKind::ActiveSend { descriptor: described(Queue::PassiveBulkReceive), length: 64 },
            OperationKind::ActiveReceive { descriptor: described(Queue::PassiveBulkSend) },
        ];
        for (place, kind) in (0..).zip(kinds) {
            let buffer = self.register(place);
            self.operate(buffer, kind, if kind.queue().is_passive() { place + 1 } else { 0 });
        }
        let segments = |count| vec![Segment { arena: self.arena, offset: 0, length: 8 }; count];
        let several = Request::Register { buffer: 1 << 32 | 700, segments: segments(100) };
        self.ask(&several)?;
        let buffer = BufferHandle(1 << 32 | 1);
        self.push(&Entry::Cancel { tm: self.tm, buffer, cookie: buffer.0 });
        if let Some(events) = &mut self.events {
            while events.pop().is_ok() {}
        }
        self.push(&Entry::Deregister { buffer });
        self.drain();
        let World { session, left, .. } = self;
        starving(left, || session.trim());
        Ok(())
    }

    /// Ends the client, with everything that it has: that needs no memory at all.
    fn close(self) {
        let World { lnet, host, session, .. } = self;
        let mut none = Some(0);
        let failed = FAILED.get();
        let departure = starving(&mut none, || session.close());
        assert_eq!((none, FAILED.get()), (Some(0), failed), "closing allocates");
        // The fake's notes hold the memory, too, and the sending operations are not over yet.
        lnet.take_calls();
        let mut ends =
            [lnet_fake::ScriptedEvent::send(), lnet_fake::ScriptedEvent::reply()].map(|end| end.last());
        for md in (0..100).map(MdHandle).filter(|&md| lnet.has_md(md)) {
            let end = ends.iter_mut().find(|end| lnet.could_happen(md, &**end).is_ok()).unwrap();
            lnet.inject(md, &*end);
        }
        assert!(departure.is_over(), "{departure:?}");
        drop(departure);
        is_clean(&host);
        lnet.assert_quiet();
    }
}

#[test]
fn every_failure_is_the_clients_own() {
    let (mut most, mut unnoticed) = (0, 0);
    for number in 0.. {
        FAILED.set(0);
        let (host, world) = World::new(Some(number));
        let Some(mut world) = world else {
            assert_eq!(FAILED.get(), 1);
            is_clean(&host);
            continue;
        };
        let cut_off = world.script().is_err();
        let failed = FAILED.get();
        let refused = world.outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::NoMemory).count();
        if failed == 0 {
            assert!(refused == 0 && !cut_off, "{:?}", world.outcomes);
            world.close();
            break;
        }
        unnoticed += usize::from(refused == 0 && !cut_off);
        world.close();
        most = number;
    }
    // A region without room for its first leases allocates it with the first of them.
    let regions = 3;
    assert!(unnoticed <= regions * 4, "{unnoticed} of {most} failures were not told to the client");
    assert!(most > 40, "only {most} allocations could fail");
}

/// After a refusal the same client does everything, once there is memory again.
#[test]
fn what_was_refused_works_later() {
    for number in 0.. {
        FAILED.set(0);
        let (_, Some(mut world)) = World::new(None) else { panic!("there is memory") };
        world.left = Some(number);
        let cut_off = world.script().is_err();
        let failed = FAILED.get();
        if failed == 0 {
            world.close();
            break;
        }
        if !cut_off {
            world.left = None;
            let arena = Request::CreateArena { bytes: 4096, huge: false, near: None };
            if world.ring.is_none() {
                let hello = Request::Hello(Hello::new("again"));
                let (_, fds) = world.ask(&hello).unwrap().expect("there is memory");
                lnet_region::seal(fds[0].as_fd()).unwrap();
            }
            assert!(world.ask(&arena).unwrap().is_some());
        }
        world.close();
    }
}

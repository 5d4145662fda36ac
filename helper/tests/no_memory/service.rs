//! A service with its thread, sockets and a porter; a client at the other end of a socket makes
//! every kind of request.

use std::fs;
use std::io::{IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use lnet_api::{Clock, Drive, Tokens};
use lnet_fake::FakeLnet;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg, send,
    socket,
};
use nlx_bev_cqueue::{Consumer, Producer, SharedMemory};
use nlx_core::{BufferEvent, BufferHandle, Errno, MatchCounter, Operation, OperationKind};
use nlx_driver_proto::{Entry, Hello, PACKET_MAX, Refusal, Reply, Request, Segment, StartTm, Submission};
use nlx_helper::service::{self, AdmissionStatus, ServiceConfig, ServingThreads};
use nlx_helper::{Host, HostConfig};

use super::{Calm, NEVER, SERVES, SERVICE_FAILED, SERVICE_LEFT, is_clean};

/// A drive without shards, with the system's clock. Threads that read the clock are marked as the
/// service's.
struct Marking {
    start: Instant,
    tokens: Tokens,
    tester: std::thread::ThreadId,
}

impl Clock for Marking {
    fn now_ns(&self) -> u64 {
        if std::thread::current().id() != self.tester {
            SERVES.set(true);
        }
        self.start.elapsed().as_nanos() as u64
    }
}

impl Drive for Marking {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }
}

/// The service, and a directory with its socket.
struct World {
    folder: PathBuf,
    lnet: Arc<FakeLnet>,
    host: Arc<Host>,
    service: ServingThreads,
}

impl World {
    fn new(name: &str) -> World {
        let folder = std::env::temp_dir().join(format!("nlx-no-memory-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let lnet = FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]);
        let drive =
            Marking { start: Instant::now(), tokens: Tokens::new(0), tester: std::thread::current().id() };
        let host = Host::new(Arc::new(Calm(lnet.clone())), Arc::new(drive), HostConfig::default());
        let listener = service::bind(&folder.join("socket")).unwrap();
        let config = ServiceConfig { threads: 1, ..ServiceConfig::default() };
        let service = ServingThreads::start(host.clone(), listener, config).unwrap();
        World { folder, lnet, host, service }
    }

    fn connect(&self) -> Client {
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        connect(socket.as_raw_fd(), &UnixAddr::new(&self.folder.join("socket")).unwrap()).unwrap();
        Client { socket, lnet: self.lnet.clone(), ring: None, refused: 0 }
    }

    fn admission(&self) -> AdmissionStatus {
        self.service.admission_status()
    }

    /// Blocks until no client is connected, and nothing of any client is left.
    fn wait_until_clean(&self) {
        while self.admission().clients > 0 || self.host.sweep() || !self.host.accounts().held().is_zero() {
            // Complete the messages that a fake network was to send.
            let mut ends =
                [lnet_fake::ScriptedEvent::send(), lnet_fake::ScriptedEvent::reply()].map(|end| end.last());
            for md in (0..200).map(lnet_api::MdHandle).filter(|&md| self.lnet.has_md(md)) {
                if let Some(end) = ends.iter_mut().find(|end| self.lnet.could_happen(md, &**end).is_ok()) {
                    self.lnet.inject(md, &*end);
                }
            }
            self.lnet.take_calls();
            std::thread::yield_now();
        }
        is_clean(&self.host);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The error that the connection has ended.
#[derive(Debug)]
struct Ended;

struct Client {
    socket: OwnedFd,
    /// The fake LNet, whose notes hold references to the client's memory.
    lnet: Arc<FakeLnet>,
    ring: Option<(Producer<Submission, SharedMemory>, OwnedFd)>,
    /// Number of answers with ENOMEM.
    refused: usize,
}

impl Client {
    fn send(&self, request: &Request) -> Result<(), Ended> {
        let mut packet = Vec::new();
        request.write(7, &mut packet);
        match send(self.socket.as_raw_fd(), &packet, MsgFlags::MSG_NOSIGNAL) {
            Ok(_) => Ok(()),
            Err(Errno::EPIPE | Errno::ECONNRESET) => Err(Ended),
            Err(errno) => panic!("{request:?} cannot be sent: {errno}"),
        }
    }

    /// Receives the next answer: `None` means ENOMEM.
    fn receive(&mut self) -> Result<Option<(Reply, Vec<OwnedFd>)>, Ended> {
        // A client that is cut off sees its end once nothing holds its memory any more, including
        // the fake's notes.
        let mut seen = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        while poll(&mut seen, 10_u8) == Ok(0) {
            self.lnet.take_calls();
        }
        let mut packet = [0; PACKET_MAX];
        let mut bytes = [IoSliceMut::new(&mut packet)];
        let mut control = nix::cmsg_space!([std::os::fd::RawFd; 4]);
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let received = recvmsg::<()>(self.socket.as_raw_fd(), &mut bytes, Some(&mut control), flags);
        let Ok(received) = received else { return Err(Ended) };
        let mut fds = Vec::new();
        for message in received.cmsgs().unwrap() {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                // SAFETY: the system has just made them, for this process alone.
                fds.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        let length = received.bytes;
        if length == 0 {
            return Err(Ended);
        }
        match Reply::read(&packet[..length]).unwrap() {
            (7, Reply::Refused(Refusal { errno: Errno::ENOMEM, .. })) => {
                self.refused += 1;
                Ok(None)
            }
            (7, Reply::Refused(refusal)) => panic!("refused: {refusal:?}"),
            (7, reply) => Ok(Some((reply, fds))),
            (number, reply) => panic!("an answer to request {number}: {reply:?}"),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Option<(Reply, Vec<OwnedFd>)>, Ended> {
        self.send(request)?;
        self.receive()
    }

    fn push(&mut self, entry: &Entry) {
        if let Some((ring, doorbell)) = &mut self.ring {
            ring.push(entry.write()).unwrap();
            let mut bell = fs::File::from(doorbell.try_clone().unwrap());
            let _ = bell.write(&1_u64.to_ne_bytes());
        }
    }

    /// Makes the service do everything that a client can request, as far as there is memory.
    fn script(&mut self) -> Result<(), Ended> {
        let Some((_, fds)) = self.ask(&Request::Hello(Hello::new("starving")))? else {
            return Ok(());
        };
        let [ring, doorbell] = fds.try_into().unwrap();
        self.ring = Some((Producer::new(SharedMemory::attach(ring).unwrap()).unwrap(), doorbell));
        let created = self.ask(&Request::CreateArena { bytes: 1 << 16, huge: false, near: None })?;
        let Some((Reply::Arena { arena, .. }, fds)) = created else { return Ok(()) };
        lnet_region::seal(fds[0].as_fd()).unwrap();
        let address = "10.0.0.1@tcp:12345:40:*".parse().unwrap();
        let start = Request::StartTm(StartTm { address, events_max: 64, lazy: false });
        if let Some((Reply::Started { tm, .. }, fds)) = self.ask(&start)? {
            let memory = SharedMemory::attach(fds.into_iter().next().unwrap()).unwrap();
            let mut events = Consumer::<BufferEvent, _>::new(memory).unwrap();
            let segment = Segment { arena, offset: 0, length: 64 };
            let buffer = BufferHandle(1 << 32);
            let kind = OperationKind::PassiveReceive;
            events.provision(kind.events_max()).unwrap();
            self.push(&Entry::Register { buffer, segment });
            let operation = Operation { buffer, cookie: 5, kind };
            self.push(&Entry::Operate { tm, operation, counter: MatchCounter::FIRST });
            self.ask(&Request::Sync)?;
            self.ask(&Request::TmDescriptor { tm })?;
        }
        self.pile_up()?;
        // Leaves with an answer and descriptors that it has not received.
        self.send(&Request::CreateArena { bytes: 4096, huge: false, near: None })
    }

    /// Requests more answers than there is room for: one has to be kept.
    fn pile_up(&mut self) -> Result<(), Ended> {
        const PILE: usize = 60;
        for _ in 0..PILE {
            self.send(&Request::Sync)?;
        }
        (0..PILE).try_for_each(|_| self.receive().map(drop))
    }
}

/// With each allocation of the serving thread failing in turn, from the client's connection until
/// nothing is left of it: the client gets ENOMEM, or its connection ends; the next one finds no
/// trace of it.
#[test]
fn every_failure_of_the_service_is_the_clients_own() {
    let mut noticed_count = 0;
    let mut number = 0;
    loop {
        // A new service each time: the next client would find objects that the previous one has
        // made.
        let world = World::new("each");
        SERVICE_FAILED.store(0, Relaxed);
        SERVICE_LEFT.store(number, Relaxed);
        let mut client = world.connect();
        let ended = client.script().is_err();
        let noticed = ended || client.refused > 0;
        drop(client);
        world.wait_until_clean();
        SERVICE_LEFT.store(NEVER, Relaxed);
        let failed = SERVICE_FAILED.load(Relaxed);
        let mut honest = world.connect();
        honest.script().unwrap();
        assert_eq!(honest.refused, 0);
        drop(honest);
        world.wait_until_clean();
        if failed == 0 {
            assert!(!noticed, "there was memory for all");
            break;
        }
        noticed_count += usize::from(noticed);
        number += 1;
    }
    assert!(number > 60, "only {number} allocations could fail");
    assert!(2 * noticed_count > number, "{noticed_count} of {number} failures were told to the client");
}

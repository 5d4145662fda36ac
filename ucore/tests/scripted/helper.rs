//! A helper without a network: a script answers requests; operations are not carried out.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use lnet_region::Pages;
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, listen,
    recvmsg, sendmsg, socket,
};
use nlx_bev_cqueue::{Consumer, Producer, QueueMemory, QueueWord, SharedMemory};
use nlx_core::{BufferEvent, Limits, Nid, Region, TmId};
use nlx_driver_proto::{Entry, Features, PACKET_MAX, Reply, Request, Submission, VERSION, Welcome};
use nlx_sync::Waker;
pub(crate) use nlx_testkit::until;
use nlx_ucore::{HelperOptions, Ucore};
use parking_lot::Mutex;
use tempfile::TempDir;

/// The reaction to a request.
pub(crate) enum Answer {
    /// The answer of a correct helper.
    Right,
    Reply(Reply),
    /// This packet, with this number of descriptors.
    Packet(Vec<u8>, usize),
    /// No answer.
    Silence,
    /// The connection ends.
    End,
}

type Script = dyn FnMut(u64, &Request) -> Answer + Send;

/// The helper's half of an event queue, and its client's waker.
type EventQueue = (Producer<BufferEvent, SharedMemory>, Waker<QueueWord<SharedMemory>>);

/// The state of a client that tests use.
#[derive(Default)]
pub(crate) struct Seen {
    ring: Option<Consumer<Submission, SharedMemory>>,
    queues: Vec<EventQueue>,
    pub(crate) entries: Vec<Entry>,
    regions: Vec<Region>,
}

pub(crate) struct Helper {
    directory: TempDir,
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// Number of connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Serves connections one after the other, `connections` in all.
    pub(crate) fn start(
        connections: usize,
        mut script: impl FnMut(u64, &Request) -> Answer + Send + 'static,
    ) -> Helper {
        let directory = TempDir::new().unwrap();
        let listener =
            socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&directory.path().join("sock")).unwrap()).unwrap();
        listen(&listener, Backlog::new(8).unwrap()).unwrap();
        let (seen, count) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicUsize::new(0)));
        let (theirs, counted) = (seen.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            for _ in 0..connections {
                let client = accept(&listener);
                counted.fetch_add(1, Ordering::SeqCst);
                *theirs.lock() = Seen::default();
                while serve_one(&client, &theirs, &mut script) {}
            }
        });
        Helper { directory, seen, connections: count, thread: Some(thread) }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("sock")
    }

    pub(crate) fn options(&self) -> HelperOptions {
        HelperOptions::at(self.path()).arena_bytes(1 << 16)
    }

    pub(crate) fn client(&self) -> Arc<Ucore> {
        Ucore::connect(&self.options()).unwrap()
    }

    /// Returns the ring entries that have come so far.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut seen = self.seen.lock();
        seen.drain();
        seen.entries.clone()
    }

    /// Produces an event of the first transfer machine.
    pub(crate) fn push(&self, event: BufferEvent) {
        let mut seen = self.seen.lock();
        let (producer, waker) = &mut seen.queues[0];
        producer.push(event).unwrap();
        waker.wake().unwrap();
    }

    /// Overwrites the first slot of the first transfer machine's queue: it shows an event, and leads
    /// out of the queue.
    pub(crate) fn corrupt(&self) {
        /// Offset of a slot's stamp: the number of its event, and below it the index of the next.
        const STAMP_OFFSET: usize = 120;
        let slots = self.seen.lock().queues[0].0.memory().slots().as_ptr().addr();
        let memory = File::options().write(true).open("/proc/self/mem").unwrap();
        let stamp = (1u64 << 32 | u64::from(u32::MAX)).to_ne_bytes();
        memory.write_all_at(&stamp, (slots + STAMP_OFFSET) as u64).unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.thread.take().unwrap().join().unwrap();
        }
    }
}

impl Seen {
    fn drain(&mut self) {
        let Seen { ring, entries, .. } = self;
        while let Some(Ok(submission)) = ring.as_mut().map(Consumer::pop) {
            entries.push(submission.read().unwrap());
        }
    }

    /// Returns a correct helper's reply to a request, and its descriptors.
    fn answer(&mut self, request: &Request) -> (Reply, Vec<OwnedFd>) {
        match request {
            Request::Hello(_) => {
                let (memory, fd) = SharedMemory::create(8).unwrap();
                let mut ring = Consumer::new(memory).unwrap();
                ring.grow(6).unwrap();
                self.ring = Some(ring);
                (Reply::Welcome(welcome()), vec![fd, EventFd::new().unwrap().into()])
            }
            Request::CreateArena { bytes, .. } => {
                let region = Region::memfd(*bytes as usize, Pages::Normal).unwrap();
                let fd = region.share().unwrap().try_clone_to_owned().unwrap();
                self.regions.push(region);
                let arena = self.regions.len() as u32 - 1;
                (Reply::Arena { arena, bytes: *bytes, huge: false }, vec![fd])
            }
            Request::StartTm(start) => {
                let (memory, fd) = SharedMemory::create(start.events_max + 1).unwrap();
                let waker = Waker::futex(QueueWord::consumer(memory.clone()));
                self.queues.push((Producer::new(memory).unwrap(), waker));
                let address = start.address.with(start.address.tmid.unwrap_or(TmId::MAX));
                (Reply::Started { tm: self.queues.len() as u64, address, near: None }, vec![fd])
            }
            Request::Nids => (Reply::Nids(vec![Nid::LOOPBACK]), vec![]),
            Request::TmDescriptor { .. } => (Reply::Done, vec![EventFd::new().unwrap().into()]),
            _ => (Reply::Done, vec![]),
        }
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: VERSION,
        features: Features::empty(),
        client: 5,
        limits: Limits::LNET,
        tms_max: 10,
        operations_max: 1000,
        events_max: 1000,
        arenas_max: 10,
        bytes_max: 1 << 30,
        now_ns: 1,
        arena_bytes_max: 1 << 30,
    }
}

#[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
fn accept(listener: &OwnedFd) -> OwnedFd {
    use std::os::fd::FromRawFd;

    let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC).unwrap();
    // SAFETY: the system has just made it, and nothing else refers to it.
    unsafe { OwnedFd::from_raw_fd(accepted) }
}

/// Serves a request. Returns false at the end of the connection.
fn serve_one(client: &OwnedFd, seen: &Mutex<Seen>, script: &mut Script) -> bool {
    let mut packet = vec![0; PACKET_MAX];
    let received = {
        let mut parts = [IoSliceMut::new(&mut packet)];
        // Descriptors that come along find no room, and are closed.
        recvmsg::<()>(client.as_raw_fd(), &mut parts, None, MsgFlags::empty()).map(|message| message.bytes)
    };
    let Ok(length @ 1..) = received else { return false };
    let (id, request) = Request::read(&packet[..length]).unwrap();
    seen.lock().drain();
    let (packet, fds) = match script(id, &request) {
        Answer::End => return false,
        Answer::Silence => return true,
        Answer::Packet(packet, count) => {
            (packet, (0..count).map(|_| EventFd::new().unwrap().into()).collect())
        }
        Answer::Reply(reply) => (written(&request, id, &reply), vec![]),
        Answer::Right => {
            let (reply, fds) = seen.lock().answer(&request);
            (written(&request, id, &reply), fds)
        }
    };
    let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(client.as_raw_fd(), &[IoSlice::new(&packet)], control, flags, None).is_ok()
}

pub(crate) fn written(request: &Request, id: u64, reply: &Reply) -> Vec<u8> {
    let mut packet = vec![];
    reply.write(request.kind() as u16, id, &mut packet);
    packet
}

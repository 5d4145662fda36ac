//! Services over a network in memory: many clients, few buffers.

use std::collections::VecDeque;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use lnet_region::Region;
use nlx_core::Descriptor;
use nlx_testkit::until;

use super::*;
use crate::PoolOptions;
use crate::pool::tests::Still;
use crate::transport::Access;

/// The number of clients, each of which sends one request.
const CLIENTS: u32 = 100_000;

/// Bytes of a request, and of a reply: the number of the client.
const LENGTH: usize = 4;

/// Memory that the service has posted for requests, with the part that requests fill.
struct Posted {
    at: Place,
    memory: IoVec,
    taken: u32,
    requests: u32,
}

/// What the network has done.
#[derive(Default)]
struct Traffic {
    /// The posted memory of each partition, oldest first.
    posted: Vec<VecDeque<Posted>>,
    /// Clients whose requests wait for memory, with the partition of the thread that received them.
    waiting: VecDeque<(usize, u32)>,
    /// The number of replies to each client.
    replies: Vec<u8>,
    /// Requests that arrived in memory of another partition.
    crossed: u64,
    /// Requests that found no memory.
    dropped: u64,
    /// Largest number of buffers that were posted at a time.
    posted_max: usize,
}

struct Network {
    events: OnceLock<Arc<dyn Events<u32>>>,
    traffic: Mutex<Traffic>,
    is_lazy: bool,
}

/// A service's end of it.
struct InMemory(Arc<Network>);

impl Network {
    fn new(partitions: usize, is_lazy: bool) -> Arc<Network> {
        let posted = (0..partitions).map(|_| VecDeque::new()).collect();
        let replies = vec![0; CLIENTS as usize];
        let traffic = Mutex::new(Traffic { posted, replies, ..Traffic::default() });
        Arc::new(Network { events: OnceLock::new(), traffic, is_lazy })
    }

    fn events(&self) -> &Arc<dyn Events<u32>> {
        self.events.get().unwrap()
    }

    /// A client's request arrives at a thread of a partition.
    fn send(&self, partition: usize, client: u32) {
        let mut traffic = self.traffic.lock();
        if !self.arrive(&mut traffic, partition, client) {
            if self.is_lazy {
                traffic.waiting.push_back((partition, client));
            } else {
                traffic.dropped += 1;
            }
        }
    }

    /// Writes a request into posted memory, of its own partition if that has some. Events come under
    /// the network's lock.
    fn arrive(&self, traffic: &mut Traffic, partition: usize, client: u32) -> bool {
        let count = traffic.posted.len();
        let mut all = (0..count).map(|step| (partition + step) % count);
        let Some(found) = all.find(|&of| !traffic.posted[of].is_empty()) else { return false };
        let Some(posted) = traffic.posted[found].front_mut() else { return false };
        let offset = posted.taken as usize * LENGTH;
        posted.memory.write(offset..offset + LENGTH).unwrap().copy_from(0, &client.to_le_bytes());
        posted.taken += 1;
        let (at, crossed) = (posted.at, found != partition);
        let is_full = posted.taken == posted.requests;
        let (from, length) = (client, LENGTH);
        self.events().arrived(
            at,
            ArrivedMessage { from, offset, length, sent_length: length, urgent: false, crossed },
        );
        traffic.crossed += u64::from(crossed);
        if is_full {
            traffic.posted[found].pop_front();
            self.events().released(at);
        }
        true
    }

    fn wake(&self, partitions: usize) {
        (0..partitions).for_each(|partition| self.events().wake(partition));
    }
}

impl Transport for InMemory {
    type Peer = u32;
    type Memory = IoVec;
    type Offer = Descriptor;
    type Operation = Place;

    fn open(&self, events: Arc<dyn Events<u32>>) -> Result<(), Errno> {
        self.0.events.set(events).map_err(|_| Errno::EBUSY)
    }

    fn close(&self) {}

    fn endpoints(&self) -> usize {
        1
    }

    fn allocate(&self, _: usize, bytes: usize) -> Result<IoVec, Errno> {
        Region::heap(bytes).map(IoVec::whole).map_err(|error| error.errno())
    }

    fn post(&self, posting: Posting<'_, IoVec>) -> Result<Place, Errno> {
        let Posting { at, memory, requests, .. } = posting;
        let mut traffic = self.0.traffic.lock();
        traffic.posted[at.partition].push_back(Posted { at, memory: memory.clone(), taken: 0, requests });
        let posted = traffic.posted.iter().map(VecDeque::len).sum();
        traffic.posted_max = traffic.posted_max.max(posted);
        while let Some((partition, client)) = traffic.waiting.pop_front() {
            if !self.0.arrive(&mut traffic, partition, client) {
                traffic.waiting.push_front((partition, client));
                break;
            }
        }
        let partitions = traffic.posted.len();
        drop(traffic);
        self.0.wake(partitions);
        Ok(at)
    }

    fn send(&self, at: Place, to: &u32, tag: u64, memory: IoVec, length: usize) -> Result<(), Errno> {
        let sent = memory.read(0..length).unwrap().to_vec();
        assert_eq!((tag, sent), (u64::from(*to), to.to_le_bytes().to_vec()));
        self.0.traffic.lock().replies[*to as usize] += 1;
        self.0.events().ended(at, Ok(length));
        Ok(())
    }

    fn push(&self, _: Place, _: &u32, _: Descriptor, _: IoVec, _: usize) -> Result<Option<Place>, Errno> {
        Err(Errno::ENOSYS)
    }

    fn pull(&self, _: Place, _: &u32, _: Descriptor, _: IoVec) -> Result<Option<Place>, Errno> {
        Err(Errno::ENOSYS)
    }

    fn offer(&self, _: Place, _: IoVec, _: Access) -> Result<(Place, Descriptor), Errno> {
        Err(Errno::ENOSYS)
    }

    fn cancel(&self, operation: Place) {
        let partition = operation.partition;
        let mut traffic = self.0.traffic.lock();
        let posted = &mut traffic.posted[partition];
        let Some(index) = posted.iter().position(|posted| posted.at == operation) else { return };
        posted.remove(index);
        drop(traffic);
        self.0.events().released(operation);
        self.0.events().wake(partition);
    }
}

/// Replies with the client's number. Waits inside while it is held.
struct Echo {
    held: Arc<Mutex<()>>,
    inside: Arc<AtomicUsize>,
}

impl Handler<InMemory> for Echo {
    type State = ();

    fn request(&self, request: Request<'_, InMemory, ()>) -> Next<Descriptor> {
        self.inside.fetch_add(1, Ordering::AcqRel);
        drop(self.held.lock());
        self.inside.fetch_sub(1, Ordering::AcqRel);
        request.reply[..LENGTH].copy_from_slice(request.bytes);
        Next::Reply { tag: u64::from(*request.from), length: LENGTH }
    }
}

/// A service of two partitions with a handler at a time in each.
struct Bed {
    network: Arc<Network>,
    service: Arc<Service<InMemory, Echo>>,
    pool: Pool,
    held: Arc<Mutex<()>>,
    inside: Arc<AtomicUsize>,
}

const PARTITIONS: usize = 2;

const OPTIONS: BufferOptions = BufferOptions {
    request_max: LENGTH,
    reply_max: LENGTH,
    requests_per_buffer: 16,
    buffers_min: 2,
    buffers_max: 8,
};

impl Bed {
    fn new(is_lazy: bool) -> Bed {
        let network = Network::new(PARTITIONS, is_lazy);
        let options = PoolOptions { threads_min: 1, threads_max: 1, ..PoolOptions::default() };
        let pool = Pool::start("simulated", Still(Instant::now()), PARTITIONS, options).unwrap();
        let (held, inside): (Arc<Mutex<()>>, Arc<AtomicUsize>) = Default::default();
        let echo = Echo { held: held.clone(), inside: inside.clone() };
        let service = Service::start(&pool, InMemory(network.clone()), OPTIONS, echo).unwrap();
        Bed { network, service, pool, held, inside }
    }

    fn sum(&self, of: fn(&ServiceCounters) -> u64) -> u64 {
        self.service.counters().iter().map(of).sum()
    }

    /// Checks that the service has answered all requests that arrived, once each.
    fn check_answers(&self) {
        let arrived = self.sum(|counters| counters.requests);
        until("all are answered", || self.sum(|counters| counters.replies) == arrived);
        let traffic = self.network.traffic.lock();
        assert!(traffic.replies.iter().all(|replies| *replies <= 1));
        let answered = traffic.replies.iter().filter(|replies| **replies == 1).count() as u64;
        assert_eq!(answered, arrived);
        assert_eq!(arrived + traffic.dropped, u64::from(CLIENTS));
        assert_eq!(self.sum(|counters| counters.crossed), traffic.crossed);
    }

    /// Checks that memory was bounded: buffers, and items in the pool's queues, never more than one
    /// for each request that the buffers take, and for each buffer.
    fn check_memory(&self) {
        let buffers = u64::from(OPTIONS.buffers_max);
        assert!(self.network.traffic.lock().posted_max as u64 <= buffers * PARTITIONS as u64);
        let requests = buffers * u64::from(OPTIONS.requests_per_buffer);
        for (counters, pool) in self.service.counters().iter().zip(self.pool.counters()) {
            assert!(counters.active_max <= requests, "{counters:?}");
            assert!(pool.waiting_max as u64 <= requests + buffers, "{pool:?}");
            let all = u64::from(OPTIONS.buffers_min) + counters.grown - counters.shrunk;
            assert_eq!((counters.buffers, counters.not_posted), (all, 0));
            assert!(counters.buffers <= buffers);
        }
    }
}

/// A hundred thousand clients at one portal: the requests that find no buffer wait in the network, and
/// each client gets one answer. The service has a bounded number of buffers, which grows under the
/// load.
// Covers: S-313
#[test]
fn a_hundred_thousand_clients_are_served_with_bounded_memory() {
    let bed = Bed::new(true);
    let held = bed.held.lock();
    let full = u64::from(OPTIONS.buffers_max * OPTIONS.requests_per_buffer) * PARTITIONS as u64;
    for client in 0..CLIENTS {
        bed.network.send(client as usize % PARTITIONS, client);
        // The first ones arrive one by one, so that the buffers grow while the handlers block.
        if u64::from(client) < full {
            bed.network.wake(PARTITIONS);
        }
    }
    bed.network.wake(PARTITIONS);
    drop(held);
    until("all have arrived", || bed.sum(|counters| counters.requests) == u64::from(CLIENTS));
    bed.check_answers();
    bed.check_memory();
    assert!(bed.sum(|counters| counters.grown) > 0);
}

/// If requests do not wait in the network, those without a buffer are dropped, and no others.
#[test]
fn requests_beyond_the_buffers_are_dropped_and_the_others_answered() {
    let bed = Bed::new(false);
    let held = bed.held.lock();
    (0..CLIENTS).for_each(|client| bed.network.send(client as usize % PARTITIONS, client));
    bed.network.wake(PARTITIONS);
    drop(held);
    bed.check_answers();
    bed.check_memory();
    assert!(bed.network.traffic.lock().dropped > 0);
}

/// While the handler of one partition blocks, its requests fill its buffers, then those of the other
/// partition, which serves them; each is counted as crossed.
// Covers: S-313
#[test]
fn a_partition_without_buffers_has_its_requests_served_by_another() {
    let bed = Bed::new(true);
    let held = bed.held.lock();
    // One request blocks partition 0; then more than its buffers take.
    bed.network.send(0, 0);
    bed.network.wake(PARTITIONS);
    until("the handler blocks", || bed.inside.load(Ordering::Acquire) == 1);
    let own = OPTIONS.buffers_max * OPTIONS.requests_per_buffer;
    for client in 1..CLIENTS {
        let is_home_full = bed.network.traffic.lock().posted[0].is_empty();
        let crossed = bed.network.traffic.lock().crossed;
        bed.network.send(0, client);
        // Buffers may be posted in between, and none are taken away: all that wait have been served.
        let has_crossed = bed.network.traffic.lock().crossed > crossed;
        assert!(!has_crossed || is_home_full, "a request crosses although its partition has a buffer");
        if client > own {
            break;
        }
    }
    bed.network.wake(PARTITIONS);
    drop(held);
    assert!(bed.network.traffic.lock().crossed > 0);
    for client in own + 2..CLIENTS {
        bed.network.send(client as usize % PARTITIONS, client);
    }
    bed.network.wake(PARTITIONS);
    until("all have arrived", || bed.sum(|counters| counters.requests) == u64::from(CLIENTS));
    bed.check_answers();
    bed.check_memory();
}

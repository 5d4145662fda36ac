//! A fabric that counts requests, and may have a smaller device or one that refuses memory.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_o2iblnd::{O2ib, O2ibConfig};
use lnet_region::Region;
use parking_lot::Mutex;

use super::{Node, TestBed as _, VerbsBed};

/// Changes the limits of a device.
pub type Change = fn(&mut DeviceLimits);

/// The requests made to a fabric.
pub struct Seen {
    registrations: Mutex<usize>,
    /// The number of registered bytes.
    bytes: AtomicU64,
    /// Set while all registrations are refused.
    refuses: AtomicBool,
    /// Runs during the next registration.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The queues that were made: the sizes requested, and the sizes that the device reports.
    queues: Mutex<Vec<(QueueSizes, QueueSizes)>>,
    /// The receives posted at the device: their number and their bytes.
    receives: Mutex<(u64, u64)>,
    /// The limit above which send queues are refused, and the number of refusals.
    sends_max: AtomicU32,
    queues_refused: AtomicUsize,
    device: Mutex<Option<Arc<Watched>>>,
    /// Changes the device's limits.
    change: Change,
}

impl Seen {
    /// Returns the number of registered bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Makes the device refuse all further registrations, or none.
    pub fn refuse_memory(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Returns the number of registrations, including refused ones.
    pub fn registrations(&self) -> usize {
        *self.registrations.lock()
    }

    /// Returns the queues that were made: the sizes requested, and the sizes that the device has.
    pub fn queues(&self) -> Vec<(QueueSizes, QueueSizes)> {
        self.queues.lock().clone()
    }

    /// Returns the receives posted at the device: their number and their bytes.
    pub fn receives(&self) -> (u64, u64) {
        *self.receives.lock()
    }

    /// Refuses send queues longer than this from now on.
    pub fn refuse_queues(&self, beyond: u32) {
        self.sends_max.store(beyond, Ordering::Relaxed);
    }

    /// Returns the number of queues refused.
    pub fn queues_refused(&self) -> usize {
        self.queues_refused.load(Ordering::Relaxed)
    }

    /// Runs `meanwhile` during the next registration.
    pub fn while_registering(&self, meanwhile: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock() = Some(Box::new(meanwhile));
    }

    /// Returns the device; there is one per address.
    fn watch(self: &Arc<Seen>, inner: &Arc<dyn Device>) -> Arc<Watched> {
        let mut device = self.device.lock();
        let watched = || {
            let mut limits = *inner.limits();
            (self.change)(&mut limits);
            Arc::new(Watched { inner: inner.clone(), limits, seen: Arc::downgrade(self) })
        };
        device.get_or_insert_with(watched).clone()
    }

    fn inner(&self) -> Arc<dyn Device> {
        self.device.lock().as_ref().map(|watched| watched.inner.clone()).unwrap()
    }

    fn endpoint(self: &Arc<Seen>, inner: Box<dyn Endpoint>) -> Box<dyn Endpoint> {
        Box::new(WatchedEndpoint { device: self.watch(inner.device()), inner, seen: self.clone() })
    }
}

/// A watched fabric of one address.
pub struct WatchedFabric {
    inner: Arc<dyn Fabric>,
    seen: Arc<Seen>,
}

impl WatchedFabric {
    /// Wraps a fabric, and changes its device.
    pub fn over(inner: Arc<dyn Fabric>, change: Change) -> (Arc<dyn Fabric>, Arc<Seen>) {
        let seen = Arc::new(Seen {
            registrations: Mutex::default(),
            bytes: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            meanwhile: Mutex::default(),
            queues: Mutex::default(),
            receives: Mutex::default(),
            sends_max: AtomicU32::new(u32::MAX),
            queues_refused: AtomicUsize::new(0),
            device: Mutex::default(),
            change,
        });
        (Arc::new(WatchedFabric { inner, seen: seen.clone() }), seen)
    }
}

/// Creates two nodes on watched fabrics, the second with a changed device.
pub fn watched_pair(
    bed: &VerbsBed,
    configs: [&O2ibConfig; 2],
    change: Change,
) -> ([Node<O2ib>; 2], [Arc<Seen>; 2]) {
    let node = |number: usize, change| {
        let (address, fabric) = bed.host(number);
        let (fabric, seen) = WatchedFabric::over(fabric, change);
        (Node::new(address, fabric, configs[number - 1].clone(), bed.now_ns()), seen)
    };
    let (a, b) = (node(1, |_| ()), node(2, change));
    ([a.0, b.0], [a.1, b.1])
}

impl Fabric for WatchedFabric {
    fn incarnation(&self) -> u64 {
        self.inner.incarnation()
    }

    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError> {
        Ok(self.seen.watch(&self.inner.open(address)?))
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, FabricError> {
        Ok(Arc::new(WatchedChannel { inner: self.inner.channel()?, seen: self.seen.clone() }))
    }
}

struct Watched {
    inner: Arc<dyn Device>,
    limits: DeviceLimits,
    /// The owner of this device.
    seen: Weak<Seen>,
}

impl Device for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    fn is_program(&self) -> bool {
        self.inner.is_program()
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    fn register(&self, region: &Region, remote: bool) -> Result<Arc<dyn RegisteredMemory>, FabricError> {
        let Some(seen) = self.seen.upgrade() else { return self.inner.register(region, remote) };
        *seen.registrations.lock() += 1;
        let meanwhile = seen.meanwhile.lock().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        if seen.refuses.load(Ordering::Relaxed) {
            return Err(FabricError { what: "refused on purpose".to_string(), errno: Errno::ENOMEM });
        }
        let (inner, bytes) = (self.inner.register(region, remote)?, region.extent().1 as u64);
        seen.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Arc::new(WatchedMemory { inner, bytes, seen: self.seen.clone() }))
    }
}

struct WatchedMemory {
    inner: Arc<dyn RegisteredMemory>,
    bytes: u64,
    seen: Weak<Seen>,
}

impl RegisteredMemory for WatchedMemory {
    fn local_key(&self) -> u32 {
        self.inner.local_key()
    }

    fn remote_key(&self) -> u32 {
        self.inner.remote_key()
    }
}

impl Drop for WatchedMemory {
    fn drop(&mut self) {
        if let Some(seen) = self.seen.upgrade() {
            seen.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

struct WatchedChannel {
    inner: Arc<dyn Channel>,
    seen: Arc<Seen>,
}

impl Channel for WatchedChannel {
    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }

    fn ring(&self) {
        self.inner.ring();
    }

    fn next(&self) -> Option<CmEvent> {
        self.inner.next()
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn listen(
        &self,
        token: ChannelToken,
        _: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError> {
        self.inner.listen(token, &self.seen.inner(), at, backlog)
    }

    fn dial(
        &self,
        token: ChannelToken,
        _: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        Ok(self.seen.endpoint(self.inner.dial(token, &self.seen.inner(), from, to, options)?))
    }

    fn adopt(
        &self,
        token: ChannelToken,
        request: Box<dyn ConnRequest>,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        Ok(self.seen.endpoint(self.inner.adopt(token, request)?))
    }
}

struct WatchedEndpoint {
    inner: Box<dyn Endpoint>,
    device: Arc<dyn Device>,
    seen: Arc<Seen>,
}

impl Endpoint for WatchedEndpoint {
    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn make_queues(&mut self, sizes: &QueueSizes) -> Result<QueueSizes, FabricError> {
        if sizes.sends > self.seen.sends_max.load(Ordering::Relaxed) {
            self.seen.queues_refused.fetch_add(1, Ordering::Relaxed);
            return Err(FabricError { what: "too long on purpose".to_string(), errno: Errno::ENOMEM });
        }
        let made = self.inner.make_queues(sizes)?;
        self.seen.queues.lock().push((*sizes, made));
        Ok(made)
    }

    fn connect(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError> {
        self.inner.connect(private_data, options)
    }

    fn establish(&mut self) -> Result<(), FabricError> {
        self.inner.establish()
    }

    fn accept(&mut self, private_data: &[u8], options: &ConnectOptions) -> Result<(), FabricError> {
        self.inner.accept(private_data, options)
    }

    fn reject(&mut self, record: &[u8]) {
        self.inner.reject(record);
    }

    fn disconnect(&self) {
        self.inner.disconnect();
    }

    fn post_receives(&self, works: &[ReceiveWork]) -> Result<(), PostError> {
        self.inner.post_receives(works)?;
        let mut receives = self.seen.receives.lock();
        receives.0 += works.len() as u64;
        receives.1 += works.iter().map(|work| u64::from(work.piece.length)).sum::<u64>();
        Ok(())
    }

    fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        self.inner.post_sends(works)
    }

    fn poll(&self, done: &mut Completions) -> Result<(), Errno> {
        let before = done.len();
        self.inner.poll(done)?;
        // Completions of sends have no length, and no message is empty.
        let received = done[before..].iter().filter(|completion| completion.length > 0).count() as u64;
        let mut receives = self.seen.receives.lock();
        if let Some(each) = receives.1.checked_div(receives.0) {
            receives.0 -= received;
            receives.1 -= received * each;
        }
        Ok(())
    }

    fn arm(&self) -> Result<(), Errno> {
        self.inner.arm()
    }
}

//! A fabric that counts what is asked of it, and keeps what the device says that it has made.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{
    Channel, Completions, ConnectOptions, Device, DeviceLimits, DialOptions, Endpoint, Fabric, FabricError,
    Happening, Listener, Memory, PostError, QueueSizes, ReceiveWork, Request, SendWork, Token,
};
use lnet_region::Region;
use parking_lot::Mutex;

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    /// Registrations of memory that transfers are out of or into.
    pub(super) registrations: u64,
    /// The queues of each connection: what was asked for, and what the device has.
    pub(super) queues: Vec<(QueueSizes, QueueSizes)>,
    /// Receives that wait at the device, and their bytes.
    pub(super) receives: u64,
    pub(super) receive_bytes: u64,
}

/// Shared by all that belongs to one fabric.
pub(super) type Seen = Arc<Mutex<Counts>>;

pub(super) struct Watched<T: ?Sized> {
    inner: Arc<T>,
    seen: Seen,
}

pub(super) fn watch(inner: Arc<dyn Fabric>) -> (Arc<dyn Fabric>, Seen) {
    let seen = Seen::default();
    (Arc::new(Watched { inner, seen: seen.clone() }), seen)
}

impl Fabric for Watched<dyn Fabric> {
    fn incarnation(&self) -> u64 {
        self.inner.incarnation()
    }

    fn open(&self, address: Ipv4Addr) -> Result<Arc<dyn Device>, FabricError> {
        Ok(Arc::new(Watched { inner: self.inner.open(address)?, seen: self.seen.clone() }))
    }

    fn channel(&self) -> Result<Arc<dyn Channel>, FabricError> {
        Ok(Arc::new(Watched { inner: self.inner.channel()?, seen: self.seen.clone() }))
    }
}

impl Device for Watched<dyn Device> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn limits(&self) -> &DeviceLimits {
        self.inner.limits()
    }

    fn is_program(&self) -> bool {
        self.inner.is_program()
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    fn register(&self, region: &Region, remote: bool) -> Result<Arc<dyn Memory>, FabricError> {
        self.seen.lock().registrations += 1;
        self.inner.register(region, remote)
    }
}

impl Watched<dyn Channel> {
    fn endpoint(&self, inner: Box<dyn Endpoint>) -> Box<dyn Endpoint> {
        Box::new(WatchedEndpoint { inner, seen: self.seen.clone() })
    }
}

impl Channel for Watched<dyn Channel> {
    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd()
    }

    fn ring(&self) {
        self.inner.ring();
    }

    fn next(&self) -> Option<Happening> {
        self.inner.next()
    }

    fn rest(&self) {
        self.inner.rest();
    }

    fn listen(
        &self,
        token: Token,
        device: &Arc<dyn Device>,
        at: SocketAddrV4,
        backlog: u32,
    ) -> Result<Box<dyn Listener>, FabricError> {
        self.inner.listen(token, device, at, backlog)
    }

    fn dial(
        &self,
        token: Token,
        device: &Arc<dyn Device>,
        from: SocketAddrV4,
        to: SocketAddrV4,
        options: &DialOptions,
    ) -> Result<Box<dyn Endpoint>, FabricError> {
        self.inner.dial(token, device, from, to, options).map(|inner| self.endpoint(inner))
    }

    fn adopt(&self, token: Token, request: Box<dyn Request>) -> Result<Box<dyn Endpoint>, FabricError> {
        self.inner.adopt(token, request).map(|inner| self.endpoint(inner))
    }
}

struct WatchedEndpoint {
    inner: Box<dyn Endpoint>,
    seen: Seen,
}

impl Endpoint for WatchedEndpoint {
    /// Its own: the memory of messages, which is registered once for each connection, is not counted.
    fn device(&self) -> &Arc<dyn Device> {
        self.inner.device()
    }

    fn make_queues(&mut self, sizes: &QueueSizes) -> Result<QueueSizes, FabricError> {
        let made = self.inner.make_queues(sizes)?;
        self.seen.lock().queues.push((*sizes, made));
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
        let mut seen = self.seen.lock();
        seen.receives += works.len() as u64;
        seen.receive_bytes += works.iter().map(|work| u64::from(work.piece.length)).sum::<u64>();
        Ok(())
    }

    fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        self.inner.post_sends(works)
    }

    fn poll(&self, done: &mut Completions) -> Result<(), Errno> {
        let before = done.len();
        self.inner.poll(done)?;
        // Those of sends have no length, and no message is empty.
        let received = done[before..].iter().filter(|completion| completion.length > 0).count() as u64;
        let mut seen = self.seen.lock();
        if let Some(each) = seen.receive_bytes.checked_div(seen.receives) {
            seen.receives -= received;
            seen.receive_bytes -= received * each;
        }
        Ok(())
    }

    fn arm(&self) -> Result<(), Errno> {
        self.inner.arm()
    }
}

//! The connection manager's objects: event channels and identifiers.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use lnet_api::Errno;
use lnet_region::ForkGuard;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::{AF_INET, in_addr, sockaddr, sockaddr_in};
use nlx_ibverbs_sys as ffi;

use super::check;
use crate::fabric::ConnectOptions;

/// A non-blocking event channel.
pub(super) struct CmChannel {
    raw: NonNull<ffi::rdma_event_channel>,
    fork_guard: ForkGuard,
}

// SAFETY: librdmacm may be called by any thread; a channel is a descriptor that is only read.
unsafe impl Send for CmChannel {}
// SAFETY: as above.
unsafe impl Sync for CmChannel {}

impl CmChannel {
    pub(super) fn new() -> Result<CmChannel, Errno> {
        // SAFETY: it takes nothing.
        let raw = unsafe { ffi::rdma_create_event_channel() };
        let raw = NonNull::new(raw).ok_or_else(Errno::last)?;
        let channel = CmChannel { raw, fork_guard: ForkGuard::here() };
        fcntl(channel.fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is valid until this is dropped, and has its descriptor open all the
        // time.
        unsafe { BorrowedFd::borrow_raw(self.raw.as_ref().fd) }
    }

    pub(super) fn raw(&self) -> *mut ffi::rdma_event_channel {
        self.raw.as_ptr()
    }
}

impl Drop for CmChannel {
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            // SAFETY: it was made by `new` and is destroyed once. No identifier is left on it: each
            // keeps its channel.
            unsafe { ffi::rdma_destroy_event_channel(self.raw.as_ptr()) };
        }
    }
}

/// An identifier: a listener, a connection, the beginning of one, or only a bound address.
pub(super) struct CmId {
    raw: NonNull<ffi::rdma_cm_id>,
    /// The channel of the identifier's events. Without a channel its calls block.
    channel: Option<Arc<CmChannel>>,
    fork_guard: ForkGuard,
}

// SAFETY: librdmacm may be called by any thread. The fields of an identifier that are read here are
// set before it is passed on: by the call that binds it, or before the event that delivers it.
unsafe impl Send for CmId {}
// SAFETY: as above; a call that would change it takes `&mut`, or is ordered by the library's own
// locks.
unsafe impl Sync for CmId {}

impl CmId {
    pub(super) fn new(channel: Option<Arc<CmChannel>>) -> Result<CmId, Errno> {
        let mut raw = null_mut();
        let events = channel.as_ref().map_or(null_mut(), |channel| channel.raw());
        // SAFETY: the channel is valid, or null; the identifier keeps it.
        check(unsafe { ffi::rdma_create_id(events, &mut raw, null_mut(), ffi::RDMA_PS_TCP) })?;
        let raw = NonNull::new(raw).ok_or(Errno::ENOMEM)?;
        Ok(CmId { raw, channel, fork_guard: ForkGuard::here() })
    }

    /// Takes the identifier that came with an event of this channel.
    ///
    /// # Safety
    /// The event is a request to connect, and no other object takes the identifier.
    pub(super) unsafe fn of_request(raw: NonNull<ffi::rdma_cm_id>, channel: Arc<CmChannel>) -> CmId {
        CmId { raw, channel: Some(channel), fork_guard: ForkGuard::here() }
    }

    /// Returns the identifier's address, which names the identifier in events.
    pub(super) fn key(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    pub(super) fn is_on(&self, channel: &Arc<CmChannel>) -> bool {
        self.channel.as_ref().is_some_and(|own| Arc::ptr_eq(own, channel))
    }

    pub(super) fn raw(&self) -> *mut ffi::rdma_cm_id {
        self.raw.as_ptr()
    }

    pub(super) fn fork_guard(&self) -> &ForkGuard {
        &self.fork_guard
    }

    /// Returns the context of the device to which the identifier is bound; null if it is not bound.
    pub(super) fn verbs(&self) -> *mut ffi::ibv_context {
        // SAFETY: the identifier is valid until this is dropped.
        unsafe { self.raw.as_ref().verbs }
    }

    /// Returns the port to which the identifier is bound, from 1.
    pub(super) fn port(&self) -> u8 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref().port_num }
    }

    /// Returns this node's address and port; `None` unless they are IPv4.
    pub(super) fn local(&self) -> Option<SocketAddrV4> {
        // SAFETY: as above; all members of the union are plain numbers, and the library has zeroed
        // it.
        from_system(unsafe { &self.raw.as_ref().route.addr.__bindgen_anon_1.src_sin })
    }

    /// Returns the peer's address and port; `None` unless they are IPv4.
    pub(super) fn remote(&self) -> Option<SocketAddrV4> {
        // SAFETY: as above.
        from_system(unsafe { &self.raw.as_ref().route.addr.__bindgen_anon_2.dst_sin })
    }

    /// Sets an option of the identifier.
    pub(super) fn set<T: Copy>(&self, option: u32, mut value: T) -> Result<(), Errno> {
        let level = ffi::RDMA_OPTION_ID as i32;
        // SAFETY: the value is valid for the named number of bytes, and copied by the call.
        check(unsafe {
            ffi::rdma_set_option(self.raw(), level, option as i32, (&raw mut value).cast(), size_of::<T>())
        })
    }

    pub(super) fn bind(&self, address: SocketAddrV4) -> Result<(), Errno> {
        let mut address = to_system(address);
        // SAFETY: the identifier is valid; the address is read by the call, and its family
        // determines its length.
        check(unsafe { ffi::rdma_bind_addr(self.raw(), (&raw mut address).cast::<sockaddr>()) })
    }

    pub(super) fn resolve_address(&self, target: SocketAddrV4, within_ms: u32) -> Result<(), Errno> {
        let mut target = to_system(target);
        let target = (&raw mut target).cast::<sockaddr>();
        // SAFETY: as above; without a source it stays bound as it is.
        check(unsafe { ffi::rdma_resolve_addr(self.raw(), null_mut(), target, milliseconds(within_ms)) })
    }

    pub(super) fn listen(&self, backlog: u32) -> Result<(), Errno> {
        // SAFETY: the identifier is valid.
        check(unsafe { ffi::rdma_listen(self.raw(), i32::try_from(backlog).unwrap_or(i32::MAX)) })
    }

    /// Moves the identifier and its unread events to another channel.
    pub(super) fn migrate(&mut self, channel: &Arc<CmChannel>) -> Result<(), Errno> {
        // SAFETY: both are valid. The call waits until the read events of the old channel that name
        // the identifier are acknowledged, which the reading thread does at once.
        check(unsafe { ffi::rdma_migrate_id(self.raw(), channel.raw()) })?;
        self.channel = Some(channel.clone());
        Ok(())
    }

    pub(super) fn connect(
        &self,
        data: &[u8],
        queue_pair: u32,
        options: &ConnectOptions,
    ) -> Result<(), Errno> {
        let mut parameters = parameters(data, queue_pair, options)?;
        // SAFETY: the identifier is valid; the parameters and the data in them are read by the
        // call.
        check(unsafe { ffi::rdma_connect(self.raw(), &mut parameters) })
    }

    pub(super) fn establish(&self) -> Result<(), Errno> {
        // SAFETY: the identifier is valid.
        check(unsafe { ffi::rdma_establish(self.raw()) })
    }

    pub(super) fn accept(&self, data: &[u8], queue_pair: u32, options: &ConnectOptions) -> Result<(), Errno> {
        let mut parameters = parameters(data, queue_pair, options)?;
        // SAFETY: as for connect.
        check(unsafe { ffi::rdma_accept(self.raw(), &mut parameters) })
    }

    pub(super) fn disconnect(&self) -> Result<(), Errno> {
        // SAFETY: the identifier is valid.
        check(unsafe { ffi::rdma_disconnect(self.raw()) })
    }

    pub(super) fn reject(&self, data: &[u8]) -> Result<(), Errno> {
        let length = u8::try_from(data.len()).map_err(|_| Errno::EMSGSIZE)?;
        // SAFETY: the identifier is valid; the data is read by the call.
        check(unsafe { ffi::rdma_reject(self.raw(), data.as_ptr().cast(), length) })
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            return;
        }
        // SAFETY: it is destroyed once, and not used any more: this owns it, a queue pair made for
        // it is gone (it is a field before the identifier's), and events that name it are
        // acknowledged before the call returns.
        unsafe { ffi::rdma_destroy_id(self.raw.as_ptr()) };
    }
}

/// Returns the parameters of a connection request or acceptance. RDMA READ and atomics are not
/// used, so the peer needs no resources for them (lnet-wire 31).
fn parameters(data: &[u8], queue_pair: u32, options: &ConnectOptions) -> Result<ffi::rdma_conn_param, Errno> {
    Ok(ffi::rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: u8::try_from(data.len()).map_err(|_| Errno::EMSGSIZE)?,
        responder_resources: 0,
        initiator_depth: 0,
        flow_control: 1,
        retry_count: options.retry_count.min(7),
        rnr_retry_count: options.rnr_retry_count.min(7),
        srq: 0,
        qp_num: queue_pair,
    })
}

pub(super) fn milliseconds(ms: u32) -> i32 {
    i32::try_from(ms).unwrap_or(i32::MAX)
}

fn to_system(address: SocketAddrV4) -> sockaddr_in {
    sockaddr_in {
        sin_family: AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: in_addr { s_addr: u32::from(*address.ip()).to_be() },
        sin_zero: [0; 8],
    }
}

fn from_system(address: &sockaddr_in) -> Option<SocketAddrV4> {
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    (i32::from(address.sin_family) == AF_INET).then(|| SocketAddrV4::new(ip, u16::from_be(address.sin_port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_to_the_system_and_back() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 77, 0, 1), 987);
        let system = to_system(address);
        assert_eq!(system.sin_port.to_ne_bytes(), 987u16.to_be_bytes());
        assert_eq!(from_system(&system), Some(address));
        assert_eq!(from_system(&sockaddr_in { sin_family: 10, ..system }), None);
    }
}

//! Registered memory: the access checks, and the copies that a device makes.

use lnet_region::Region;

use super::state::State;

/// The registration of memory with a simulated device.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) device: u64,
    start: u64,
    bytes: u64,
    /// True if peers may write to the memory.
    remote: bool,
}

/// Bytes that have been checked to lie within a registration.
#[derive(Debug, Clone, Copy)]
struct Checked {
    start: u64,
    bytes: usize,
}

impl Registered {
    /// Creates the registration of a region.
    pub(super) fn new(device: u64, region: &Region, remote: bool) -> Registered {
        let (start, bytes) = region.extent();
        Registered { device, start, bytes: bytes as u64, remote }
    }

    fn check(&self, address: u64, length: u64) -> Option<Checked> {
        let skip = address.checked_sub(self.start)?;
        let end = skip.checked_add(length)?;
        (end <= self.bytes).then_some(Checked { start: address, bytes: length as usize })
    }
}

impl State {
    /// Returns the bytes that a work request of this device names by a local key; `None` if access
    /// is not allowed.
    pub(super) fn gather(&self, device: u64, address: u64, length: u32, key: u32) -> Option<Vec<u8>> {
        self.checked(device, address, length.into(), key, false).map(load)
    }

    /// Writes into the receive buffer of a work request of this device; `false` if access is not
    /// allowed.
    #[must_use]
    pub(super) fn scatter(&self, device: u64, address: u64, key: u32, bytes: &[u8]) -> bool {
        let checked = self.checked(device, address, bytes.len() as u64, key, false);
        checked.map(|checked| store(checked, bytes)).is_some()
    }

    /// Writes to the destination of a peer's work request; `false` if access is not allowed.
    #[must_use]
    pub(super) fn write(&self, device: u64, address: u64, key: u32, bytes: &[u8]) -> bool {
        let checked = self.checked(device, address, bytes.len() as u64, key, true);
        checked.map(|checked| store(checked, bytes)).is_some()
    }

    fn checked(&self, device: u64, address: u64, length: u64, key: u32, remote: bool) -> Option<Checked> {
        let registered = self.own.memory.get(&key).filter(|registered| registered.device == device)?;
        if remote && !registered.remote {
            return None;
        }
        registered.check(address, length)
    }
}

fn load(from: Checked) -> Vec<u8> {
    let mut bytes = vec![0; from.bytes];
    let start = std::ptr::with_exposed_provenance::<u8>(from.start as usize);
    // SAFETY: the bytes lie within a registration, whose maker keeps its memory alive until the
    // registration is dropped (the contract of `Device::register`), which removes it from the
    // table. No `&mut` exists to memory that a work request names, and no thread writes to it: the
    // poster of the request holds a lease, and a world runs on one thread.
    unsafe { std::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), from.bytes) };
    bytes
}

fn store(to: Checked, bytes: &[u8]) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(to.start as usize);
    // SAFETY: as in `load`; no reference of any kind exists to memory that is being received into,
    // because the poster or the peer that named it holds a lease to receive or to write.
    unsafe { std::ptr::copy(bytes.as_ptr(), start, bytes.len()) };
}

//! The list of this host's devices from libibverbs.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::NonNull;

use lnet_api::Errno;
use nlx_ibverbs_sys as ffi;

use super::context::port_attributes;

/// Owns the list that libibverbs allocates.
pub(super) struct DeviceList {
    first: NonNull<*mut ffi::ibv_device>,
    length: usize,
}

/// A device of the list, not opened.
pub(super) struct DeviceEntry<'a> {
    raw: *mut ffi::ibv_device,
    list: PhantomData<&'a DeviceList>,
}

impl DeviceList {
    /// Creates the list of this host's devices.
    ///
    /// # Errors
    /// ENOSYS if the kernel has no RDMA.
    pub(super) fn new() -> Result<DeviceList, Errno> {
        let mut length = 0;
        // SAFETY: there is room for the number.
        let first = unsafe { ffi::ibv_get_device_list(&raw mut length) };
        let first = NonNull::new(first).ok_or_else(Errno::last)?;
        Ok(DeviceList { first, length: usize::try_from(length).unwrap_or(0) })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = DeviceEntry<'_>> {
        // SAFETY: the list has that number of devices, and nothing changes it before it is freed.
        let all = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.length) };
        all.iter().map(|raw| DeviceEntry { raw: *raw, list: PhantomData })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: it is freed once; its entries borrow it, so none is left.
        unsafe { ffi::ibv_free_device_list(self.first.as_ptr()) };
    }
}

impl DeviceEntry<'_> {
    /// Returns the device's name; `None` if the library has none.
    pub(super) fn name(&self) -> Option<String> {
        // SAFETY: the device is valid while its list is.
        let name = unsafe { ffi::ibv_get_device_name(self.raw) };
        // SAFETY: a name that is not null is a string that ends with a zero, and belongs to the
        // device.
        (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Returns the device's GUID; `None` if it has none.
    pub(super) fn guid(&self) -> Option<u64> {
        // SAFETY: the device is valid while its list is.
        let guid = u64::from_be(unsafe { ffi::ibv_get_device_guid(self.raw) });
        (guid != 0).then_some(guid)
    }

    /// Opens the device, reads the GIDs of these ports, and closes it.
    ///
    /// # Errors
    /// The system's error if the device cannot be opened or read.
    pub(super) fn gids(&self, ports: impl Iterator<Item = u8>) -> Result<Vec<ffi::ibv_gid_entry>, Errno> {
        // SAFETY: the device is valid while its list is.
        let raw = NonNull::new(unsafe { ffi::ibv_open_device(self.raw) }).ok_or_else(Errno::last)?;
        let opened = Opened(raw);
        let mut most = 0;
        for port in ports {
            most += usize::try_from(port_attributes(opened.0, port)?.gid_tbl_len).unwrap_or(0);
        }
        let mut entries = vec![ffi::ibv_gid_entry::default(); most];
        let size = size_of::<ffi::ibv_gid_entry>();
        // SAFETY: the device is open, and there is room for that number of entries of that size.
        let found =
            unsafe { ffi::_ibv_query_gid_table(opened.0.as_ptr(), entries.as_mut_ptr(), most, 0, size) };
        match usize::try_from(found) {
            Ok(found) => entries.truncate(found),
            Err(_) => return Err(Errno::from_raw(i32::try_from(-found).unwrap_or(0))),
        }
        Ok(entries)
    }
}

/// An open device, closed when this is dropped.
struct Opened(NonNull<ffi::ibv_context>);

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: it is closed once, and nothing has been made with it.
        unsafe { ffi::ibv_close_device(self.0.as_ptr()) };
    }
}

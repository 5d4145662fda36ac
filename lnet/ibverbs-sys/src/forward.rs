//! The libraries' functions.
//!
//! Without the libraries, a function that returns a pointer returns null, and one that returns a
//! number returns the value that functions of its kind return on an error: those of librdmacm, and
//! those of libibverbs that wait for events, return -1; other functions of libibverbs return the
//! error itself. The error is ENOSYS, which is also stored in `errno` in any case.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};

use nix::errno::Errno;
use nix::libc::{ENOSYS, sockaddr};

use crate::load::functions;
use crate::*;

macro_rules! forward {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty = $without:expr)?;)*) => {$(
        #[doc = concat!("`", stringify!($name), "` of the library.")]
        ///
        /// # Safety
        /// The requirements are those of the library's manual.
        #[inline]
        pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
            match functions() {
                // SAFETY: the caller upholds the library's requirements, and the function has this
                // name and type.
                Ok(functions) => unsafe { (functions.$name)($($argument),*) },
                Err(_) => {
                    Errno::ENOSYS.set();
                    $($without as $result)?
                }
            }
        }
    )*};
}

forward! {
    fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device = null_mut::<*mut ibv_device>();
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char = null::<c_char>();
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int = -1;
    fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 = 0;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context = null_mut::<ibv_context>();
    fn ibv_close_device(context: *mut ibv_context) -> c_int = ENOSYS;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int = -1;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    fn ibv_query_device(context: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int = ENOSYS;
    fn ibv_query_port(context: *mut ibv_context, port: u8, attributes: *mut _compat_ibv_port_attr) -> c_int = ENOSYS;
    fn _ibv_query_gid_table(
        context: *mut ibv_context, entries: *mut ibv_gid_entry, most: usize, flags: u32, entry_size: usize
    ) -> isize = -(ENOSYS as isize);
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd = null_mut::<ibv_pd>();
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int = ENOSYS;
    fn ibv_reg_mr(pd: *mut ibv_pd, address: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr = null_mut::<ibv_mr>();
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int = ENOSYS;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel = null_mut::<ibv_comp_channel>();
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int = ENOSYS;
    fn ibv_create_cq(
        context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int
    ) -> *mut ibv_cq = null_mut::<ibv_cq>();
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int = ENOSYS;
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int = -1;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, events: c_uint);
    fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp = null_mut::<ibv_qp>();
    fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int = ENOSYS;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int = ENOSYS;

    fn rdma_create_event_channel() -> *mut rdma_event_channel = null_mut::<rdma_event_channel>();
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    fn rdma_create_id(
        channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, ps: rdma_port_space
    ) -> c_int = -1;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int = -1;
    fn rdma_bind_addr(id: *mut rdma_cm_id, address: *mut sockaddr) -> c_int = -1;
    fn rdma_resolve_addr(
        id: *mut rdma_cm_id, source: *mut sockaddr, target: *mut sockaddr, timeout_ms: c_int
    ) -> c_int = -1;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int = -1;
    fn rdma_connect(id: *mut rdma_cm_id, parameters: *mut rdma_conn_param) -> c_int = -1;
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int = -1;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int = -1;
    fn rdma_accept(id: *mut rdma_cm_id, parameters: *mut rdma_conn_param) -> c_int = -1;
    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, length: u8) -> c_int = -1;
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int = -1;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int = -1;
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int = -1;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int = -1;
    fn rdma_set_option(
        id: *mut rdma_cm_id, level: c_int, option: c_int, value: *mut c_void, length: usize
    ) -> c_int = -1;
    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int = -1;
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, attributes: *mut ibv_qp_attr, mask: *mut c_int) -> c_int = -1;
}

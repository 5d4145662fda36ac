//! Translates the connection manager's events into a channel's events.

use std::ptr::{NonNull, null_mut};
use std::slice;

use lnet_api::Errno;
use nlx_ibverbs_sys as ffi;

use super::channel::{EventHub, IdState};
use super::check;
use super::cm::{CmId, milliseconds};
use super::queues::flush;
use super::request::HostRequest;
use crate::fabric::{CmEvent, PrivateData, Rejected};

/// Reasons for a rejection by the connection manager (lnet-wire 33).
const NO_LISTENER: i32 = 8;
const STALE: i32 = 10;
const BY_CONSUMER: i32 = 28;

impl EventHub {
    /// Reads the connection manager's next event, and queues its translation.
    pub(super) fn read_manager(&self) {
        let mut event = null_mut();
        // SAFETY: the channel is valid and does not block, and there is room for a pointer to the
        // event.
        if check(unsafe { ffi::rdma_get_cm_event(self.manager.raw(), &mut event) }).is_err() {
            return;
        }
        let Some(raw) = NonNull::new(event) else { return };
        // SAFETY: the library has given the event, which is valid until it is acknowledged below.
        let cm_event = unsafe { self.meaning(raw.as_ref()) };
        // SAFETY: it is acknowledged once. Its data has been copied; its identifier may be
        // destroyed from now on.
        let _ = unsafe { ffi::rdma_ack_cm_event(event) };
        cm_event.into_iter().for_each(|cm_event| self.queue_event(cm_event));
    }

    /// # Safety
    /// The event comes from the library, of this channel, and is not acknowledged yet.
    unsafe fn meaning(&self, event: &ffi::rdma_cm_event) -> Option<CmEvent> {
        if event.event == ffi::RDMA_CM_EVENT_CONNECT_REQUEST {
            // SAFETY: passed on.
            return unsafe { self.request(event) };
        }
        // While this is locked, an identifier in it is not destroyed, nor is its queue pair.
        let known = self.ids.lock();
        let of = known.get(&event.id.addr())?;
        let token = of.token;
        let cm_event = match event.event {
            ffi::RDMA_CM_EVENT_ADDR_RESOLVED => {
                let within = milliseconds(of.resolve_ms.unwrap_or(0));
                // SAFETY: the identifier is valid.
                match check(unsafe { ffi::rdma_resolve_route(event.id, within) }) {
                    Ok(()) => return None,
                    Err(errno) => CmEvent::Failed(token, errno),
                }
            }
            ffi::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::Resolved(token),
            ffi::RDMA_CM_EVENT_ADDR_ERROR
            | ffi::RDMA_CM_EVENT_ROUTE_ERROR
            | ffi::RDMA_CM_EVENT_CONNECT_ERROR
            | ffi::RDMA_CM_EVENT_UNREACHABLE => CmEvent::Failed(token, errno_of(event.status)),
            // SAFETY: passed on; these events have private data.
            ffi::RDMA_CM_EVENT_CONNECT_RESPONSE => CmEvent::Accepted(token, unsafe { private_data(event) }),
            // A peer that stops before the connection is established on its side rejects it; on
            // this side it was established already.
            ffi::RDMA_CM_EVENT_REJECTED if of.established => {
                // SAFETY: the identifier is valid.
                unsafe { end(event.id, of) };
                CmEvent::Disconnected(token)
            }
            // SAFETY: as above.
            ffi::RDMA_CM_EVENT_REJECTED => CmEvent::Rejected(token, unsafe { rejected(event) }),
            ffi::RDMA_CM_EVENT_ESTABLISHED => CmEvent::Established(token),
            ffi::RDMA_CM_EVENT_DISCONNECTED => {
                // SAFETY: the identifier is valid.
                unsafe { end(event.id, of) };
                CmEvent::Disconnected(token)
            }
            ffi::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                // SAFETY: as above; its device is a context that is kept.
                let verbs = unsafe {
                    end(event.id, of);
                    (*event.id).verbs
                };
                drop(known);
                self.context_of(verbs).into_iter().for_each(|context| context.remove());
                CmEvent::Disconnected(token)
            }
            other => {
                tracing::debug!(
                    event = other,
                    status = event.status,
                    "an event of the connection manager is ignored"
                );
                return None;
            }
        };
        Some(cm_event)
    }

    /// # Safety
    /// As for [`EventHub::meaning`]; the event is a request.
    unsafe fn request(&self, event: &ffi::rdma_cm_event) -> Option<CmEvent> {
        let raw = NonNull::new(event.id)?;
        // SAFETY: a request brings a new identifier, which no other object takes.
        let id = unsafe { CmId::of_request(raw, self.manager.clone()) };
        // SAFETY: passed on.
        let data = unsafe { private_data(event) };
        let listener = self.ids.lock().get(&event.listen_id.addr()).map(|known| known.token);
        // A request that cannot be delivered is dropped and thereby rejected: this does not block,
        // as no event has been delivered for its identifier.
        let request = HostRequest::new(id, data)?;
        Some(CmEvent::Request { listener: listener?, request: Box::new(request) })
    }
}

/// Ends a connection that the peer has ended: completes the posted work requests, and confirms to
/// the peer.
///
/// # Safety
/// The identifier is valid, and so is the queue pair in `known`.
unsafe fn end(id: *mut ffi::rdma_cm_id, known: &IdState) {
    if let Some(pair) = &known.queue_pair {
        // SAFETY: the caller's duty.
        if let Err(errno) = unsafe { flush(pair.0) } {
            tracing::debug!(%errno, "ending a queue pair");
        }
    }
    // SAFETY: the caller's duty. The call fails if there is no connection any more.
    let _ = check(unsafe { ffi::rdma_disconnect(id) });
}

/// # Safety
/// The event is of a kind that has private data, and is not acknowledged yet.
unsafe fn private_data(event: &ffi::rdma_cm_event) -> PrivateData {
    // SAFETY: the member `conn` is valid for connections of this port space.
    let conn = unsafe { &event.param.conn };
    if conn.private_data.is_null() {
        return PrivateData::new();
    }
    // SAFETY: the library has copied that number of bytes there, and they stay until the
    // acknowledgement.
    unsafe { slice::from_raw_parts(conn.private_data.cast::<u8>(), usize::from(conn.private_data_len)) }
        .into()
}

/// # Safety
/// As for [`private_data`].
unsafe fn rejected(event: &ffi::rdma_cm_event) -> Rejected {
    match event.status {
        BY_CONSUMER => {
            // SAFETY: passed on.
            let record = unsafe { private_data(event) };
            // If other listeners use the port on other addresses of the device, Linux rejects with
            // an empty record.
            if record.iter().all(|byte| *byte == 0) { Rejected::NoListener } else { Rejected::Record(record) }
        }
        NO_LISTENER => Rejected::NoListener,
        STALE => Rejected::Stale,
        other => Rejected::Other(other),
    }
}

/// Returns the errno of an event's negative status; EHOSTUNREACH for a status that is no errno.
fn errno_of(status: i32) -> Errno {
    match Errno::from_raw(status.saturating_abs()) {
        Errno::UnknownErrno => Errno::EHOSTUNREACH,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_an_errno_whatever_its_sign() {
        assert_eq!(errno_of(-110), Errno::ETIMEDOUT);
        assert_eq!(errno_of(113), Errno::EHOSTUNREACH);
        assert_eq!(errno_of(0), Errno::EHOSTUNREACH);
        assert_eq!(errno_of(i32::MIN), Errno::EHOSTUNREACH);
    }
}

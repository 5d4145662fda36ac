//! Events that a test delivers to a memory descriptor.

use lnet_api::{Errno, Event, EventKind};
use lnet_nid::{MatchBits, Nid, ProcessId};

/// An event of an MD, for [`crate::FakeLnet::inject`] or [`crate::FakeLnet::complete_inside`].
///
/// Fields that are not set have the value that LNet would give: from the PUT or GET that the event
/// belongs to, from the match entry that the message matched, from the state of the MD
/// (lnet-semantics 8). `unlinked` is set when the MD ends with this event, and the status of an
/// MD's last event after an explicit unlink is ETIMEDOUT.
///
/// ```
/// use lnet_api::Errno;
/// use lnet_fake::ScriptedEvent;
///
/// let message = ScriptedEvent::put().bytes("hello").hdr_data(7);
/// let lost = ScriptedEvent::send().failed(Errno::EHOSTUNREACH);
/// ```
#[derive(Debug, Clone)]
pub struct ScriptedEvent {
    pub(crate) kind: EventKind,
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) rlength: Option<u32>,
    pub(crate) mlength: Option<u32>,
    pub(crate) offset: Option<u64>,
    pub(crate) hdr_data: Option<u64>,
    pub(crate) portal: Option<u32>,
    pub(crate) match_bits: Option<MatchBits>,
    pub(crate) target: Option<ProcessId>,
    pub(crate) initiator: Option<ProcessId>,
    pub(crate) source: Option<ProcessId>,
    pub(crate) sender: Option<Nid>,
    pub(crate) user_ptr: Option<u64>,
    pub(crate) status: Option<Result<(), Errno>>,
    pub(crate) unlinked: Option<bool>,
    pub(crate) impossible: bool,
}

impl ScriptedEvent {
    /// Makes an event of this kind, with every field as LNet would fill it in.
    pub fn new(kind: EventKind) -> ScriptedEvent {
        ScriptedEvent {
            kind,
            bytes: None,
            rlength: None,
            mlength: None,
            offset: None,
            hdr_data: None,
            portal: None,
            match_bits: None,
            target: None,
            initiator: None,
            source: None,
            sender: None,
            user_ptr: None,
            status: None,
            unlinked: None,
            impossible: false,
        }
    }

    /// Makes the SEND of this MD's oldest PUT or GET that has not left yet.
    pub fn send() -> ScriptedEvent {
        ScriptedEvent::new(EventKind::Send)
    }

    /// Makes the ACK of this MD's oldest acknowledged PUT.
    pub fn ack() -> ScriptedEvent {
        ScriptedEvent::new(EventKind::Ack)
    }

    /// Makes the REPLY of this MD's oldest GET, with the MD's full length unless
    /// [`ScriptedEvent::bytes`] or [`ScriptedEvent::length`] set less.
    pub fn reply() -> ScriptedEvent {
        ScriptedEvent::new(EventKind::Reply)
    }

    /// Makes the arrival of a PUT, with the length that the MD takes unless
    /// [`ScriptedEvent::bytes`] or [`ScriptedEvent::length`] set another.
    pub fn put() -> ScriptedEvent {
        ScriptedEvent::new(EventKind::Put)
    }

    /// Makes the arrival of a GET and its answer, with the length that the MD has left unless
    /// [`ScriptedEvent::length`] sets another.
    pub fn get() -> ScriptedEvent {
        ScriptedEvent::new(EventKind::Get)
    }

    /// Sets the payload of a PUT or REPLY: it is written into the MD's memory before the event is
    /// delivered.
    #[must_use]
    pub fn bytes(mut self, bytes: impl Into<Vec<u8>>) -> ScriptedEvent {
        self.bytes = Some(bytes.into());
        self
    }

    /// Sets the requested length (`rlength`) without any content: the memory stays unchanged.
    #[must_use]
    pub fn length(mut self, bytes: u32) -> ScriptedEvent {
        self.rlength = Some(bytes);
        self
    }

    /// Sets the offset in bytes in a PUT's or GET's header. An MD without `MANAGE_REMOTE` has its
    /// own offset, and any other is [impossible](ScriptedEvent::impossible).
    #[must_use]
    pub fn offset(mut self, bytes: u64) -> ScriptedEvent {
        self.offset = Some(bytes);
        self
    }

    /// Sets the header data: 64 bits that a PUT carries in its header.
    #[must_use]
    pub fn hdr_data(mut self, hdr_data: u64) -> ScriptedEvent {
        self.hdr_data = Some(hdr_data);
        self
    }

    /// Sets the source process of a message, which the match entry must accept.
    #[must_use]
    pub fn from(mut self, source: ProcessId) -> ScriptedEvent {
        self.source = Some(source);
        self
    }

    /// Sets the primary NID and the PID of the source process, if the header names another NID.
    #[must_use]
    pub fn initiator(mut self, initiator: ProcessId) -> ScriptedEvent {
        self.initiator = Some(initiator);
        self
    }

    /// Sets the last hop, if a router forwarded the message.
    #[must_use]
    pub fn sender(mut self, sender: Nid) -> ScriptedEvent {
        self.sender = Some(sender);
        self
    }

    /// Sets the target process of a message: one of the node's own.
    #[must_use]
    pub fn target(mut self, target: ProcessId) -> ScriptedEvent {
        self.target = Some(target);
        self
    }

    /// Sets the match bits of a message, which the match entry must accept.
    #[must_use]
    pub fn match_bits(mut self, bits: MatchBits) -> ScriptedEvent {
        self.match_bits = Some(bits);
        self
    }

    /// Sets a failure. A SEND that fails ends its operation: no ACK or REPLY follows.
    #[must_use]
    pub fn failed(mut self, errno: Errno) -> ScriptedEvent {
        self.status = Some(Err(errno));
        self
    }

    /// Sets success, although the MD was unlinked while the message was in flight. LNet gives
    /// ETIMEDOUT in this case; older versions did not.
    #[must_use]
    pub fn succeeded(mut self) -> ScriptedEvent {
        self.status = Some(Ok(()));
        self
    }

    /// Sets `unlinked`, which LNet normally decides. Use this where LNet may do either (a response
    /// that is late, ETIMEDOUT), for [impossible](ScriptedEvent::impossible) events, and as an
    /// assertion.
    #[must_use]
    pub fn last(mut self) -> ScriptedEvent {
        self.unlinked = Some(true);
        self
    }

    /// Clears `unlinked`, which LNet normally decides. Use this where LNet may do either (more
    /// messages are in flight on an MD that was unlinked; a SEND that failed does not count as the
    /// GET's REPLY), for [impossible](ScriptedEvent::impossible) events, and as an assertion.
    #[must_use]
    pub fn not_last(mut self) -> ScriptedEvent {
        self.unlinked = Some(false);
        self
    }

    /// Delivers the event although LNet would never give it: the only check is that the MD exists.
    /// For programs that must survive a broken LNet.
    #[must_use]
    pub fn impossible(mut self) -> ScriptedEvent {
        self.impossible = true;
        self
    }

    /// Sets the accepted length (`mlength`), against LNet's rules; such an event is
    /// [impossible](ScriptedEvent::impossible).
    #[must_use]
    pub fn mlength(mut self, bytes: u32) -> ScriptedEvent {
        self.mlength = Some(bytes);
        self.impossible()
    }

    /// Sets the portal index in the header, against LNet's rules; such an event is
    /// [impossible](ScriptedEvent::impossible).
    #[must_use]
    pub fn portal(mut self, index: u32) -> ScriptedEvent {
        self.portal = Some(index);
        self.impossible()
    }

    /// Sets another `user_ptr` than the MD's; such an event is
    /// [impossible](ScriptedEvent::impossible).
    #[must_use]
    pub fn user_ptr(mut self, user_ptr: u64) -> ScriptedEvent {
        self.user_ptr = Some(user_ptr);
        self.impossible()
    }

    /// Returns the event: fields that were set, and the derived values for the others.
    pub(crate) fn over(&self, derived: Event) -> Event {
        let bytes = self.bytes.as_ref().map(|bytes| bytes.len() as u32);
        let rlength = self.rlength.or(bytes).unwrap_or(derived.rlength);
        let source = self.source.unwrap_or(derived.source);
        let from = self.source.map(|source| source.nid);
        Event {
            kind: self.kind,
            target: self.target.unwrap_or(derived.target),
            initiator: self.initiator.or(self.source).unwrap_or(derived.initiator),
            source,
            sender: self.sender.or(from).unwrap_or(derived.sender),
            portal: self.portal.unwrap_or(derived.portal),
            match_bits: self.match_bits.unwrap_or(derived.match_bits),
            hdr_data: self.hdr_data.unwrap_or(derived.hdr_data),
            rlength,
            mlength: self.mlength.unwrap_or(derived.mlength),
            offset: self.offset.unwrap_or(derived.offset),
            md: derived.md,
            user_ptr: self.user_ptr.unwrap_or(derived.user_ptr),
            status: self.status.unwrap_or(derived.status),
            unlinked: self.unlinked.unwrap_or(derived.unlinked),
        }
    }
}

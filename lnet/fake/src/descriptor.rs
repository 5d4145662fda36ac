//! A memory descriptor: the events that LNet could give, and the state after each (lnet-semantics 5
//! to 9).

use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet_api::{
    AckRequest, EqHandle, Errno, Event, EventKind, Get, Md, MdHandle, MdOptions, MeHandle, MeSpec, Put,
    Threshold, Unlink,
};
use lnet_nid::{MatchBits, Net, Nid, Pid, ProcessId};
use lnet_proto::MAX_PAYLOAD;
use lnet_region::{IoVec, ReadVec};
use parking_lot::Mutex;

use crate::ScriptedEvent;

/// The default source of messages, if the match entry accepts any.
pub const DEFAULT_PEER: ProcessId = ProcessId::lnet(Nid::new_v4(Net::TCP, Ipv4Addr::new(198, 51, 100, 1)));

/// The state of an MD.
pub(crate) struct Descriptor {
    pub(crate) handle: MdHandle,
    pub(crate) memory: IoVec,
    pub(crate) eq: Option<EqHandle>,
    options: MdOptions,
    max_size: Option<u32>,
    user_ptr: u64,
    auto_unlink: bool,
    /// The entry to which the MD is attached; none if the MD is bound.
    pub(crate) entry: Option<(MeHandle, MeSpec)>,
    /// True if the MD was unlinked while a message was in flight: its handle is invalid, its last
    /// event is still to come.
    pub(crate) aborted: bool,
    progress: Progress,
    /// Held while an event of the MD is delivered, so that two never overlap (S-311).
    pub(crate) gate: Arc<Mutex<()>>,
    /// The number of the call that made the MD.
    pub(crate) made_by: u64,
}

/// The state that changes with each operation and each event.
#[derive(Clone)]
struct Progress {
    threshold: Threshold,
    /// The offset of the next message, if the MD manages offsets.
    offset: u64,
    operations: Vec<Operation>,
}

/// A PUT or GET of a bound MD with events still to come.
#[derive(Clone)]
struct Operation {
    /// The SEND event of the operation.
    send: Event,
    /// True if the SEND has been delivered.
    sent: bool,
    /// The ACK or REPLY that is still to come.
    response: Option<EventKind>,
    /// The process that sends the PUT or GET.
    from: ProcessId,
    /// The lease of a PUT in flight, so that its memory is not written to.
    lease: Option<Arc<ReadVec>>,
}

impl Descriptor {
    pub(crate) fn new(
        handle: MdHandle,
        md: Md,
        unlink: Unlink,
        entry: Option<(MeHandle, MeSpec)>,
        made_by: u64,
    ) -> Descriptor {
        Descriptor {
            handle,
            max_size: md.options.contains(MdOptions::MAX_SIZE).then_some(md.max_size),
            memory: md.memory,
            eq: md.eq,
            options: md.options,
            user_ptr: md.user_ptr,
            auto_unlink: unlink == Unlink::Auto,
            entry,
            aborted: false,
            progress: Progress { threshold: md.threshold, offset: 0, operations: Vec::new() },
            gate: Arc::default(),
            made_by,
        }
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.progress.is_exhausted(self)
    }

    /// Returns whether the MD takes a message with this option (rows 1 and 2 of lnet-semantics 9;
    /// [`matches`] checks its entry).
    pub(crate) fn takes(&self, allows: MdOptions) -> bool {
        !self.aborted && self.options.contains(allows) && !self.is_exhausted()
    }

    /// Returns whether a PUT or GET of the MD has not left yet.
    pub(crate) fn is_sending(&self) -> bool {
        self.progress.is_sending()
    }

    /// Returns an event of this kind without content.
    fn blank(&self, kind: EventKind) -> Event {
        Event { md: self.handle, user_ptr: self.user_ptr, ..Event::blank(kind, ProcessId::ANY) }
    }

    /// Returns the event of an explicit unlink of an idle MD.
    pub(crate) fn unlink_event(&self) -> Event {
        Event { unlinked: true, ..self.blank(EventKind::Unlink) }
    }

    /// Starts a PUT of the program.
    pub(crate) fn begin_put(&mut self, put: &Put, from: ProcessId, lease: Option<ReadVec>) {
        let send = Event {
            hdr_data: put.hdr_data,
            ..self.send_event(put.target, put.portal.get(), put.match_bits, put.offset)
        };
        let response = (put.ack == AckRequest::Ack).then_some(EventKind::Ack);
        self.begin(Operation { send, sent: false, response, from, lease: lease.map(Arc::new) });
    }

    /// Starts a GET of the program.
    pub(crate) fn begin_get(&mut self, get: &Get, from: ProcessId) {
        let send = self.send_event(get.target, get.portal.get(), get.match_bits, get.offset);
        self.begin(Operation { send, sent: false, response: Some(EventKind::Reply), from, lease: None });
    }

    fn begin(&mut self, mut operation: Operation) {
        operation.send.initiator.pid = operation.from.pid;
        operation.send.source.pid = operation.from.pid;
        self.progress.consume();
        self.progress.operations.push(operation);
    }

    fn send_event(&self, target: ProcessId, portal: u32, match_bits: MatchBits, offset: u32) -> Event {
        let length = self.memory.len() as u32;
        Event {
            target,
            portal,
            match_bits,
            rlength: length,
            mlength: length,
            offset: u64::from(offset),
            ..self.blank(EventKind::Send)
        }
    }

    /// Returns the event that would be delivered.
    ///
    /// # Errors
    /// The reason why LNet would not give the event.
    pub(crate) fn preview(&self, scripted_event: &ScriptedEvent, own: &[ProcessId]) -> Result<Event, String> {
        self.event(&mut self.progress.clone(), scripted_event, own)
    }

    /// Applies an event to the MD and returns the event.
    ///
    /// # Errors
    /// The reason why LNet would not give the event.
    pub(crate) fn happen(
        &mut self,
        scripted_event: &ScriptedEvent,
        own: &[ProcessId],
    ) -> Result<Event, String> {
        let mut progress = self.progress.clone();
        match self.event(&mut progress, scripted_event, own) {
            Ok(event) => {
                self.progress = progress;
                Ok(event)
            }
            Err(_) if scripted_event.impossible => {
                let told = scripted_event.over(self.blank(scripted_event.kind));
                Ok(Event { mlength: scripted_event.mlength.unwrap_or(told.rlength), ..told })
            }
            Err(why) => Err(why),
        }
    }

    fn event(
        &self,
        progress: &mut Progress,
        scripted_event: &ScriptedEvent,
        own: &[ProcessId],
    ) -> Result<Event, String> {
        let event = match scripted_event.kind {
            EventKind::Send => self.sent(progress, scripted_event)?,
            EventKind::Ack | EventKind::Reply => self.answered(progress, scripted_event)?,
            EventKind::Put | EventKind::Get => self.arrived(progress, scripted_event, own)?,
            EventKind::Unlink => {
                return Err("UNLINK comes from `md_unlink` alone, and inside that call".into());
            }
        };
        let ends = progress.ends(self);
        let last = scripted_event.unlinked.unwrap_or(ends);
        if last != ends && !scripted_event.impossible {
            self.check_end(progress, &event, last)?;
        }
        let late = last && self.aborted && scripted_event.status.is_none();
        let status = if late { Err(Errno::ETIMEDOUT) } else { event.status };
        let event = Event { status, unlinked: last, ..event };
        Ok(if scripted_event.impossible { scripted_event.over(event) } else { event })
    }

    fn sent(&self, progress: &mut Progress, scripted_event: &ScriptedEvent) -> Result<Event, String> {
        let waiting = progress.operations.iter().position(|operation| !operation.sent);
        let index = waiting.ok_or("no PUT or GET of it is still to be sent")?;
        let operation = &mut progress.operations[index];
        let send = scripted_event.over(operation.send);
        (operation.sent, operation.lease) = (true, None);
        let lost = send.status.is_err() && operation.response.take().is_some();
        if operation.response.is_none() {
            progress.operations.remove(index);
        }
        // The failed SEND also uses up the ACK or REPLY, which will never come, unless the test
        // sets otherwise.
        if lost && scripted_event.unlinked != Some(false) {
            progress.consume();
        }
        Ok(send)
    }

    fn answered(&self, progress: &mut Progress, scripted_event: &ScriptedEvent) -> Result<Event, String> {
        let kind = scripted_event.kind;
        let waiting = progress.operations.iter().position(|operation| operation.response == Some(kind));
        let index = waiting.ok_or(match kind {
            EventKind::Ack => "no PUT of it waits for an ACK",
            _ => "no GET of it waits for a REPLY",
        })?;
        let operation = &mut progress.operations[index];
        operation.response = None;
        let (to, from, match_bits) = (operation.send.target, operation.from, operation.send.match_bits);
        if operation.sent {
            progress.operations.remove(index);
        }
        progress.consume();
        let length = self.memory.len() as u32;
        let answer = Event { target: from, initiator: to, source: to, sender: to.nid, ..self.blank(kind) };
        if kind == EventKind::Ack {
            return Ok(scripted_event.over(Event { match_bits, mlength: length, ..answer }));
        }
        let answer = scripted_event.over(Event { rlength: length, ..answer });
        if answer.rlength > length {
            return Err(format!("a REPLY of {} bytes does not fit its {length} bytes", answer.rlength));
        }
        Ok(Event { mlength: answer.rlength, ..answer })
    }

    fn arrived(
        &self,
        progress: &mut Progress,
        scripted_event: &ScriptedEvent,
        own: &[ProcessId],
    ) -> Result<Event, String> {
        let put = scripted_event.kind == EventKind::Put;
        let (allows, name) = if put { (MdOptions::OP_PUT, "PUT") } else { (MdOptions::OP_GET, "GET") };
        let (_, entry) = self.entry.as_ref().ok_or("it is bound: messages arrive at attached MDs alone")?;
        if !self.options.contains(allows) {
            return Err(format!("it does not allow {name}"));
        }
        if !self.aborted && progress.is_exhausted(self) {
            return Err("it is exhausted".into());
        }
        let source = named(entry.match_id);
        let (offset, allowed) = self.room(progress, scripted_event);
        let found = scripted_event.over(Event {
            target: own.first().copied().unwrap_or(ProcessId::ANY),
            initiator: source,
            source,
            sender: source.nid,
            portal: entry.portal.get(),
            match_bits: entry.match_bits,
            rlength: allowed,
            offset,
            ..self.blank(scripted_event.kind)
        });
        if !matches(entry, found.initiator, found.match_bits) {
            let (bits, from) = (found.match_bits, found.initiator);
            return Err(format!("its match entry does not let in {bits} from {from}"));
        }
        if found.offset != offset {
            return Err(format!("its next message goes to offset {offset}, not to {}", found.offset));
        }
        if found.rlength > allowed && !self.options.contains(MdOptions::TRUNCATE) {
            return Err(format!("it takes {allowed} bytes more in one message, not {}", found.rlength));
        }
        let mlength = found.rlength.min(allowed);
        progress.consume();
        progress.offset = offset + u64::from(mlength);
        // The requested length of a GET is not visible in its event (lnet-semantics 8).
        let rlength = if put { found.rlength } else { 0 };
        Ok(Event { rlength, mlength, ..found })
    }

    /// Returns the offset of the next message, and its maximum length.
    fn room(&self, progress: &Progress, scripted_event: &ScriptedEvent) -> (u64, u32) {
        let remote = self.options.contains(MdOptions::MANAGE_REMOTE);
        let offset = if remote { scripted_event.offset.unwrap_or(0) } else { progress.offset };
        let limit = u64::from(self.max_size.unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD));
        (offset, (self.memory.len() as u64).saturating_sub(offset).min(limit) as u32)
    }

    /// Checks that LNet may give this event as the last one, or not as the last one, as the test
    /// has set.
    fn check_end(&self, progress: &Progress, event: &Event, last: bool) -> Result<(), String> {
        let response = matches!(event.kind, EventKind::Ack | EventKind::Reply);
        if last && response && event.status == Err(Errno::ETIMEDOUT) && !progress.is_sending() {
            return Ok(());
        }
        let more_in_flight = self.aborted && self.entry.is_some();
        match (last, more_in_flight) {
            (false, true) => Ok(()),
            (false, false) => Err("this is its last event".into()),
            (true, _) => Err("this cannot be its last event: it is not exhausted, or still sending".into()),
        }
    }
}

impl Progress {
    fn consume(&mut self) {
        if let Threshold::Limited(left) = &mut self.threshold {
            *left = left.saturating_sub(1);
        }
    }

    fn is_exhausted(&self, md: &Descriptor) -> bool {
        let full = |max_size| self.offset.saturating_add(u64::from(max_size)) > md.memory.len() as u64;
        self.threshold == Threshold::Limited(0) || md.max_size.is_some_and(full)
    }

    fn is_sending(&self) -> bool {
        self.operations.iter().any(|operation| !operation.sent)
    }

    fn ends(&self, md: &Descriptor) -> bool {
        !self.is_sending() && (md.aborted || (md.auto_unlink && self.is_exhausted(md)))
    }
}

/// Returns a process that an entry accepts.
fn named(match_id: ProcessId) -> ProcessId {
    ProcessId {
        nid: if match_id.nid.is_any() { DEFAULT_PEER.nid } else { match_id.nid },
        pid: if match_id.pid == Pid::ANY { DEFAULT_PEER.pid } else { match_id.pid },
    }
}

/// Returns whether an entry matches a message: the match rule, rows 3 to 5 (lnet-semantics 9).
pub(crate) fn matches(entry: &MeSpec, source: ProcessId, bits: MatchBits) -> bool {
    let differ = (entry.match_bits.0 ^ bits.0) & !entry.ignore_bits.0;
    let ProcessId { nid, pid } = entry.match_id;
    differ == 0 && (nid.is_any() || nid == source.nid) && (pid == Pid::ANY || pid == source.pid)
}

//! A memory descriptor: which events LNet could let happen to it, and what each leaves (lnet-semantics 5 to 9).

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

/// Whom messages come from that a test does not say the source of, if the match entry leaves it open.
pub const DEFAULT_PEER: ProcessId = ProcessId::lnet(Nid::new_v4(Net::TCP, Ipv4Addr::new(198, 51, 100, 1)));

/// An MD as LNet knows it.
pub(crate) struct Descriptor {
    pub(crate) handle: MdHandle,
    pub(crate) memory: IoVec,
    pub(crate) eq: Option<EqHandle>,
    options: MdOptions,
    max_size: Option<u32>,
    user_ptr: u64,
    auto_unlink: bool,
    /// The entry it is attached to; none if it is bound.
    pub(crate) entry: Option<(MeHandle, MeSpec)>,
    /// Unlinked while a message was in flight: its handle names nothing any more, its last event is still to come.
    pub(crate) aborted: bool,
    progress: Progress,
    /// Held while an event of it is delivered: they never overlap (S-311).
    pub(crate) gate: Arc<Mutex<()>>,
    /// The number of the call that made it.
    pub(crate) made_by: u64,
}

/// What changes with each operation and each event.
#[derive(Clone)]
struct Progress {
    threshold: Threshold,
    /// Where the next message goes if the offset is managed here.
    offset: u64,
    operations: Vec<Operation>,
}

/// A PUT or GET of a bound MD, some of whose events are still to come.
#[derive(Clone)]
struct Operation {
    /// Its SEND, as it will be.
    send: Event,
    /// The SEND has come.
    sent: bool,
    /// The ACK or REPLY that is to come.
    response: Option<EventKind>,
    /// Where it was sent from.
    from: ProcessId,
    /// While a PUT is in flight nobody may write to its memory.
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

    /// Whether it would take such a message (rows 1 and 2 of lnet-semantics 9; its entry is asked with [`matches`]).
    pub(crate) fn takes(&self, allows: MdOptions) -> bool {
        !self.aborted && self.options.contains(allows) && !self.is_exhausted()
    }

    /// A PUT or GET of its own has not left yet.
    pub(crate) fn is_sending(&self) -> bool {
        self.progress.is_sending()
    }

    /// An event of this kind with nothing in it.
    fn blank(&self, kind: EventKind) -> Event {
        Event { md: self.handle, user_ptr: self.user_ptr, ..Event::blank(kind, ProcessId::ANY) }
    }

    /// The event of an explicit unlink that finds it idle.
    pub(crate) fn unlink_event(&self) -> Event {
        Event { unlinked: true, ..self.blank(EventKind::Unlink) }
    }

    /// The program has issued a PUT.
    pub(crate) fn begin_put(&mut self, put: &Put, from: ProcessId, lease: Option<ReadVec>) {
        let send = Event {
            hdr_data: put.hdr_data,
            ..self.send_event(put.target, put.portal.get(), put.match_bits, put.offset)
        };
        let response = (put.ack == AckRequest::Ack).then_some(EventKind::Ack);
        self.begin(Operation { send, sent: false, response, from, lease: lease.map(Arc::new) });
    }

    /// The program has issued a GET.
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

    /// The event that would be, or why LNet would not let it happen.
    pub(crate) fn preview(&self, scripted_event: &ScriptedEvent, own: &[ProcessId]) -> Result<Event, String> {
        self.event(&mut self.progress.clone(), scripted_event, own)
    }

    /// Lets something happen: gives the event, or why LNet would not let it happen.
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
        // What will never come counts as come, unless the test says that it does not.
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
        // What a GET asked for is not visible in its event (lnet-semantics 8).
        let rlength = if put { found.rlength } else { 0 };
        Ok(Event { rlength, mlength, ..found })
    }

    /// Where the next message goes, and how long it may be.
    fn room(&self, progress: &Progress, scripted_event: &ScriptedEvent) -> (u64, u32) {
        let remote = self.options.contains(MdOptions::MANAGE_REMOTE);
        let offset = if remote { scripted_event.offset.unwrap_or(0) } else { progress.offset };
        let limit = u64::from(self.max_size.unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD));
        (offset, (self.memory.len() as u64).saturating_sub(offset).min(limit) as u32)
    }

    /// Whether LNet has a choice about which event is the last, and this is one.
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

/// A process that an entry lets in.
fn named(match_id: ProcessId) -> ProcessId {
    ProcessId {
        nid: if match_id.nid.is_any() { DEFAULT_PEER.nid } else { match_id.nid },
        pid: if match_id.pid == Pid::ANY { DEFAULT_PEER.pid } else { match_id.pid },
    }
}

/// The match rule, rows 3 to 5 (lnet-semantics 9).
pub(crate) fn matches(entry: &MeSpec, source: ProcessId, bits: MatchBits) -> bool {
    let differ = (entry.match_bits.0 ^ bits.0) & !entry.ignore_bits.0;
    let ProcessId { nid, pid } = entry.match_id;
    differ == 0 && (nid.is_any() || nid == source.nid) && (pid == Pid::ANY || pid == source.pid)
}

//! How a PUT or GET of this node begins.

use lnet_api::{AckRequest, Event, EventKind, Get, LNetError, Md, MdHandle, Put};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};

use super::Engine;
use crate::common::Common;
use crate::message::{Launch, Local, Message, Op, Way};
use crate::names::{MdName, Place};
use crate::net::{Launched, Leaving};
use crate::resources::Bound;
use crate::work::Work;

/// A PUT or GET, whatever MD it is of.
#[derive(Clone, Copy)]
pub(super) struct Request {
    op: Op,
    /// The local NID to send from, if the program has chosen one.
    via: Option<Nid>,
    target: ProcessId,
    /// The kind of the answer that is waited for.
    answer: Option<EventKind>,
    portal: u32,
    match_bits: MatchBits,
    offset: u32,
    /// 0 for a GET.
    hdr_data: u64,
}

impl Request {
    pub(super) fn of_put<M>(put: &Put<M>) -> Request {
        let &Put { source: via, ack, target, portal, match_bits, offset, hdr_data, .. } = put;
        let answer = (ack == AckRequest::Ack).then_some(EventKind::Ack);
        Request { op: Op::Put, via, target, answer, portal: portal.get(), match_bits, offset, hdr_data }
    }

    pub(super) fn of_get<M>(get: &Get<M>) -> Request {
        let &Get { source: via, target, portal, match_bits, offset, .. } = get;
        let (answer, portal) = (Some(EventKind::Reply), portal.get());
        Request { op: Op::Get, via, target, answer, portal, match_bits, offset, hdr_data: 0 }
    }

    /// The body of its header, of an MD of this length; `handle` is what an answer names.
    fn body(&self, length: u32, handle: WireHandle) -> Body {
        let &Request { op, answer, portal, match_bits, offset, hdr_data, .. } = self;
        match op {
            Op::Put => {
                let ack_wmd = answer.map_or(WireHandle::NONE, |_| handle);
                Body::Put { ack_wmd, match_bits, hdr_data, portal, offset }
            }
            _ => {
                let (src_offset, sink_length) = (offset, length);
                Body::Get { return_wmd: handle, match_bits, portal, src_offset, sink_length }
            }
        }
    }

    /// Its SEND event.
    fn event(&self, common: &Common, length: u32) -> Event {
        let &Request { target, portal, match_bits, offset, hdr_data, .. } = self;
        Event {
            target,
            portal,
            match_bits,
            hdr_data,
            rlength: length,
            mlength: length,
            offset: u64::from(offset),
            ..common.event(EventKind::Send)
        }
    }
}

impl Engine {
    /// Sends a PUT or GET from a bound MD.
    pub(super) fn send(&self, md: MdHandle, request: &Request) -> Result<(), LNetError> {
        self.with(|work| {
            let gone = || LNetError::NoSuch { object: "MD", handle: md.0 };
            let (place, key) = self.common.handles.open_md(md).ok_or_else(gone)?;
            let Place { bound: true, partition } = place else { return Err(gone()) };
            let named = |bound: &mut Bound| bound.sendable(key).ok_or_else(gone);
            self.begin(partition, request, work, named, false)
        })
    }

    /// Makes an MD and sends a PUT or GET from it. Returns its handle, unless it has ended by then.
    pub(super) fn bind_and_send(&self, md: Md, request: &Request) -> Result<Option<MdHandle>, LNetError> {
        md.check_sent()?;
        self.with(|work| {
            self.begin(self.common.here(), request, work, |bound| bound.make(md), true)?;
            // What has gone wrong already ends the MD.
            self.run(work);
            Ok(work.made.map(|MdName { place, key }| self.common.handles.md(place, key)))
        })
    }

    /// Commits the MD that `choose` gives under the lock of its partition to a PUT or GET: finds the way, and launches the message
    /// if its peer is in the partition in which the way is looked for, as nearly always. An MD that was made for this is freed
    /// again on an error.
    ///
    /// This is the one place where a net lock is taken under another: under that of the MD's partition. So the MD is either not
    /// committed at all, or its message is under way.
    fn begin(
        &self,
        partition: usize,
        request: &Request,
        work: &mut Work,
        choose: impl FnOnce(&mut Bound) -> Result<u32, LNetError>,
        is_made: bool,
    ) -> Result<(), LNetError> {
        // A message to this node itself belongs to no peer.
        let home = match request.target.nid.is_loopback() {
            true => self.common.here(),
            false => request.target.nid.cpt_of(self.common.partitions()),
        };
        let header;
        let (mut local, mut elsewhere) = (None, None);
        let ready = {
            let bound = &mut *self.bound.lock(partition);
            let md = choose(bound)?;
            let mut net = self.net.lock(home);
            let (part, shared) = net.split();
            let &Request { via: source, target, portal, .. } = request;
            let leaving = Leaving { source, target, portal, partition };
            let committed = part.route(shared, &leaving).and_then(|route| {
                let committed = bound.commit(md, request.op, request.answer, request.target, &route)?;
                Ok((route, committed))
            });
            let (route, committed) = match committed {
                Ok(committed) => committed,
                Err(error) => {
                    if is_made {
                        bound.unmake(md, work);
                    }
                    return Err(error);
                }
            };
            work.made = is_made.then_some(committed.md);
            let (op, length, payload) = (request.op, committed.length, committed.payload);
            let event = request.event(&self.common, length);
            let message = Message { op, md: Some(committed.md), event, response: committed.response };
            header = Header {
                dest: request.target,
                src: ProcessId::new(route.source, self.common.config.pid),
                payload_length: if op == Op::Put { length } else { 0 },
                body: request.body(length, committed.handle),
            };
            let way = route.way;
            match way {
                Way::Here => {
                    part.count_loopback(op.kind(), header.payload_length);
                    local = Some(Local { message, payload });
                    None
                }
                Way::Over { partition, .. } if partition == home => {
                    let launch = Launch { way, message, header, payload, reply_to: None };
                    match part.launch(shared, launch, work) {
                        Some(Launched::Ready(outgoing)) => Some(outgoing),
                        Some(Launched::Waits(_, token)) => {
                            bound.remember(committed.md.key, token, work);
                            None
                        }
                        None => None,
                    }
                }
                // Its NI has some of the partitions alone.
                Way::Over { .. } => {
                    elsewhere = Some(Launch { way, message, header, payload, reply_to: None });
                    None
                }
            }
        };
        if let Some(outgoing) = ready {
            self.hand_over(outgoing, work);
        } else if local.is_some() {
            self.deliver_here(&mut local, &header, work);
        } else if let Some(launch) = elsewhere {
            self.launch(launch, work);
        }
        Ok(())
    }
}

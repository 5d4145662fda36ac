//! The suite's world over the fake LNet, which delivers only the events that a test scripts.

use std::sync::Arc;

use lnet_api::{AckRequest, Dropped, Errno, EventKind, LNet, MdHandle};
use lnet_fake::{Call, FakeLnet, ScriptedEvent};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_proto::WireHandle;

use super::{Arriving, Body, Finish, OWN_NID, SentMessage, World};

pub(crate) struct FakeWorld {
    pub(crate) fake: Arc<FakeLnet>,
}

impl FakeWorld {
    pub(crate) fn new(partitions: usize) -> FakeWorld {
        FakeWorld { fake: FakeLnet::with_partitions(&[OWN_NID, "0@lo"], partitions) }
    }

    /// Loses a PUT for which there is no buffer.
    fn lose(&self, initiator: ProcessId, portal: u32, match_bits: MatchBits, bytes: usize) {
        let target = ProcessId::lnet(OWN_NID.parse().unwrap());
        self.fake.lose_put(&Dropped { target, portal, match_bits, initiator, length: bytes as u32 });
    }

    /// Begins an event: until it is finished, an unlink of the MD finds it in use.
    fn begin(&self, md: MdHandle, scripted_event: ScriptedEvent) -> Option<Finish<'_>> {
        self.fake.could_happen(md, &scripted_event).ok()?;
        self.fake.set_busy(true);
        Some(Box::new(move |result| {
            self.fake.set_busy(false);
            // A SEND that failed, or that ended an unlinked operation, has removed the MD.
            let scripted_event = with_result(scripted_event, result);
            if self.fake.could_happen(md, &scripted_event).is_ok() {
                self.fake.inject(md, scripted_event);
            }
        }))
    }
}

impl World for FakeWorld {
    fn lnet(&self) -> Arc<dyn LNet> {
        self.fake.clone()
    }

    fn outgoing(&self) -> Vec<SentMessage> {
        let waits = |md| self.fake.could_happen(md, ScriptedEvent::send()).is_ok();
        let message = |call| {
            let message = match call {
                Call::BindPut { put, .. } if waits(put.md) => SentMessage {
                    id: put.md.0,
                    is_get: false,
                    to: put.target,
                    portal: put.portal.get(),
                    bits: put.match_bits,
                    offset: put.offset,
                    hdr_data: put.hdr_data,
                    length: self.fake.memory(put.md).len(),
                    payload: self.fake.payload(put.md),
                    ack: put.ack == AckRequest::Ack,
                    handle: WireHandle::NONE,
                },
                Call::BindGet { get, .. } if waits(get.md) => SentMessage {
                    id: get.md.0,
                    is_get: true,
                    to: get.target,
                    portal: get.portal.get(),
                    bits: get.match_bits,
                    offset: get.offset,
                    hdr_data: 0,
                    length: self.fake.memory(get.md).len(),
                    payload: Vec::new(),
                    ack: false,
                    handle: WireHandle::NONE,
                },
                _ => return None,
            };
            Some(message)
        };
        self.fake.calls().into_iter().filter_map(message).collect()
    }

    fn leave(&self, message: &SentMessage, result: Result<(), Errno>) {
        self.fake.inject(MdHandle(message.id), with_result(ScriptedEvent::send(), result));
    }

    fn arrive(&self, message: &Arriving) -> Option<Finish<'_>> {
        let from = message.from;
        let matching = |kind, portal, bits| self.fake.matching(kind, from, Portal::new(portal).ok()?, bits);
        match &message.body {
            Body::Put { portal, bits, hdr_data, payload } => {
                let put = ScriptedEvent::put().bytes(payload.clone()).hdr_data(*hdr_data);
                let taken = matching(EventKind::Put, *portal, *bits)
                    .and_then(|md| self.begin(md, put.from(from).match_bits(*bits)));
                if taken.is_none() {
                    self.lose(from, *portal, *bits, payload.len());
                }
                taken
            }
            Body::Get { portal, bits, length } => {
                let get = ScriptedEvent::get().length(*length).from(from);
                self.begin(matching(EventKind::Get, *portal, *bits)?, get)
            }
            Body::Reply { to, payload } => {
                self.begin(MdHandle(to.id), ScriptedEvent::reply().bytes(payload.clone()))
            }
            // The engine gives no event for an ACK that was not requested; Motr's tests have such
            // events.
            Body::Ack { to } => {
                let md = MdHandle(to.id);
                if to.ack {
                    return self.begin(md, ScriptedEvent::ack());
                }
                self.fake.has_md(md).then(|| -> Finish<'_> {
                    Box::new(move |_| {
                        self.fake.inject(md, ack_from(from));
                    })
                })
            }
        }
    }

    fn audit(&self) {
        let objects = self.fake.objects();
        assert_eq!((objects.mes, objects.mds), (0, 0));
        self.fake.take_calls();
    }
}

fn ack_from(from: ProcessId) -> ScriptedEvent {
    ScriptedEvent::ack().from(from).impossible()
}

fn with_result(scripted_event: ScriptedEvent, result: Result<(), Errno>) -> ScriptedEvent {
    match result {
        Ok(()) => scripted_event,
        Err(errno) => scripted_event.failed(errno),
    }
}

//! Completion: messages that have left or arrived, and GETs that the network answers by itself.

use lnet_api::{Errno, Event, EventKind, RxToken, TxToken};
use lnet_nid::ProcessId;
use lnet_proto::{Body, Header};
use lnet_region::WriteVec;

use crate::common::Common;
use crate::engine::Engine;
use crate::message::{Launch, Message, Op, Way};
use crate::names::{MdName, Place, RxName, unpack};
use crate::resources::Resources;
use crate::resources::{Intake, Receiving};
use crate::slab::{Key, NONE};
use crate::work::{Ack, Work};

/// How many slots of a table, or links of a list, one hold of its lock looks at when all is searched for what fails.
pub(crate) const FAIL_BATCH: u32 = 1024;

impl Engine {
    /// Tells the owner of a message that it has left, or could not.
    pub(crate) fn end_outgoing(&self, message: &Message, result: Result<(), Errno>, work: &mut Work) {
        let Some(MdName { place, key: Key { index, .. } }) = message.md else { return };
        let part = &mut *self.table(place.bound).lock(place.partition);
        if message.op != Op::Reply {
            part.end_request(message, index, result);
        }
        part.finish(&self.common, index, &message.event, result, work);
    }

    /// A payload is in place, or was lost.
    pub(crate) fn received(&self, token: RxToken, result: Result<(), Errno>, work: &mut Work) {
        let RxName::Receiving(Place { bound, partition }, key) = RxName::open(token) else { return };
        if partition >= self.common.partitions() {
            return;
        }
        let part = &mut *self.table(bound).lock(partition);
        if let Some(receiving) = part.receiving.remove(key) {
            part.end_incoming(&self.common, &receiving, result, work);
        }
    }

    /// Ends the messages being received over some hop that will not be finished.
    pub(crate) fn fail_receiving(
        &self,
        partition: usize,
        which: impl Fn(&Way) -> bool,
        reason: Errno,
        work: &mut Work,
    ) {
        for bound in [false, true] {
            self.in_batches(0, work, |next: u32, work| {
                let part = &mut *self.table(bound).lock(partition);
                let end = part.receiving.used().min(next.saturating_add(FAIL_BATCH));
                for index in next..end {
                    if !work.has_room() {
                        return Some(index);
                    }
                    let fails = part.receiving.at(index).is_some_and(|receiving| which(&receiving.back));
                    if fails && let Some(receiving) = part.receiving.take(index) {
                        part.end_incoming(&self.common, &receiving, Err(reason), work);
                    }
                }
                (end < part.receiving.used()).then_some(end)
            });
        }
    }

    /// Does something to much of a table, which takes its lock for one batch at a time. `hold` takes it, and gives where
    /// to go on; what follows from the batch is done before the next one, without the lock.
    pub(crate) fn in_batches<At>(
        &self,
        start: At,
        work: &mut Work,
        mut hold: impl FnMut(At, &mut Work) -> Option<At>,
    ) {
        let mut next = Some(start);
        while let Some(at) = next {
            next = hold(at, work);
            self.run(work);
            work.garbage.clear();
        }
    }

    /// The memory for a GET that the network answers by itself.
    pub(crate) fn direct_sink(&self, token: TxToken) -> Option<WriteVec> {
        let (partition, key) = self.tx_name(token)?;
        let (name, response) = { self.net.lock(partition).get_under_way(key, Op::Get)? };
        let sink = {
            let part = self.bound.lock(name.place.partition);
            part.responses.get(response)?;
            let memory = &part.objects.md(name.key.index).memory;
            memory.incoming(0..memory.len()).ok()?
        };
        self.net.lock(partition).make_direct(key)?;
        Some(sink)
    }

    /// The network has answered a GET by itself: SEND, then REPLY.
    pub(crate) fn direct_end(&self, token: TxToken, result: Result<u32, Errno>, work: &mut Work) {
        let Some((partition, key)) = self.tx_name(token) else { return };
        let direct = { self.net.lock(partition).get_under_way(key, Op::DirectGet) };
        let Some((name, response)) = direct else { return };
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(errno) => return self.left(token, Err(errno), work),
        };
        let event = {
            let part = &mut *self.bound.lock(name.place.partition);
            part.claim_reply(&self.common, name.key.index, response, bytes)
        };
        self.left(token, Ok(()), work);
        if let Some(event) = event {
            let part = &mut *self.bound.lock(name.place.partition);
            part.counters.recv_count += 1;
            part.counters.recv_length += u64::from(event.mlength);
            part.finish(&self.common, name.key.index, &event, Ok(()), work);
        }
    }

    /// The partition and key of a message that is sent.
    fn tx_name(&self, token: TxToken) -> Option<(usize, Key)> {
        let (partition, key) = unpack(token.0);
        (partition < self.common.partitions()).then_some((partition, key))
    }
}

impl Work {
    /// Whether another operation can fail under the same lock: there is memory for what follows from it. There always is
    /// when nothing else is left to do.
    pub(crate) fn has_room(&mut self) -> bool {
        self.wakes.try_reserve(1).is_ok() && self.garbage.try_reserve(1).is_ok() && self.pushed.reserve(1)
    }
}

impl Resources {
    /// What becomes of the ACK or REPLY to a PUT or GET that has left, or could not. After a failure no answer will come;
    /// it counts as come, so that an MD made for this operation alone ends here.
    fn end_request(&mut self, message: &Message, md: u32, result: Result<(), Errno>) {
        if self.responses.get(message.response).is_none() {
            return;
        }
        match result {
            Ok(()) => self.responses[message.response.index].sent = true,
            Err(_) => {
                self.remove_response(message.response.index);
                self.objects.md_mut(md).consume();
            }
        }
    }

    /// Takes the REPLY that the network has put in place, unless it is not waited for any more; gives its event.
    fn claim_reply(&mut self, common: &Common, md: u32, response: Key, bytes: u32) -> Option<Event> {
        let found = self.responses.get(response)?;
        let mlength = bytes.min(self.objects.md(md).len() as u32);
        let event = Event { rlength: mlength, mlength, ..found.event(common) };
        self.remove_response(response.index);
        self.begin(md);
        Some(event)
    }

    /// The event of a received PUT or REPLY, then the ACK.
    pub(crate) fn end_incoming(
        &mut self,
        common: &Common,
        receiving: &Receiving,
        result: Result<(), Errno>,
        work: &mut Work,
    ) {
        match result {
            Ok(()) => {
                self.counters.recv_count += 1;
                self.counters.recv_length += u64::from(receiving.event.mlength);
            }
            Err(_) => self.counters.errors += 1,
        }
        if receiving.md != NONE {
            self.finish(common, receiving.md, &receiving.event, result, work);
        }
        if receiving.kind == Intake::Push {
            work.pushed.push(receiving.back);
        }
        if result.is_ok() && !receiving.ack.is_none() {
            work.acks.push(Ack::of(receiving));
        }
    }
}

impl Ack {
    fn of(put: &Receiving) -> Ack {
        let Event { source, target, match_bits, mlength, .. } = put.event;
        Ack { way: put.back, dest: source, src: target.nid, dst_wmd: put.ack, match_bits, mlength }
    }

    /// The message.
    pub(crate) fn launch(self, common: &Common) -> Launch {
        let Ack { way, dest, src, dst_wmd, match_bits, mlength } = self;
        let src = ProcessId::new(src, common.config.pid);
        let header =
            Header { dest, src, payload_length: 0, body: Body::Ack { dst_wmd, match_bits, mlength } };
        // Nobody is told of it.
        let event = common.event(EventKind::Send);
        let message = Message { op: Op::Ack, md: None, event, response: Key::NULL };
        Launch { way, message, header, payload: None, reply_to: None }
    }
}

//! Actions after the locks are released: messages are launched, handed over and finalised.

use lnet_api::{Errno, PayloadTarget, RxContext, Sent, TxToken, Verdict};

use super::Engine;
use crate::message::{AdmittedMessage, Inbound, Launch, Launched, Local, OutgoingMessage, Path};
use crate::names::{MdName, unpack};
use crate::resources::{MdTable, Resources};
use crate::slab::Key;
use crate::wake;
use crate::work::{DeferredWork, EndedMessage};

impl Engine {
    /// Runs `decide`, which takes the locks that it needs, then performs the actions that it has
    /// queued.
    pub(super) fn with<R>(&self, decide: impl FnOnce(&mut DeferredWork) -> R) -> R {
        let mut work = DeferredWork::default();
        let result = decide(&mut work);
        self.run(&mut work);
        if work.is_bare() {
            // An empty list needs no drop: skipping it saves one call per list for each message.
            std::mem::forget(work);
        }
        result
    }

    /// Performs the queued actions without a lock, until no more follow. A loop, not a recursion: a
    /// message that fails at once starts the next one, which may fail at once too.
    pub(super) fn run(&self, work: &mut DeferredWork) {
        while !work.is_empty() {
            // Each list is processed up to its present length only: the actions that these add run
            // in the next round.
            for _ in 0..work.launches.len() {
                let Some(launch) = work.launches.pop() else { break };
                self.launch(launch, work);
            }
            for _ in 0..work.acks.len() {
                let Some(ack) = work.acks.pop() else { break };
                self.launch(ack.launch(&self.common), work);
            }
            for _ in 0..work.sends.len() {
                let Some(launched) = work.sends.pop() else { break };
                self.hand_over(launched, work);
            }
            for _ in 0..work.ended.len() {
                let Some(EndedMessage { message, result }) = work.ended.pop() else { break };
                self.end_outgoing(&message, result, work);
            }
            while let Some(token) = work.withdrawn.pop() {
                self.withdraw(token, work);
            }
            while let Some(path) = work.pushed.pop() {
                self.end_push(path);
            }
            if let Some(watcher) = self.watcher.get() {
                work.drops.drain(..).for_each(|message| watcher.dropped(&message));
            }
            wake::all(&mut work.wakes);
            work.garbage.clear();
        }
    }

    /// Processes a large table in batches, so that its lock is held for one batch at a time. `hold`
    /// takes the lock, and returns where to continue. The actions that a batch queues run before
    /// the next batch, without the lock.
    pub(super) fn in_batches<At>(
        &self,
        start: At,
        work: &mut DeferredWork,
        mut hold: impl FnMut(At, &mut DeferredWork) -> Option<At>,
    ) {
        let mut next = Some(start);
        while let Some(at) = next {
            next = hold(at, work);
            self.run(work);
            work.garbage.clear();
        }
    }

    /// Sends a message over the network or to this node itself.
    pub(super) fn launch(&self, launch: Launch, work: &mut DeferredWork) {
        let Path::Over { partition, .. } = launch.path else {
            let kind = launch.message.op.kind();
            self.net.lock(self.common.current_partition()).count_loopback(kind, launch.header.payload_length);
            return self.deliver_here(launch, work);
        };
        let launched = {
            let mut net = self.net.lock(partition);
            let (part, shared) = net.split();
            part.launch(shared, launch, work)
        };
        match launched {
            // The message is sent after those that have waited.
            Some(ready @ Launched::Ready { .. }) if !work.sends.is_empty() => work.sends.push(ready),
            Some(launched) => self.hand_over(launched, work),
            None => {}
        }
    }

    /// Hands a message that need not wait to its LND, in the caller's thread. A message that has
    /// waited for credits is not sent if its MD was unlinked during the wait (lnet-semantics 7).
    pub(super) fn hand_over(&self, launched: Launched, work: &mut DeferredWork) {
        let (md, token) = match launched {
            Launched::Waits { md, token } => (md, token),
            Launched::Ready { lnd, tx, md, waited } => {
                let token = tx.token;
                let unlinked = |md| self.with_mds(md, |mds, key| mds.is_unlinked(key));
                let sent = if waited && md.is_some_and(unlinked) {
                    drop(tx);
                    Sent::Now(Err(Errno::ECANCELED))
                } else {
                    lnd.send(tx)
                };
                match sent {
                    Sent::Now(result) => return self.left(token, result, work),
                    Sent::Later => (md, token),
                }
            }
        };
        // The message waits, or its LND has it: from now on the owner of its MD can withdraw it.
        if let Some(md) = md {
            self.with_mds(md, |mds, key| mds.remember(key, token, work));
        }
    }

    /// Runs `act` on the table that holds an MD, under its lock.
    fn with_mds<R>(&self, md: MdName, act: impl FnOnce(&mut MdTable, Key) -> R) -> R {
        if md.location.bound {
            act(self.bound.lock(md.location.partition).mds_mut(), md.key)
        } else {
            act(self.posted.lock(md.location.partition).mds_mut(), md.key)
        }
    }

    /// Withdraws a message of which nothing has left, wherever it waits. An LND that cannot give it
    /// back finalises it later. A thread that is handing it to its LND checks the MD afterwards.
    fn withdraw(&self, token: TxToken, work: &mut DeferredWork) {
        let (partition, key) = unpack(token.0);
        let holder = {
            let mut net = self.net.lock(partition);
            let (part, shared) = net.split();
            part.withdraw(shared, key, work)
        };
        if holder.is_some_and(|holder| holder.withdraw(token)) {
            self.left(token, Err(Errno::ECANCELED), work);
        }
    }

    /// Ends a message that has left its LND or failed: returns its credits, which may start the
    /// next ones, then reports the result to its MD.
    pub(super) fn left(&self, token: TxToken, result: Result<(), Errno>, work: &mut DeferredWork) {
        let (partition, key) = unpack(token.0);
        if partition >= self.common.partitions() {
            return;
        }
        let message = { self.net.lock(partition).finalize(key, result, work) };
        if let Some(message) = message {
            self.end_outgoing(&message, result, work);
        }
    }

    /// Reports to the MD of a message that it has left or failed.
    pub(super) fn end_outgoing(
        &self,
        message: &OutgoingMessage,
        result: Result<(), Errno>,
        work: &mut DeferredWork,
    ) {
        let Some(MdName { location, .. }) = message.md else { return };
        if location.bound {
            self.bound.lock(location.partition).request_left(message, result, work);
        } else {
            self.posted.lock(location.partition).reply_left(message, result, work);
        }
    }

    /// Delivers a counted message from this node to itself, without LND and credits (lnet-wire 14).
    /// It then waits for a buffer, or ends here.
    pub(super) fn deliver_here(&self, launch: Launch, work: &mut DeferredWork) {
        let Launch { message, header, payload, .. } = launch;
        let mut local = Some(Local { message, payload });
        let nids = smallvec::smallvec![header.src.nid];
        let inbound = Inbound { back: Path::Here, from: header.src, rx: RxContext(0), held: 0, nids };
        let admitted = AdmittedMessage { inbound: &inbound, header: &header };
        let delivery = match self.receive(admitted, &mut local, work) {
            Verdict::Deliver(delivery) => Some(delivery),
            _ => None,
        };
        if let Some(mut local) = local {
            self.end_local(&mut local, delivery, work);
        }
    }

    /// Ends a message from this node to itself: copies its payload to the delivery's sink, and
    /// finalises both sides.
    pub(super) fn end_local(
        &self,
        local: &mut Local,
        delivery: Option<PayloadTarget>,
        work: &mut DeferredWork,
    ) {
        let (token, sink) = delivery.map_or((None, None), |delivery| (Some(delivery.token), delivery.sink));
        if let (Some(from), Some(mut to)) = (local.payload.take(), sink) {
            lnet_region::copy(&from, &mut to);
        }
        self.end_outgoing(&local.message, Ok(()), work);
        if let Some(token) = token {
            self.received(token, Ok(()), work);
        }
    }
}

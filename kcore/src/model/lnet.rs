//! A scripted LNet that keeps the engine's promises and no others:
//!
//! - The events of an MD never overlap; those of different MDs may.
//! - The event with `unlinked` is an MD's last one, and comes exactly once.
//! - Unlinking an idle MD gives one UNLINK event before the call returns. A busy one has `unlinked`
//!   in its last event, with ETIMEDOUT in place of a success. One that is unlinked already is
//!   ENOENT.
//! - An event queue is EBUSY while an MD uses it, and an MD uses it until its last event has been
//!   handled. `wake` comes after the lock is released, and may come after the queue has been freed.
//!
//! The handle of an MD or event queue is its number: the first that is made has 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{
    DropWatcher, EqHandle, Errno, Event, EventHandler, EventKind, Get, Handler, LNet, LNetError, Md,
    MdHandle, MeHandle, MeSpec, Polled, Put, Threshold, Unlink,
};
use lnet_nid::{Nid, Pid, Portal, ProcessId};
use loom::cell::UnsafeCell;
use loom::sync::Mutex;

use super::BYTES;

const EQS: usize = 2;
const MDS: usize = 2;

#[derive(Default)]
pub(super) struct ScriptedLnet {
    eqs: [Mutex<Eq>; EQS],
    eqs_made: AtomicU64,
    mds: [Mutex<MdSlot>; MDS],
    mds_made: AtomicU64,
    sending: Sending,
}

/// The moment at which a PUT is sent.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sending {
    /// Inside the call, as over the loopback.
    #[default]
    Inside,
    /// At [`ScriptedLnet::leave`].
    Later,
    /// Never: the call refuses it.
    Refused,
}

#[derive(Default)]
struct Eq {
    handler: Option<Handler>,
    users: usize,
}

#[derive(Default)]
enum MdSlot {
    #[default]
    Free,
    Live(LiveMd),
    Gone,
}

struct LiveMd {
    md: Md,
    /// Messages that it may still receive or send.
    left: u32,
    /// A message uses it.
    busy: bool,
    /// Set if the MD was unlinked while it was busy.
    aborted: bool,
}

/// The memory that a message writes to. loom reports two unordered writes as an error.
#[derive(Default)]
pub(super) struct Payload(UnsafeCell<u8>);

impl Payload {
    pub(super) fn write(&self) {
        self.0.with_mut(|_| ());
    }
}

impl ScriptedLnet {
    pub(super) fn new(sending: Sending) -> ScriptedLnet {
        ScriptedLnet { sending, ..ScriptedLnet::default() }
    }

    /// Delivers a message to an MD: writes its payload and finalises it. Returns false if there is
    /// no such MD.
    pub(super) fn arrive(&self, number: u64, payload: &Payload) -> bool {
        let found = self.begin(number);
        if found {
            payload.write();
            self.finalise(number, EventKind::Put, Ok(()));
        }
        found
    }

    /// Fails to send a GET. Its MD would wait for the REPLY.
    pub(super) fn fail_send(&self, number: u64) {
        assert!(self.leave(number, Err(Errno::EIO)), "it waits to be sent");
    }

    /// Ends the sending of a PUT or GET with this status. Returns false if it does not wait to be
    /// sent.
    pub(super) fn leave(&self, number: u64, status: Result<(), Errno>) -> bool {
        let waits = matches!(&*self.slot(number).lock().unwrap(), MdSlot::Live(live) if live.busy);
        if waits {
            self.finalise(number, EventKind::Send, status);
        }
        waits
    }

    /// Drops an event queue that was not freed, so that nothing leaks. Returns whether there was
    /// one.
    pub(super) fn shut_down(&self) -> bool {
        let left: Vec<_> = self.eqs.iter().filter_map(|eq| eq.lock().unwrap().handler.take()).collect();
        !left.is_empty()
    }

    /// Checks that no MD is live and no event queue is left.
    pub(super) fn assert_empty(&self) {
        assert!(self.mds.iter().all(|slot| !matches!(&*slot.lock().unwrap(), MdSlot::Live(_))));
        for eq in &self.eqs {
            let eq = eq.lock().unwrap();
            assert!(eq.handler.is_none() && eq.users == 0);
        }
    }

    fn begin(&self, number: u64) -> bool {
        match &mut *self.slot(number).lock().unwrap() {
            // An unlinked MD takes no more messages.
            MdSlot::Live(live) if !live.aborted => {
                live.busy = true;
                live.left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Ends the message of a busy MD, and the MD if it is exhausted or was unlinked.
    fn finalise(&self, number: u64, kind: EventKind, status: Result<(), Errno>) {
        let mut slot = self.slot(number).lock().unwrap();
        let MdSlot::Live(live) = &mut *slot else { panic!("a busy MD has gone") };
        live.busy = false;
        let status = if live.aborted { status.and(Err(Errno::ETIMEDOUT)) } else { status };
        let unlinked = live.left == 0 || live.aborted;
        let wake = self.deliver(&mut slot, number, kind, status, unlinked);
        drop(slot);
        wake.wake();
    }

    /// Passes an event to the callback under the MD's lock.
    fn deliver(
        &self,
        slot: &mut MdSlot,
        number: u64,
        kind: EventKind,
        status: Result<(), Errno>,
        unlinked: bool,
    ) -> Handler {
        let MdSlot::Live(live) = slot else { panic!("an event of an MD that has gone") };
        let eq = self.eq(live.md.eq);
        let handler = eq.lock().unwrap().handler.clone().expect("its event queue is not free");
        handler.event(&Event {
            md: MdHandle(number),
            user_ptr: live.md.user_ptr,
            mlength: BYTES as u32,
            status,
            unlinked,
            ..Event::blank(kind, ProcessId::ANY)
        });
        if unlinked {
            *slot = MdSlot::Gone;
            eq.lock().unwrap().users -= 1;
        }
        handler
    }

    /// Makes an MD that is idle, or sends a message.
    fn make(&self, md: Md, sends: bool) -> Result<MdHandle, LNetError> {
        let mut eq = self.eq(md.eq).lock().unwrap();
        if eq.handler.is_none() {
            return Err(gone("event queue", 0));
        }
        eq.users += 1;
        drop(eq);
        let Threshold::Limited(left) = md.threshold else { panic!("an MD without a limit") };
        let number = self.mds_made.fetch_add(1, Ordering::Relaxed);
        let left = left - u32::from(sends);
        *self.slot(number).lock().unwrap() = MdSlot::Live(LiveMd { md, left, busy: sends, aborted: false });
        Ok(MdHandle(number))
    }

    fn eq(&self, handle: Option<EqHandle>) -> &Mutex<Eq> {
        let EqHandle(number) = handle.expect("an event queue");
        &self.eqs[number as usize]
    }

    fn slot(&self, number: u64) -> &Mutex<MdSlot> {
        &self.mds[number as usize]
    }
}

fn gone(object: &'static str, handle: u64) -> LNetError {
    LNetError::NoSuch { object, handle }
}

impl LNet for ScriptedLnet {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        let handle = EqHandle(self.eqs_made.fetch_add(1, Ordering::Relaxed));
        self.eq(Some(handle)).lock().unwrap().handler = Some(handler);
        Ok(handle)
    }

    fn eq_alloc_polled(&self, _: usize, _: Option<Arc<dyn EventHandler>>) -> Result<EqHandle, LNetError> {
        unreachable!("nobody polls")
    }

    fn eq_poll(&self, _: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        unreachable!("nobody polls")
    }

    fn eq_free(&self, handle: EqHandle) -> Result<(), LNetError> {
        let mut eq = self.eq(Some(handle)).lock().unwrap();
        if eq.users > 0 {
            return Err(LNetError::Busy { object: "event queue", handle: handle.0 });
        }
        let freed = eq.handler.take();
        drop(eq);
        freed.map(drop).ok_or(gone("event queue", handle.0))
    }

    fn me_attach(&self, _: &MeSpec) -> Result<MeHandle, LNetError> {
        Ok(MeHandle(0))
    }

    fn me_insert(&self, _: MeHandle, _: &MeSpec) -> Result<MeHandle, LNetError> {
        unreachable!("entries are only appended")
    }

    fn me_unlink(&self, _: MeHandle) -> Result<(), LNetError> {
        unreachable!("entries go with their MDs")
    }

    fn md_attach(&self, _: MeHandle, md: Md, _: Unlink) -> Result<MdHandle, LNetError> {
        self.make(md, false)
    }

    fn md_bind(&self, _: Md, _: Unlink) -> Result<MdHandle, LNetError> {
        unreachable!("it binds with what it sends")
    }

    fn md_unlink(&self, MdHandle(number): MdHandle) -> Result<(), LNetError> {
        let mut slot = self.slot(number).lock().unwrap();
        match &mut *slot {
            MdSlot::Live(live) if live.busy && !live.aborted => {
                live.aborted = true;
                Ok(())
            }
            MdSlot::Live(live) if !live.busy => {
                let wake = self.deliver(&mut slot, number, EventKind::Unlink, Ok(()), true);
                drop(slot);
                wake.wake();
                Ok(())
            }
            _ => Err(gone("MD", number)),
        }
    }

    fn put(&self, _: &Put) -> Result<(), LNetError> {
        unreachable!("it binds with what it sends")
    }

    fn get(&self, _: &Get) -> Result<(), LNetError> {
        unreachable!("it binds with what it sends")
    }

    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        if self.sending == Sending::Refused {
            return Err(LNetError::NoRoute { nid: put.target.nid });
        }
        let made = self.make(put.md, true)?;
        if self.sending == Sending::Later {
            return Ok(Some(made));
        }
        self.finalise(made.0, EventKind::Send, Ok(()));
        Ok(None)
    }

    /// Starts a GET, which waits to be sent.
    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        self.make(get.md, true).map(Some)
    }

    fn set_lazy(&self, _: Portal, _: bool) {}

    fn watch_drops(&self, _: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        Ok(())
    }

    fn distance(&self, nid: Nid) -> Result<lnet_api::Distance, LNetError> {
        Err(LNetError::NoRoute { nid })
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        vec![ProcessId::new(Nid::LOOPBACK, Pid::LNET)]
    }
}

//! The LNet API of a node, which programs call.

use std::sync::Arc;

use lnet_api::{
    Distance, DropWatcher, EQ_COUNT_MAX, EqHandle, EventHandler, Get, Handler, LNet, LNetError, Md, MdHandle,
    MeHandle, MeSpec, Polled, Position, Put, Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};

use super::Engine;
use crate::common::Common;
use crate::drops::DropReason;
use crate::event_queue::EventQueue;
use crate::message::NewOperation;
use crate::names::MdLocation;
use crate::placement::home_of_bits;
use crate::resources::{Attached, Posted, Resources};
use crate::slab::Key;

impl LNet for Engine {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        let key = self.common.queues.enter(EventQueue::new(handler))?;
        Ok(self.common.handles.eq(key))
    }

    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        if count == 0 || count > EQ_COUNT_MAX {
            let rule = "a polled queue keeps 1 to 65536 events";
            return Err(LNetError::Invalid { field: "count", value: count as u64, rule });
        }
        let key = self.common.queues.enter(EventQueue::polled(count.next_power_of_two(), handler)?)?;
        Ok(self.common.handles.eq(key))
    }

    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        let Common { queues, handles, .. } = &*self.common;
        queues.poll(eqs.iter().map(|&eq| (eq, handles.decode_eq(eq))))
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        let gone = LNetError::NoSuch { object: "EQ", handle: eq.0 };
        let key = self.common.handles.decode_eq(eq).ok_or(gone.clone())?;
        let queue = {
            // All locks are held, so that no MD starts to use the queue (S-307).
            let (mut posted, mut bound) = (self.posted.lock_all(), self.bound.lock_all());
            let used = posted.parts_mut().any(|part| part.mds().users(key) > 0)
                || bound.parts_mut().any(|part| part.mds().users(key) > 0);
            if self.common.queues.find(key).is_some() && used {
                return Err(LNetError::Busy { object: "EQ", handle: eq.0 });
            }
            posted.parts_mut().for_each(|part| part.mds_mut().forget_queue(key));
            bound.parts_mut().for_each(|part| part.mds_mut().forget_queue(key));
            self.common.queues.remove(key)
        };
        // The handler is dropped after the locks are released: its drop may run any code.
        let queue = queue.ok_or(gone)?;
        queue.wake_watchers();
        drop(queue);
        Ok(())
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        let home = Posted::home(&self.common, &self.portals[me.portal.index()], me);
        let part = &mut *self.posted.lock(home);
        part.attach_entry(me)
    }

    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        if me.position == Position::Local {
            let rule = "an entry is inserted before or after another";
            return Err(LNetError::Invalid { field: "position", value: me.position as u64, rule });
        }
        let (partition, key) = self.decode_me(beside)?;
        let part = &mut *self.posted.lock(partition);
        part.insert_entry((beside, key), me)
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        self.unlink_entry(me, false)
    }

    /// Attaches an MD to an entry. An entry that has an MD already is left unchanged, in its place
    /// in the list.
    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.with(|work| {
            let (partition, key) = self.decode_me(me)?;
            let attached = {
                let part = &mut *self.posted.lock(partition);
                part.attach_md((me, key), md, unlink)?
            };
            let Attached { handle, portal, reserved } = attached;
            if reserved {
                self.retry_delayed(portal, partition, key, work);
            }
            Ok(handle)
        })
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        md.check_bound()?;
        self.bound.lock(self.common.current_partition()).bind(md, unlink)
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        self.with(|work| {
            let gone = LNetError::NoSuch { object: "MD", handle: md.0 };
            let (MdLocation { bound, partition }, key) =
                self.common.handles.decode_md(md).ok_or(gone.clone())?;
            let unlinked = if bound {
                self.bound.lock(partition).unlink_named(key, work)
            } else {
                self.posted.lock(partition).unlink_named(key, work)
            };
            unlinked.ok_or(gone)
        })
    }

    /// Starts a PUT. In addition to the errors of [`LNet::put`]: EBUSY while a message is being
    /// received into the MD's memory, and ENOMEM when a region has reached its maximum number of
    /// leases.
    fn put(&self, put: &Put) -> Result<(), LNetError> {
        self.send(put.md, &NewOperation::of_put(put))
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        self.send(get.md, &NewOperation::of_get(get))
    }

    /// Binds an MD and starts a PUT, with the errors of [`LNet::put`] in this implementation.
    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        let request = NewOperation::of_put(&put);
        self.bind_and_send(put.md, &request)
    }

    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        let request = NewOperation::of_get(&get);
        self.bind_and_send(get.md, &request)
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        let state = &self.portals[portal.index()];
        self.with(|work| {
            state.set_lazy(&state.blocked(), lazy);
            if !lazy {
                // The portal may have been made lazy again by another thread; then its messages
                // stay.
                self.drop_delayed(portal.index(), |_| !state.is_lazy(), DropReason::NotLazy, work);
            }
        });
    }

    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        self.watcher.set(watcher).map_err(|_| LNetError::Busy { object: "watcher of drops", handle: 0 })
    }

    fn home(&self, portal: Portal, bits: MatchBits) -> usize {
        home_of_bits(portal.index(), bits, self.common.partitions())
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        let net = self.net.lock(self.common.current_partition());
        net.shared().distance(nid, u32::from(!self.common.config.local_nid_dist_zero))
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        let net = self.net.lock(self.common.current_partition());
        let loopback = ProcessId::new(Nid::LOOPBACK, self.common.config.pid);
        std::iter::once(loopback).chain(net.shared().ids()).collect()
    }

    fn for_each_local_id(&self, look: &mut dyn FnMut(ProcessId)) {
        let net = self.net.lock(self.common.current_partition());
        look(ProcessId::new(Nid::LOOPBACK, self.common.config.pid));
        net.shared().ids().for_each(look);
    }
}

impl Engine {
    /// Unlinks an entry like [`LNet::me_unlink`]. If `idle`, messages that the MD has taken already
    /// end as if it were still attached: no answer is withdrawn.
    pub(crate) fn unlink_entry(&self, me: MeHandle, idle: bool) -> Result<(), LNetError> {
        self.with(|work| {
            let (partition, key) = self.decode_me(me)?;
            self.posted.lock(partition).unlink_entry((me, key), idle, work)
        })
    }

    /// Returns the partition and key of an entry.
    fn decode_me(&self, me: MeHandle) -> Result<(usize, Key), LNetError> {
        self.common.handles.decode_me(me).ok_or(LNetError::NoSuch { object: "ME", handle: me.0 })
    }
}

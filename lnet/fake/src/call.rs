//! The record of a call of LNet.

use lnet_api::{EqHandle, Get, Md, MdHandle, MeHandle, MeSpec, Put, Unlink};
use lnet_nid::{Nid, Portal};

/// The handle in a recorded call whose MD had no handle yet.
const UNNAMED: MdHandle = MdHandle(0);

/// The kinds of calls of [`lnet_api::LNet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum CallKind {
    EqAlloc,
    EqAllocPolled,
    EqPoll,
    EqFree,
    MeAttach,
    MeInsert,
    MeUnlink,
    MdAttach,
    MdBind,
    MdUnlink,
    Put,
    Get,
    BindPut,
    BindGet,
    SetLazy,
    WatchDrops,
    Distance,
    LocalIds,
}

/// A call with all its arguments. Refused calls are recorded too.
#[derive(Debug, Clone)]
pub enum Call {
    /// [`lnet_api::LNet::eq_alloc`].
    EqAlloc,
    /// [`lnet_api::LNet::eq_alloc_polled`].
    EqAllocPolled {
        /// The number of events to be kept.
        count: usize,
        /// True if the queue also has a handler.
        handler: bool,
    },
    /// [`lnet_api::LNet::eq_poll`].
    EqPoll(Vec<EqHandle>),
    /// [`lnet_api::LNet::eq_free`].
    EqFree(EqHandle),
    /// [`lnet_api::LNet::me_attach`].
    MeAttach(MeSpec),
    /// [`lnet_api::LNet::me_insert`].
    MeInsert {
        /// The existing entry, before or after which the new one is inserted.
        beside: MeHandle,
        /// The new entry.
        me: MeSpec,
    },
    /// [`lnet_api::LNet::me_unlink`].
    MeUnlink(MeHandle),
    /// [`lnet_api::LNet::md_attach`].
    MdAttach {
        /// The entry to which the MD is attached.
        me: MeHandle,
        /// The descriptor, whose memory is shared with the program's.
        md: Md,
        /// `Unlink::Auto` if LNet unlinks the MD when it is exhausted.
        unlink: Unlink,
    },
    /// [`lnet_api::LNet::md_bind`].
    MdBind {
        /// The descriptor, whose memory is shared with the program's.
        md: Md,
        /// `Unlink::Auto` if LNet unlinks the MD when it is exhausted.
        unlink: Unlink,
    },
    /// [`lnet_api::LNet::md_unlink`].
    MdUnlink(MdHandle),
    /// [`lnet_api::LNet::put`].
    Put(Put),
    /// [`lnet_api::LNet::get`].
    Get(Get),
    /// [`lnet_api::LNet::bind_put`].
    BindPut {
        /// The descriptor, whose memory is shared with the program's.
        md: Md,
        /// The PUT with the handle of the MD that the call has made. The handle is 0, which is no
        /// MD's, if the call was refused, or if a [`Spy`](crate::Spy) recorded a call that returned
        /// no handle.
        put: Put,
    },
    /// [`lnet_api::LNet::bind_get`].
    BindGet {
        /// The descriptor, whose memory is shared with the program's.
        md: Md,
        /// The GET with the handle of the MD that the call has made; as in [`Call::BindPut`].
        get: Get,
    },
    /// [`lnet_api::LNet::set_lazy`].
    SetLazy {
        /// The portal that is made lazy or not.
        portal: Portal,
        /// True if unmatched messages wait at the portal from now on.
        lazy: bool,
    },
    /// [`lnet_api::LNet::watch_drops`].
    WatchDrops,
    /// [`lnet_api::LNet::distance`].
    Distance(Nid),
    /// [`lnet_api::LNet::local_ids`].
    LocalIds,
}

impl Call {
    /// Returns the called function, without its arguments.
    pub fn kind(&self) -> CallKind {
        match self {
            Call::EqAlloc => CallKind::EqAlloc,
            Call::EqAllocPolled { .. } => CallKind::EqAllocPolled,
            Call::EqPoll(_) => CallKind::EqPoll,
            Call::EqFree(_) => CallKind::EqFree,
            Call::MeAttach(_) => CallKind::MeAttach,
            Call::MeInsert { .. } => CallKind::MeInsert,
            Call::MeUnlink(_) => CallKind::MeUnlink,
            Call::MdAttach { .. } => CallKind::MdAttach,
            Call::MdBind { .. } => CallKind::MdBind,
            Call::MdUnlink(_) => CallKind::MdUnlink,
            Call::Put(_) => CallKind::Put,
            Call::Get(_) => CallKind::Get,
            Call::BindPut { .. } => CallKind::BindPut,
            Call::BindGet { .. } => CallKind::BindGet,
            Call::SetLazy { .. } => CallKind::SetLazy,
            Call::WatchDrops => CallKind::WatchDrops,
            Call::Distance(_) => CallKind::Distance,
            Call::LocalIds => CallKind::LocalIds,
        }
    }

    /// Returns the record of a PUT with its MD, which has no handle yet.
    pub(crate) fn bind_put(put: Put<Md>) -> (Call, Put, Md) {
        let (put, md) = put.with_md(UNNAMED);
        (Call::BindPut { md: md.clone(), put }, put, md)
    }

    /// Returns the record of a GET with its MD, which has no handle yet.
    pub(crate) fn bind_get(get: Get<Md>) -> (Call, Get, Md) {
        let (get, md) = get.with_md(UNNAMED);
        (Call::BindGet { md: md.clone(), get }, get, md)
    }

    /// Records the MD that the call has made. Returns false if the call makes none, or its MD is
    /// recorded already.
    pub(crate) fn set_made(&mut self, made: MdHandle) -> bool {
        let md = match self {
            Call::BindPut { put, .. } => &mut put.md,
            Call::BindGet { get, .. } => &mut get.md,
            _ => return false,
        };
        let is_first = *md == UNNAMED;
        if is_first {
            *md = made;
        }
        is_first
    }

    /// Returns whether the call is a query that a program may repeat in a loop while it waits.
    pub fn is_query(&self) -> bool {
        matches!(self.kind(), CallKind::EqPoll | CallKind::Distance | CallKind::LocalIds)
    }

    /// Returns whether a query repeats the one before: a waiting program may repeat its query
    /// thousands of times, and the record must not depend on the program's speed.
    pub(crate) fn repeats(&self, before: &Call) -> bool {
        match (self, before) {
            (Call::EqPoll(now), Call::EqPoll(before)) => now == before,
            (Call::Distance(now), Call::Distance(before)) => now == before,
            (Call::LocalIds, Call::LocalIds) => true,
            _ => false,
        }
    }
}

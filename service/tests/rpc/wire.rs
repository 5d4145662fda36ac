//! A transport in memory: a test delivers requests and reads what the service has sent.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::Errno;
use lnet_nid::MatchBits;
use lnet_region::{IoVec, Region};
use nlx_service::Transport;
use nlx_service::rpc::{HEADER, Header};
use nlx_service::transport::{Access, ArrivedMessage, Events, Place, Posting};
use parking_lot::Mutex;

/// The network, which the test and the service share.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<WireState>);

#[derive(Default)]
struct WireState {
    events: Mutex<Option<Arc<dyn Events<u32>>>>,
    posted: Mutex<VecDeque<Posted>>,
    /// Messages that the service has sent; kept only while `count` is read instead.
    sent: Mutex<VecDeque<(u32, Vec<u8>)>>,
    /// Bulk that has not ended.
    moving: Mutex<Vec<Place>>,
    count: AtomicU64,
    keeps: std::sync::atomic::AtomicBool,
}

struct Posted {
    at: Place,
    memory: IoVec,
    used: usize,
    left: u32,
}

impl Wire {
    /// Keeps the messages that are sent from now on, or only counts them.
    pub(crate) fn keep(&self, keeps: bool) {
        self.0.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Returns the number of messages that the service has sent.
    pub(crate) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Delivers a request; the service must have posted memory.
    pub(crate) fn deliver(&self, from: u32, header: &Header, body: &[u8]) {
        let (at, arrival, is_full) = {
            let mut posted = self.0.posted.lock();
            let first = posted.front_mut().unwrap();
            let (offset, length) = (first.used, HEADER + body.len());
            let mut memory = first.memory.write(offset..offset + length).unwrap();
            memory.copy_from(0, &header.emit());
            memory.copy_from(HEADER, body);
            first.used += length;
            first.left -= 1;
            let (at, is_full) = (first.at, first.left == 0);
            drop(memory);
            if is_full {
                posted.pop_front();
            }
            let arrival =
                ArrivedMessage { from, offset, length, sent_length: length, urgent: false, crossed: false };
            (at, arrival, is_full)
        };
        let events = self.events();
        events.arrived(at, arrival);
        if is_full {
            events.released(at);
        }
        events.wake(at.partition);
    }

    /// Returns the next message that the service has sent, with its destination and body.
    pub(crate) fn next(&self) -> Option<(u32, Header, Vec<u8>)> {
        let (to, bytes) = self.0.sent.lock().pop_front()?;
        Some((to, Header::parse(&bytes).unwrap(), bytes[HEADER..].to_vec()))
    }

    fn events(&self) -> Arc<dyn Events<u32>> {
        self.0.events.lock().clone().unwrap()
    }
}

impl Transport for Wire {
    type Peer = u32;
    type Memory = IoVec;
    type Offer = MatchBits;
    type Operation = Place;

    fn open(&self, events: Arc<dyn Events<u32>>) -> Result<(), Errno> {
        *self.0.events.lock() = Some(events);
        Ok(())
    }

    fn close(&self) {}

    fn endpoints(&self) -> usize {
        1
    }

    fn allocate(&self, _: usize, bytes: usize) -> Result<IoVec, Errno> {
        Region::heap(bytes).map(IoVec::whole).map_err(|error| error.errno())
    }

    fn post(&self, posting: Posting<'_, IoVec>) -> Result<Place, Errno> {
        let Posting { at, memory, requests, .. } = posting;
        self.0.posted.lock().push_back(Posted { at, memory: memory.clone(), used: 0, left: requests });
        Ok(at)
    }

    fn send(&self, at: Place, to: &u32, _: u64, memory: IoVec, length: usize) -> Result<(), Errno> {
        if self.0.keeps.load(Ordering::Relaxed) {
            let bytes = memory.read(0..length).unwrap().to_vec();
            self.0.sent.lock().push_back((*to, bytes));
        }
        self.events().ended(at, Ok(length));
        self.0.count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn push(
        &self,
        at: Place,
        to: &u32,
        offer: MatchBits,
        memory: IoVec,
        _: usize,
    ) -> Result<Option<Place>, Errno> {
        self.pull(at, to, offer, memory)
    }

    /// Bulk never ends by itself.
    fn pull(&self, at: Place, _: &u32, _: MatchBits, _: IoVec) -> Result<Option<Place>, Errno> {
        self.0.moving.lock().push(at);
        Ok(Some(at))
    }

    fn offer(&self, _: Place, _: IoVec, _: Access) -> Result<(Place, MatchBits), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn cancel(&self, operation: Place) {
        let events = self.events();
        let mut moving = self.0.moving.lock();
        if let Some(index) = moving.iter().position(|&at| at == operation) {
            moving.swap_remove(index);
            drop(moving);
            events.ended(operation, Err(Errno::ECANCELED));
        } else {
            drop(moving);
            self.0.posted.lock().retain(|posted| posted.at != operation);
            events.released(operation);
        }
        events.wake(operation.partition);
    }
}

//! The requests of lst 5.1. Each function returns a correct message, of which [`Lst::u32`] and its
//! like make a wrong one.

use super::message::{Lst, PING_MAGIC, Sid, service};
use crate::judge::wire::Order;

/// The parts that the requests of one console have in common.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// The byte order of all its messages.
    pub order: Order,
    /// The features word of all its messages.
    pub features: u32,
    /// The id of its session.
    pub sid: Sid,
}

/// The properties of a test, as a TEST has them.
#[derive(Debug, Clone, Copy)]
pub struct TestFields {
    /// The number of the batch that gets the test.
    pub batch: u64,
    /// The number of the service that the test calls.
    pub service: u32,
    /// RPCs of each unit.
    pub repeats: u32,
    /// Units for each destination.
    pub concurrency: u32,
    /// 1 to add a test client, 0 to add its server.
    pub is_client: u8,
    /// The number of destinations.
    pub destinations: u32,
}

impl Sender {
    /// Returns the start of a request of a service.
    pub fn request(&self, service: u64) -> Lst {
        Lst::new(self.order, service::request_type(service).unwrap_or(u32::MAX), self.features)
    }

    /// Returns a MKSN: the node makes a session of this name.
    pub fn mksn(&self, force: u32, name: &str) -> Lst {
        self.request(service::MKSN).sid(32, self.sid).u32(48, force).set(52, name.as_bytes())
    }

    /// Returns a RMSN: the node ends the session.
    pub fn rmsn(&self) -> Lst {
        self.request(service::RMSN).sid(32, self.sid)
    }

    /// Returns a DEBUG: asks for the node's session.
    pub fn debug(&self) -> Lst {
        self.request(service::DEBUG).sid(32, self.sid)
    }

    /// Returns a STAT: asks for the node's counters.
    pub fn stat(&self) -> Lst {
        self.request(service::STAT).sid(32, self.sid)
    }

    /// Returns a JOIN: asks the console for a place in this group.
    pub fn join(&self, group: &str) -> Lst {
        self.request(service::JOIN).sid(32, self.sid).set(48, group.as_bytes())
    }

    /// Returns a BATCH: runs, stops or queries a batch.
    pub fn batch(&self, batch: u64, op: u32, test: u32, argument: u32) -> Lst {
        let start = self.request(service::BATCH).sid(32, self.sid).u64(48, batch);
        start.u32(56, op).u32(60, test).u32(64, argument)
    }

    /// Returns a TEST with a parameter of zeros, as a ping test has.
    pub fn test(&self, fields: &TestFields) -> Lst {
        let start = self.request(service::TEST).sid(40, self.sid).u64(56, fields.batch);
        let start = start.u32(64, fields.service).u32(68, fields.repeats).u32(72, fields.concurrency);
        start.set(76, &[fields.is_client, 1]).u32(78, fields.destinations)
    }

    /// Returns a TEST of BRW; the length is in bytes with feature bit 0, and in pages without.
    pub fn test_brw(&self, fields: &TestFields, direction: u16, check: u16, length: u32) -> Lst {
        let start = self.test(fields);
        if self.features & 1 == 1 {
            return start.u16(82, direction).u16(84, check).u32(86, length);
        }
        start.u32(82, direction.into()).u32(86, length).u32(90, check.into())
    }

    /// Returns a BRW: a bulk transfer of a test.
    pub fn brw(&self, direction: u32, length: u32, check: u32) -> Lst {
        self.request(service::BRW).u32(40, direction).u32(44, length).u32(48, check)
    }

    /// Returns a PING: a round trip of a test.
    pub fn ping(&self, sequence: u32) -> Lst {
        self.request(service::PING).u32(32, PING_MAGIC).u32(36, sequence)
    }
}

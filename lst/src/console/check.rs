//! Checks of parameters before anything is sent (lst 13).

use lnet_nid::ProcessId;
use lnet_proto::lst::{
    BULK_MAX, CONCURRENCY_MAX, Check, DESTINATIONS_SAFE, Destinations, Direction, Features, Name,
};

use super::{AddTest, BrwTest, ConsoleError, Hazard, NODES_MAX, NewSession, TestKind};

/// Bytes of a page of a client, in which a session without [`Features::BULK_LENGTH`] counts.
pub(super) const PAGE: u32 = 4096;

/// Most RPCs of a unit: a loop count is signed at the node.
const REPEATS_MAX: u32 = i32::MAX as u32;

/// Releases whose servers allocate memory for bulk before they check the request.
const SINCE_2_16: &str = "2.15.62, 2.16 and later";

/// Refuses a session that could not live.
pub(super) fn session(new: &NewSession) -> Result<(), ConsoleError> {
    if new.features.has_unknown() {
        let limit = Features::BULK_LENGTH.0.into();
        return Err(range("the set of features", new.features.0.into(), 0, limit));
    }
    within("the session's timeout in seconds", new.timeout_s, 1, u32::MAX)
}

/// Refuses nodes that cannot be tested: session ids and lists of destinations hold 4-byte addresses.
pub(super) fn group(name: Name, nodes: &[ProcessId]) -> Result<(), ConsoleError> {
    if name == Name::EMPTY {
        return Err(range("the length of a group's name", 0, 1, 31));
    }
    if nodes.is_empty() {
        return Err(range("the number of the group's nodes", 0, 1, NODES_MAX as u64));
    }
    nodes.iter().try_for_each(|node| destination(*node).map(drop))
}

/// Returns the entry of a node in a list of destinations.
pub(super) fn destination(node: ProcessId) -> Result<[u8; Destinations::LEN], ConsoleError> {
    Destinations::emit(node.nid, node.pid).map_err(|_| ConsoleError::LargeNid { nid: node.nid })
}

/// Refuses a test that kernel nodes refuse, or die of.
pub(super) fn test(test: &AddTest, servers: usize, features: Features) -> Result<(), ConsoleError> {
    within("the number of RPCs (loop)", test.repeats.unwrap_or(1), 1, REPEATS_MAX)?;
    within("concurrency", test.concurrency, 1, CONCURRENCY_MAX)?;
    within("the number of clients of a distribution", test.distribution.clients, 1, NODES_MAX as u32)?;
    let span = test.distribution.servers;
    if span > DESTINATIONS_SAFE {
        let limit = "at most 341";
        return Err(hazard("the number of servers of a client", span, limit, "all releases"));
    }
    within("the number of servers of a client (distribute)", span, 1, servers as u32)?;
    match &test.kind {
        TestKind::Ping => Ok(()),
        TestKind::Brw(brw) => bulk(brw, features),
    }
}

fn bulk(brw: &BrwTest, features: Features) -> Result<(), ConsoleError> {
    if ![Direction::READ, Direction::WRITE].contains(&brw.direction) {
        return Err(hazard("the direction", brw.direction.0, "1 (read) or 2 (write)", SINCE_2_16));
    }
    if !(Check::NONE.0..=Check::DISCARD.0).contains(&brw.check.0) {
        return Err(hazard("the check", brw.check.0, "1 to 4", SINCE_2_16));
    }
    if brw.length == 0 || brw.length > BULK_MAX {
        return Err(hazard("the size", brw.length, "8 to 1048576 bytes", SINCE_2_16));
    }
    if !brw.length.is_multiple_of(8) {
        let releases = "all releases from 2.12 to today";
        return Err(hazard("the size", brw.length, "a multiple of 8 bytes", releases));
    }
    if !features.contains(Features::BULK_LENGTH) && !brw.length.is_multiple_of(PAGE) {
        let limit = "a multiple of 4096 bytes in a session without feature 1";
        return Err(hazard("the size", brw.length, limit, SINCE_2_16));
    }
    match brw.offset {
        0 => Ok(()),
        offset => Err(hazard("the offset", offset, "0", "2.16 and later")),
    }
}

/// Refuses a number of rounds, or a delay between them, that is 0.
pub(super) fn rounds(count: Option<u32>, delay_s: u32) -> Result<(), ConsoleError> {
    within("the number of rounds", count.unwrap_or(1), 1, u32::MAX)?;
    within("the delay in seconds", delay_s, 1, u32::MAX)
}

/// Returns the error for a server that does not know check 4.
pub(super) fn unknown_discard(server: ProcessId) -> ConsoleError {
    let limit = "none, simple or full for a server that does not know discard";
    let what = "the check";
    let value = format!("discard for server {server}");
    ConsoleError::Hazard(Hazard { what, value, limit, releases: "2.15.62 to 2.17.57" })
}

fn hazard(what: &'static str, value: u32, limit: &'static str, releases: &'static str) -> ConsoleError {
    ConsoleError::Hazard(Hazard { what, value: value.to_string(), limit, releases })
}

fn within(what: &'static str, value: u32, min: u32, limit: u32) -> Result<(), ConsoleError> {
    match (min..=limit).contains(&value) {
        true => Ok(()),
        false => Err(range(what, value.into(), min.into(), limit.into())),
    }
}

pub(super) fn range(what: &'static str, value: u64, min: u64, limit: u64) -> ConsoleError {
    ConsoleError::Range { what, value, min, limit }
}

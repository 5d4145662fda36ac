//! Measurement of the memory that an engine takes for an idle peer and for a posted MD.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, EqHandle, LNet, LNetError, Md, MdOptions, MeSpec, Position, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Net, NetType, Nid, Pid, Portal, ProcessId};
use lnet_region::{IoVec, Region};
use lnet_sim::{LinkModel, SimNet};

use crate::heap::live_bytes;

/// The limit for the memory of an idle peer, in bytes.
pub(crate) const PEER_BYTES: isize = 1_024;

/// The limit for a posted MD with its entry, in bytes, without its memory.
pub(crate) const MD_BYTES: isize = 512;

/// The result of a measurement.
pub(crate) struct Cost {
    /// The number of peers, and the bytes of each.
    pub(crate) peers: (u32, isize),
    /// The number of posted MDs, and the bytes of each.
    pub(crate) mds: (u32, isize),
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>6} bytes for each of {} idle peers (goal: {PEER_BYTES})",
            self.peers.1, self.peers.0
        )?;
        write!(f, "{:>6} bytes for each of {} posted MDs (goal: {MD_BYTES})", self.mds.1, self.mds.0)
    }
}

/// Sends a PUT to each of many peers and receives one from each, with its ACK; then posts many MDs;
/// and measures the heap.
///
/// One further engine plays all peers, one after the other: each is an NI of that engine for the
/// length of one exchange, and is removed then. So the memory that stays belongs to the measured
/// engine.
pub(crate) fn measure(peers: u32, mds: u32) -> Result<Cost, LNetError> {
    let net = SimNet::new(1, Arc::new(()));
    let lnd = net.lnd(NetType::TCP, LinkModel::reliable())?;
    let centre = Engine::new(EngineConfig::new(Pid::LNET, 1));
    let here = ProcessId::lnet(address(0));
    centre.add_ni(here, lnd.clone())?;
    // This queue is never polled.
    let eq = centre.eq_alloc_polled(1, None)?;
    let portal = Portal::new(10).unwrap_or(Portal::RESERVED);
    let memory = IoVec::whole(Region::heap(64).map_err(|_| LNetError::ShuttingDown)?);
    let far = Engine::new(EngineConfig::new(Pid::LNET, 2));
    let eqs = [eq, far.eq_alloc_polled(1, None)?];
    let inbox = centre.me_attach(&spec(portal, 1))?;
    let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
    let taken = Md { threshold: Threshold::Infinite, ..md(&memory, eq, options, 0) };
    centre.md_attach(inbox, taken, Unlink::Retain)?;
    let before = live_bytes();
    for number in 1..=peers {
        let there = ProcessId::lnet(address(number));
        far.add_ni(there, lnd.clone())?;
        for (engine, eq, target, ack, threshold) in
            [(&centre, eqs[0], there, AckRequest::NoAck, 1), (&far, eqs[1], here, AckRequest::Ack, 2)]
        {
            let letter = IoVec::whole(Region::heap(8).map_err(|_| LNetError::ShuttingDown)?);
            let md = engine.md_bind(md(&letter, eq, MdOptions::empty(), threshold), Unlink::Auto)?;
            let (match_bits, offset, hdr_data) = (MatchBits(1), 0, 0);
            engine.put(&Put { source: None, md, ack, target, portal, match_bits, offset, hdr_data })?;
        }
        net.run_until(|| false);
        // The far node disappears silently, so that the measured engine keeps its peer.
        net.forget(there.nid);
        far.remove_ni(there.nid)?;
    }
    let peers = (peers, (live_bytes() - before) / peers.max(1) as isize);
    let before = live_bytes();
    for number in 0..mds {
        let me = centre.me_attach(&spec(portal, u64::from(number) + 100))?;
        centre.md_attach(me, md(&memory, eq, MdOptions::OP_PUT, 1), Unlink::Auto)?;
    }
    let mds = (mds, (live_bytes() - before) / mds.max(1) as isize);
    let received = centre.counters().recv_count;
    assert_eq!(received, u64::from(peers.0), "each peer's PUT has arrived");
    net.crash_all();
    Ok(Cost { peers, mds })
}

fn spec(portal: Portal, bits: u64) -> MeSpec {
    MeSpec {
        portal,
        match_id: ProcessId::ANY,
        match_bits: MatchBits(bits),
        ignore_bits: MatchBits(0),
        unlink: Unlink::Auto,
        position: Position::After,
    }
}

fn md(memory: &IoVec, eq: EqHandle, options: MdOptions, threshold: u32) -> Md {
    let threshold = Threshold::Limited(threshold);
    Md { memory: memory.clone(), threshold, max_size: 0, options, user_ptr: 0, eq: Some(eq) }
}

fn address(number: u32) -> Nid {
    Nid::new_v4(Net::TCP, Ipv4Addr::from(0x0a00_0001 + number))
}

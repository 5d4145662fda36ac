//! The ping info.

use std::net::Ipv4Addr;

use lnet_nid::{Net, NetType, Nid, Pid};
use lnet_proto::ByteOrder;
use lnet_proto::ProtoError;
use lnet_proto::ping::{Features, NIS_MAX, NiStatus, PingInfo, PingInterface};

use super::{Outcome, same};
use crate::corpus::streams;

/// Length of the longest ping info that is read: its head, and the largest number of entries with
/// large NIDs, of 24 bytes.
pub(super) const INFO_MAX: usize = 16 + NIS_MAX * 24;

/// Reads a ping info. Checks that every limit is kept, and that it is written back with the same
/// meaning.
pub(super) fn ping_info(bytes: &[u8]) -> Outcome {
    let info = match PingInfo::parse(bytes) {
        Ok(info) => info,
        Err(error) => {
            if let ProtoError::Truncated { length, needed, .. } = error {
                assert!(length == bytes.len() && length < needed, "{error}");
            }
            return Outcome::of_error(&error);
        }
    };
    assert!(info.nis.len() < NIS_MAX && info.encoded_len() <= bytes.len(), "{} interfaces", info.nis.len());
    assert!(info.nis.iter().all(|ni| !ni.nid.is_any() && !ni.nid.is_loopback()), "{:?}", info.nis);
    same(info.primary().is_none(), info.nis.is_empty(), "primary NID");
    let written = PingInfo { features: Features(info.features.0 & !Features::METADATA.0), ..info.clone() };
    let mut out = vec![0; written.encoded_len()];
    same(written.emit(&mut out), Ok(out.len()), "length of a ping info");
    same(PingInfo::parse(&out).as_ref(), Ok(&written), "ping info");
    let order = if bytes.first() == Some(&b'g') { ByteOrder::Little } else { ByteOrder::Big };
    let large = info.nis.iter().filter(|ni| !ni.nid.is_nid4()).count();
    Outcome::of_list((order, info.features.0 & 0xff, large.min(4)), info.nis.len(), NIS_MAX - 1)
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let payloads = streams().into_iter().flat_map(|stream| stream.items).map(|item| item.payload);
    let recorded = payloads.filter(|payload| payload.starts_with(b"gnip"));
    // The entry of the loopback is added.
    recorded.chain([127, 128, 300, NIS_MAX - 1].map(info_of)).collect()
}

/// Returns a ping info with `count` interfaces.
fn info_of(count: usize) -> Vec<u8> {
    let ni = |number: usize| PingInterface {
        nid: Nid::new_v4(Net::new(NetType(2), 0), Ipv4Addr::from_bits(0x0a4d_0001 + number as u32)),
        status: NiStatus::UP,
    };
    let nis = (0..count).map(ni).collect();
    let info = PingInfo { features: Features(0x1b), pid: Pid::LNET, sequence: 1, nis };
    let mut bytes = vec![0; info.encoded_len()];
    same(info.emit(&mut bytes), Ok(bytes.len()), "length of a seed");
    bytes
}

//! The ping info.

use lnet_proto::ByteOrder;
use lnet_proto::ProtoError;
use lnet_proto::ping::{Features, NIS_MAX, PingInfo};

use super::{Outcome, same};
use crate::corpus::streams;

/// Every limit is kept, and what is read is written back with the same meaning.
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
    Outcome::of((order, info.features.0 & 0xff, info.nis.len().min(8), large.min(4)))
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let payloads = streams().into_iter().flat_map(|stream| stream.items).map(|item| item.payload);
    payloads.filter(|payload| payload.starts_with(b"gnip")).collect()
}

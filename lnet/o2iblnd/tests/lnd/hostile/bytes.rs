//! Bytes in the format of lnet-wire 32 and 33, little-endian.

use lnet_nid::Nid;

pub(super) const MAGIC: u32 = 0x0be9_1b91;
pub(super) const VERSION: u16 = 0x12;

pub(super) const CONNREQ: u8 = 0xc0;
pub(super) const CONNACK: u8 = 0xc1;
pub(super) const NOOP: u8 = 0xd0;
pub(super) const IMMEDIATE: u8 = 0xd1;
pub(super) const PUT_REQ: u8 = 0xd2;
pub(super) const PUT_NAK: u8 = 0xd3;
pub(super) const PUT_ACK: u8 = 0xd4;
pub(super) const PUT_DONE: u8 = 0xd5;
pub(super) const GET_REQ: u8 = 0xd6;
pub(super) const GET_DONE: u8 = 0xd7;

/// One end: its NID as a number, and its incarnation.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) nid: u64,
    pub(super) stamp: u64,
}

/// Returns the NID as a number; `o2ib` is network type 5 (lnet-wire 2).
pub(super) fn number(nid: Nid) -> u64 {
    5 << 48 | u64::from(u32::from(nid.ipv4().unwrap()))
}

/// Returns a message: head and body.
pub(super) fn message(kind: u8, from: End, to: End, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend([kind, 0]);
    bytes.extend((48 + body.len() as u32).to_le_bytes());
    bytes.extend([0; 4]);
    for word in [from.nid, from.stamp, to.nid, to.stamp] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(body);
    bytes
}

/// Returns the body of CONNREQ and CONNACK.
pub(super) fn params(depth: u16, fragments: u16, bytes: u32) -> Vec<u8> {
    [&depth.to_le_bytes()[..], &fragments.to_le_bytes(), &bytes.to_le_bytes()].concat()
}

/// Returns a header of LNet (lnet-wire 6): `kind` 1 is a PUT, 2 a GET.
pub(super) fn header(kind: u32, from: u64, to: u64, length: u32, match_bits: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(to.to_le_bytes());
    bytes.extend(from.to_le_bytes());
    for word in [12_345, 12_345, kind, if kind == 2 { 0 } else { length }] {
        bytes.extend(u32::to_le_bytes(word));
    }
    bytes.extend([0xff; 16]);
    bytes.extend(match_bits.to_le_bytes());
    match kind {
        1 => bytes.extend([[0; 8], portal_and(0)].concat()),
        _ => bytes.extend([portal_and(0), u64::from(length).to_le_bytes()].concat()),
    }
    assert_eq!(bytes.len(), 72);
    bytes
}

fn portal_and(offset: u32) -> [u8; 8] {
    (u64::from(offset) << 32 | u64::from(nlx_testkit::lnds::PORTAL)).to_le_bytes()
}

/// Returns an RDMA descriptor that claims to have `count` fragments.
pub(super) fn descriptor(key: u32, count: u32, fragments: &[(u32, u64)]) -> Vec<u8> {
    let mut bytes = [key.to_le_bytes(), count.to_le_bytes()].concat();
    for (length, address) in fragments {
        bytes.extend(length.to_le_bytes());
        bytes.extend(address.to_le_bytes());
    }
    bytes
}

/// Returns the bytes with a part replaced.
pub(super) fn changed(bytes: &[u8], offset: usize, others: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[offset..offset + others.len()].copy_from_slice(others);
    changed
}

/// A reject record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) magic: u32,
    pub(super) version: u16,
    pub(super) reason: u8,
    pub(super) stamp: u64,
    pub(super) depth: u16,
    pub(super) fragments: u16,
    pub(super) bytes: u32,
}

impl Record {
    pub(super) fn of(bytes: &[u8]) -> Record {
        let part = |from: usize, length: usize| {
            let mut word = [0; 8];
            word[..length].copy_from_slice(&bytes[from..from + length]);
            u64::from_le_bytes(word)
        };
        Record {
            magic: part(0, 4) as u32,
            version: part(4, 2) as u16,
            reason: part(6, 1) as u8,
            stamp: part(8, 8),
            depth: part(16, 2) as u16,
            fragments: part(18, 2) as u16,
            bytes: part(20, 4) as u32,
        }
    }
}

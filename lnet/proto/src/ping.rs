//! The ping info: a node's interfaces, as sent in the REPLY to a ping GET and in a push PUT
//! (lnet-wire 15 to 17).
//!
//! ```
//! use lnet_nid::Pid;
//! use lnet_proto::ping::{Features, PingInterface, NiStatus, PingInfo};
//!
//! let info = PingInfo {
//!     features: Features::NI_STATUS | Features::RTE_DISABLED,
//!     pid: Pid::LNET,
//!     sequence: 1,
//!     nis: vec![PingInterface { nid: "10.0.0.1@tcp".parse()?, status: NiStatus::UP }],
//! };
//! let mut bytes = vec![0; info.encoded_len()];
//! info.emit(&mut bytes)?;
//! assert_eq!(PingInfo::parse(&bytes)?, info);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::mem::offset_of;
use std::ops::{BitOr, BitOrAssign};

use lnet_nid::{Nid, Pid};
use static_assertions::{const_assert, const_assert_eq};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cursor::Cursor;
use crate::error::{nid4, nid20, to_nid4};
use crate::{ByteOrder, ProtoError};

/// The ping info's magic number.
const MAGIC: u32 = 0x7069_6e67;

/// The limit for interfaces in a ping info, including the loopback entry: that of the reference.
pub const NIS_MAX: usize = 4096;

/// The least number of bytes for a ping GET: 16 interfaces, as the reference requests (lnet-wire
/// 15).
pub const SINK_LENGTH_MIN: u32 = (HEAD_LEN + 16 * ENTRY_LEN) as u32;

/// The length in bytes of the first ping GET: that of the kernel's `lctl ping` (lnet-measured),
/// enough for 246 interfaces. Over RDMA a GET of this length, and its answer, are immediate
/// messages: kernel nodes lose part of what they write into memory that is longer than the answer
/// (lnet-measured, "Short replies over o2ib"). For a longer ping info a second GET has exactly its
/// length.
pub const SINK_LENGTH: u32 = 3960;

const_assert!(SINK_LENGTH >= SINK_LENGTH_MIN && SINK_LENGTH as usize <= crate::ib::IMMEDIATE_MAX);

/// The name of a ping info in errors.
const OBJECT: &str = "ping info";

/// The features of a node, as a set of bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

impl Features {
    /// No feature.
    pub const NONE: Features = Features(0);
    /// Historic; current nodes do not set it.
    pub const BASE: Features = Features(0x01);
    /// Entries carry a status. Mandatory.
    pub const NI_STATUS: Features = Features(0x02);
    /// The node does not forward messages.
    pub const RTE_DISABLED: Features = Features(0x04);
    /// All NIDs of the list are one peer.
    pub const MULTI_RAIL: Features = Features(0x08);
    /// The node acknowledges pushes.
    pub const DISCOVERY: Features = Features(0x10);
    /// Entries with 20-byte NIDs follow.
    pub const LARGE_ADDR: Features = Features(0x20);
    /// The primary NID is the first of the large entries.
    pub const PRIMARY_LARGE: Features = Features(0x40);
    /// A block of driver-defined data follows. It is skipped, and never written here.
    pub const METADATA: Features = Features(0x80);

    /// Returns whether all bits of `features` are set.
    #[must_use]
    pub const fn contains(self, features: Features) -> bool {
        self.0 & features.0 == features.0
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Features) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The status of an interface. Values other than the three are kept unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NiStatus(pub u32);

impl NiStatus {
    /// The interface works.
    pub const UP: NiStatus = NiStatus(0x15aa_c0de);
    /// The interface does not work.
    pub const DOWN: NiStatus = NiStatus(0xdead_face);
    /// The status is unknown.
    pub const INVALID: NiStatus = NiStatus(0);
}

impl fmt::Debug for NiStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            NiStatus::UP => f.write_str("up"),
            NiStatus::DOWN => f.write_str("down"),
            NiStatus(value) => write!(f, "{value:#x}"),
        }
    }
}

/// One interface of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PingInterface {
    /// The address of the interface.
    pub nid: Nid,
    /// UP or DOWN.
    pub status: NiStatus,
}

/// A node's features and interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PingInfo {
    /// The features of the node.
    pub features: Features,
    /// The node's process id.
    pub pid: Pid,
    /// The version number of the list, from 1 (on the wire, the status of the loopback entry).
    pub sequence: u32,
    /// The interfaces without the loopback entry: those with small NIDs in order, then those with
    /// large ones, which [`Features::LARGE_ADDR`] must announce.
    pub nis: Vec<PingInterface>,
}

impl PingInfo {
    /// Returns the primary NID of the node: the first interface, or the first with a large NID if
    /// the features say so.
    #[must_use]
    pub fn primary(&self) -> Option<Nid> {
        let large_first = self.features.contains(Features::PRIMARY_LARGE);
        let large = self.split().1.next().filter(|_| large_first);
        large.or(self.nis.first()).map(|ni| ni.nid)
    }

    /// Parses a ping info in either byte order. Bytes behind it in `bytes` are ignored.
    ///
    /// # Errors
    /// All checks of a receiver (lnet-wire 16). [`ProtoError::Truncated`] contains the number of
    /// bytes needed: repeat the request with a larger buffer.
    pub fn parse(bytes: &[u8]) -> Result<PingInfo, ProtoError> {
        let truncated = |needed| ProtoError::Truncated { object: OBJECT, length: bytes.len(), needed };
        let (head, rest) = RawHead::ref_from_prefix(bytes).map_err(|_| truncated(HEAD_LEN))?;
        let order = head.order()?;
        let features = head.features(order)?;
        let count = head.count(order)?;

        let small_end = HEAD_LEN + count * ENTRY_LEN;
        let Ok((entries, _)) = <[RawEntry]>::ref_from_prefix_with_elems(rest, count) else {
            return Err(truncated(small_end));
        };
        let [loopback, entries @ ..] = entries else { return Err(truncated(small_end)) };
        let first = nid4("ping info entry 0", order.u64(loopback.nid.get()))?;
        if first != Nid::LOOPBACK {
            return Err(ProtoError::PingFirst { nid: first });
        }
        let mut nis = Vec::new();
        // An entry of the large list is at least as long as one of the small list, so this is
        // enough for all.
        let no_memory = |_| ProtoError::NoMemory { object: OBJECT, length: bytes.len() };
        nis.try_reserve(bytes.len() / ENTRY_LEN).map_err(no_memory)?;
        for entry in entries {
            nis.push(entry.parse(order)?);
        }
        if features.contains(Features::LARGE_ADDR) {
            let total = order.u32(loopback.total_size.get()) as usize & !3;
            if total < small_end {
                return Err(ProtoError::PingSize { value: total, expected: small_end });
            }
            let large = bytes.get(small_end..total).ok_or_else(|| truncated(total))?;
            parse_large(large, small_end, order, &mut nis)?;
        }
        let (pid, sequence) = (Pid(order.u32(head.pid.get())), order.u32(loopback.status.get()));
        Ok(PingInfo { features, pid, sequence, nis })
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let entries = self.nis.iter().map(|ni| if ni.nid.is_nid4() { ENTRY_LEN } else { LARGE_ENTRY_LEN });
        HEAD_LEN + ENTRY_LEN + entries.sum::<usize>()
    }

    /// Writes the ping info to the start of `out`, little-endian; returns its length. To answer a
    /// GET for fewer bytes, emit all of it and send the requested number of bytes.
    ///
    /// # Errors
    /// [`ProtoError::Buffer`] if `out` is shorter than [`PingInfo::encoded_len`],
    /// [`ProtoError::PingFeatures`] and [`ProtoError::PingCount`] for content that
    /// [`PingInfo::parse`] would refuse, and for [`Features::METADATA`].
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ProtoError> {
        self.check()?;
        let (length, needed) = (out.len(), self.encoded_len());
        let Some(out) = out.get_mut(..needed) else {
            return Err(ProtoError::Buffer { object: OBJECT, length, needed });
        };
        let (small, large) = self.split();
        let total_size = if self.features.contains(Features::LARGE_ADDR) { needed } else { 0 };
        let mut out = Cursor { out };
        out.put(&RawHead {
            magic: U32::new(MAGIC),
            features: U32::new(self.features.0),
            pid: U32::new(self.pid.0),
            count: U32::new(1 + small.clone().count() as u32),
        });
        let loopback = PingInterface { nid: Nid::LOOPBACK, status: NiStatus(self.sequence) };
        out.put(&RawEntry::new(&loopback, total_size as u32)?);
        for ni in small {
            out.put(&RawEntry::new(ni, 0)?);
        }
        for ni in large {
            out.put(&RawLargeEntry { status: U32::new(ni.status.0), nid: ni.nid.to_wire() });
        }
        Ok(needed)
    }

    fn split(
        &self,
    ) -> (impl Iterator<Item = &PingInterface> + Clone, impl Iterator<Item = &PingInterface> + Clone) {
        let small = self.nis.iter().filter(|ni| ni.nid.is_nid4());
        (small, self.nis.iter().filter(|ni| !ni.nid.is_nid4()))
    }

    fn check(&self) -> Result<(), ProtoError> {
        let features = self.features;
        check_features(features)?;
        let problem = |problem| Err(ProtoError::PingFeatures { value: features.0, problem });
        if features.contains(Features::METADATA) {
            return problem("the metadata block is never written");
        }
        if !features.contains(Features::LARGE_ADDR) && self.split().1.next().is_some() {
            return problem("large NIDs are listed without LARGE_ADDR");
        }
        check_count(1 + self.nis.len())?;
        self.nis.iter().try_for_each(|ni| check_interface(ni.nid).map(drop))
    }
}

/// Parses the large entries, which fill `bytes`; they start `offset` bytes into the ping info.
fn parse_large(
    mut bytes: &[u8],
    mut offset: usize,
    order: ByteOrder,
    nis: &mut Vec<PingInterface>,
) -> Result<(), ProtoError> {
    let end = offset + bytes.len();
    while !bytes.is_empty() {
        // The size code gives the length of the entry; a NID with a large address has only one
        // valid length.
        let size_code = bytes.get(4).copied();
        let entry_len = match size_code {
            Some(0) => SMALL_LARGE_ENTRY_LEN,
            _ => LARGE_ENTRY_LEN,
        };
        let Some((entry, rest)) = bytes.split_at_checked(entry_len) else {
            return Err(ProtoError::PingSize { value: end, expected: offset + entry_len });
        };
        nis.push(parse_large_entry(entry, order)?);
        check_count(1 + nis.len())?;
        (bytes, offset) = (rest, offset + entry_len);
    }
    Ok(())
}

fn parse_large_entry(entry: &[u8], order: ByteOrder) -> Result<PingInterface, ProtoError> {
    let mut bytes = [0; LARGE_ENTRY_LEN];
    bytes[..entry.len()].copy_from_slice(entry);
    let raw: RawLargeEntry = zerocopy::transmute!(bytes);
    let nid = check_interface(nid20("ping info large entry", &raw.nid)?)?;
    if nid.is_nid4() {
        return Err(ProtoError::PingSmallNid { nid });
    }
    Ok(PingInterface { nid, status: NiStatus(order.u32(raw.status.get())) })
}

fn check_features(features: Features) -> Result<Features, ProtoError> {
    if features.contains(Features::NI_STATUS) {
        return Ok(features);
    }
    Err(ProtoError::PingFeatures { value: features.0, problem: "NI_STATUS is mandatory" })
}

/// Checks the number of NIs, which includes the loopback entry.
fn check_count(value: usize) -> Result<usize, ProtoError> {
    if (1..=NIS_MAX).contains(&value) {
        return Ok(value);
    }
    Err(ProtoError::PingCount { value, min: 1, limit: NIS_MAX })
}

/// Refuses the wildcard and a second loopback as an interface: with them a node would claim the
/// NIDs of others.
fn check_interface(nid: Nid) -> Result<Nid, ProtoError> {
    if nid.is_any() || nid.is_loopback() {
        return Err(ProtoError::NotInterface { field: "ping info entry", nid });
    }
    Ok(nid)
}

const HEAD_LEN: usize = size_of::<RawHead>();
const ENTRY_LEN: usize = size_of::<RawEntry>();
const LARGE_ENTRY_LEN: usize = size_of::<RawLargeEntry>();
/// Length of an entry of the large list with a NID of 8 bytes. Such an entry is refused.
const SMALL_LARGE_ENTRY_LEN: usize = 4 + 8;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: U32,
    features: U32,
    pid: U32,
    count: U32,
}

const_assert_eq!(HEAD_LEN, 16);

impl RawHead {
    fn order(&self) -> Result<ByteOrder, ProtoError> {
        ByteOrder::of_magic(self.magic.to_bytes(), MAGIC).ok_or(ProtoError::Magic {
            object: OBJECT,
            value: self.magic.get(),
            expected: MAGIC,
        })
    }

    fn features(&self, order: ByteOrder) -> Result<Features, ProtoError> {
        check_features(Features(order.u32(self.features.get())))
    }

    fn count(&self, order: ByteOrder) -> Result<usize, ProtoError> {
        check_count(order.u32(self.count.get()) as usize)
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    nid: U64,
    status: U32,
    /// In the loopback entry, with large entries: length of the whole ping info in bytes.
    total_size: U32,
}

const_assert_eq!(ENTRY_LEN, 16);
const_assert_eq!(offset_of!(RawEntry, status), 8);
const_assert_eq!(offset_of!(RawEntry, total_size), 12);

impl RawEntry {
    fn new(ni: &PingInterface, total_size: u32) -> Result<RawEntry, ProtoError> {
        Ok(RawEntry {
            nid: U64::new(to_nid4("ping info entry", ni.nid)?),
            status: U32::new(ni.status.0),
            total_size: U32::new(total_size),
        })
    }

    fn parse(&self, order: ByteOrder) -> Result<PingInterface, ProtoError> {
        let nid = check_interface(nid4("ping info entry", order.u64(self.nid.get()))?)?;
        Ok(PingInterface { nid, status: NiStatus(order.u32(self.status.get())) })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawLargeEntry {
    status: U32,
    nid: [u8; Nid::WIRE_LEN],
}

const_assert_eq!(LARGE_ENTRY_LEN, 24);
const_assert_eq!(offset_of!(RawLargeEntry, nid), 4);

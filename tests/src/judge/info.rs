//! The information in a ping's answer and in a push (lnet-wire 16).

use super::wire::{Nid, Order, PID};

const MAGIC: u32 = 0x7069_6e67;
/// The status of an NI that is up.
pub const UP: u32 = 0x15aa_c0de;
/// The maximum number of entries that a node accepts.
const ENTRIES_MAX: u32 = 4096;
/// The size of the head, and of each entry that is not large, in bytes.
const ENTRY: usize = 16;

/// Feature bits.
pub mod feature {
    /// Entries carry a status.
    pub const NI_STATUS: u32 = 0x02;
    /// Large entries follow the others.
    pub const LARGE_ADDR: u32 = 0x20;
    /// The first large entry is the node's primary NID.
    pub const PRIMARY_LARGE: u32 = 0x40;
    /// The peer takes pushes of changes: MULTI_RAIL and DISCOVERY.
    pub const PUSHES: u32 = 0x18;
    /// The features of a modern kernel node with small NIDs.
    pub const KERNEL: u32 = 0x1e;
    /// The features of a kernel that does not forward and takes no pushes: a single-rail peer.
    pub const SINGLE_RAIL: u32 = 0x06;
}

/// The decoded information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PingInfo {
    /// Feature bits.
    pub features: u32,
    /// The sequence number of the node's list of NIDs.
    pub sequence: u32,
    /// The node's NIDs after `0@lo`, with their status, the primary one first.
    pub nis: Vec<(Nid, u32)>,
}

impl PingInfo {
    /// Creates the information of a new kernel node with one NI: with the given features, and those
    /// of its kind of NID.
    pub fn of(nid: Nid, features: u32) -> PingInfo {
        let large = if nid.is_large() { feature::LARGE_ADDR | feature::PRIMARY_LARGE } else { 0 };
        PingInfo { features: features | large, sequence: 2, nis: vec![(nid, UP)] }
    }

    /// Encodes the information: the small NIDs, then the large ones.
    pub fn bytes(&self) -> Vec<u8> {
        let (large, small): (Vec<_>, Vec<_>) = self.nis.iter().partition(|(nid, _)| nid.is_large());
        let mut bytes = Vec::new();
        for word in [MAGIC, self.features, PID, small.len() as u32 + 1] {
            bytes.extend(word.to_le_bytes());
        }
        for (nid, status) in [(Nid::LOOPBACK, self.sequence)].iter().chain(small) {
            bytes.extend(nid.small().to_le_bytes());
            bytes.extend(status.to_le_bytes());
            bytes.extend([0; 4]);
        }
        for (nid, status) in large {
            bytes.extend(status.to_le_bytes());
            bytes.extend(nid.large());
        }
        if self.features & feature::LARGE_ADDR != 0 {
            let total = (bytes.len() as u32).to_le_bytes();
            bytes[ENTRY + 12..ENTRY + 16].copy_from_slice(&total);
        }
        bytes
    }

    /// Decodes complete information, as strictly as discovery does.
    pub fn parse(bytes: &[u8]) -> Result<PingInfo, String> {
        let word = |at| Order::Little.u32_at(bytes, at);
        let [magic, features, pid, count] = [0, 4, 8, 12].map(word);
        if bytes.len() < 2 * ENTRY || magic != MAGIC {
            return Err(format!("no ping info: {:02x?}", &bytes[..bytes.len().min(ENTRY)]));
        }
        if features & feature::NI_STATUS == 0 {
            return Err(format!("features {features:#x} without NI_STATUS (0x02)"));
        }
        if pid != PID {
            return Err(format!("PID {pid} in the ping info, not {PID}"));
        }
        let has_large = features & feature::LARGE_ADDR != 0;
        let small = ENTRY + ENTRY * count as usize;
        if !(1..=ENTRIES_MAX).contains(&count) || bytes.len() < small || !has_large && bytes.len() != small {
            return Err(format!("{count} entries in a ping info of {} bytes", bytes.len()));
        }
        let entry = |index: u32| {
            let at = ENTRY + ENTRY * index as usize;
            (Nid::from_small(Order::Little.u64_at(bytes, at)), word(at + 8), word(at + 12))
        };
        let (first, sequence, size) = entry(0);
        if first != Nid::LOOPBACK || size as usize != if has_large { bytes.len() } else { 0 } {
            return Err(format!("the first entry is {first} with size {size} in {} bytes", bytes.len()));
        }
        if let Some((nid, _, rest)) = (1..count).map(entry).find(|&(_, _, rest)| rest != 0) {
            return Err(format!("the entry of {nid} ends with {rest:#x}, not 0"));
        }
        let mut nis = large_entries(&bytes[small..])?;
        let primary_large = features & feature::PRIMARY_LARGE != 0;
        if primary_large && nis.is_empty() {
            return Err(format!("features {features:#x} with PRIMARY_LARGE (0x40), and no large entry"));
        }
        nis.extend((1..count).map(entry).map(|(nid, status, _)| (nid, status)));
        if !primary_large {
            nis.rotate_right(count as usize - 1);
        }
        Ok(PingInfo { features, sequence, nis })
    }
}

/// Decodes the large entries: a status and the significant bytes of a NID, padded to four.
fn large_entries(mut bytes: &[u8]) -> Result<Vec<(Nid, u32)>, String> {
    let mut nis = Vec::new();
    while !bytes.is_empty() {
        let significant = bytes.get(4).map_or(0, |&size_code| 8 + usize::from(size_code));
        let wrong = || format!("a large entry of {} bytes: {bytes:02x?}", 4 + significant);
        let (entry, rest) = bytes.split_at_checked(4 + significant.next_multiple_of(4)).ok_or_else(wrong)?;
        let mut nid = [0; 20];
        nid.get_mut(..entry.len() - 4).ok_or_else(wrong)?.copy_from_slice(&entry[4..]);
        let nid = Nid::from_large(&nid).ok_or_else(wrong)?;
        nis.push((nid, Order::Little.u32_at(entry, 0)));
        bytes = rest;
    }
    Ok(nis)
}

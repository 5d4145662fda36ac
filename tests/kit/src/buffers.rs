//! Memory, and byte patterns that reveal shifted or mixed-up data.

use lnet_region::{Fragment, IoVec, Region};

/// Unused bytes between two fragments.
const GAP: usize = 61;

/// Returns bytes that differ when they are shifted or belong to another buffer.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let scattered = |at: usize| ((at as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8;
    (0..length).map(|at| scattered(at).wrapping_add(seed as u8)).collect()
}

/// The minimum length of a region that is registered.
const PAGE: usize = 4096;

/// Returns the first `length` bytes of a new region that is large enough to be registered; `length`
/// may be 0.
pub fn whole(length: usize) -> IoVec {
    IoVec::whole(Region::heap(length.max(PAGE)).unwrap()).trimmed(length).unwrap()
}

/// Returns `length` bytes of a new region that is large enough to be registered, from this offset
/// on.
pub fn at(offset: usize, length: usize) -> IoVec {
    let region = Region::heap((offset + length).max(PAGE)).unwrap();
    IoVec::new(vec![Fragment::new(region, offset, length).unwrap()]).unwrap()
}

/// Returns fragments of these lengths in one region, with gaps between them: one registration.
pub fn gapped(lengths: &[usize]) -> IoVec {
    let region = Region::heap(lengths.iter().map(|length| length + GAP).sum()).unwrap();
    let mut at = 0;
    let fragments = lengths.iter().map(|&length| {
        let fragment = Fragment::new(region.clone(), at, length).unwrap();
        at += length + GAP;
        fragment
    });
    IoVec::new(fragments.collect::<Vec<_>>()).unwrap()
}

/// Returns fragments of these lengths, each in a separate region, and so a separate registration.
pub fn apart(lengths: &[usize]) -> IoVec {
    let fragments =
        lengths.iter().map(|&length| Fragment::new(Region::heap(length).unwrap(), 0, length).unwrap());
    IoVec::new(fragments.collect::<Vec<_>>()).unwrap()
}

/// Splits `length` bytes into `pieces` pieces of about the same length.
pub fn cut(length: usize, pieces: usize) -> Vec<usize> {
    (0..pieces).map(|piece| length * (piece + 1) / pieces - length * piece / pieces).collect()
}

/// Writes bytes to the beginning of the memory.
pub fn fill(memory: &IoVec, bytes: &[u8]) {
    memory.write(0..bytes.len()).unwrap().copy_from(0, bytes);
}

/// Fills the memory with a pattern and returns it.
pub fn filled(memory: IoVec, seed: u64) -> IoVec {
    fill(&memory, &pattern(seed, memory.len()));
    memory
}

/// Returns the contents of the memory.
pub fn bytes(memory: &IoVec) -> Vec<u8> {
    memory.read(0..memory.len()).unwrap().to_vec()
}

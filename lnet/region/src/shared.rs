//! Copies into and out of memory that other processes may write at any time.
//!
//! No reference to such memory is ever formed: a `&[u8]` promises that its bytes stay as they are, and a plain copy
//! promises that nobody writes meanwhile. Each access here is a relaxed atomic load or store, of bytes up to the next
//! word boundary, then of words, then of bytes. What relies on it: a load races with nothing, because all accesses to
//! the memory in this process are such atomics, kept apart by leases where one of them writes, or the kernel's own in a
//! system call; what another process does, or this one through another mapping, is a store of some bytes at some time. So a copy ends, touches no
//! byte outside of its range, and gives for each byte a value that stood there at some moment. That is all: bytes of one
//! message may come from different moments. What is to be trusted is copied first and validated afterwards.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

const WORD_BYTES: usize = size_of::<u64>();

/// Copies shared bytes from `from` on to all of `to`.
///
/// # Safety
/// As many bytes as `to` has are mapped from `from` on, all the while; in this process nobody writes to them, nor holds a
/// reference to them, meanwhile. `to` is not shared memory.
pub(crate) unsafe fn load(from: *mut u8, to: &mut [u8]) {
    let (head, words) = split(from, to.len());
    let (to_head, rest) = to.split_at_mut(head);
    let (to_words, to_tail) = rest.split_at_mut(words * WORD_BYTES);
    // SAFETY: the three stretches make up the bytes that the caller vouches for. The middle one begins at a multiple of
    // a word, as `split` reckons. No access in this process is a store, so that there is no race.
    unsafe {
        load_bytes(from, to_head);
        let from = from.add(head);
        for (at, to) in to_words.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
            *to = AtomicU64::from_ptr(from.cast::<u64>().add(at)).load(Relaxed).to_ne_bytes();
        }
        load_bytes(from.add(words * WORD_BYTES), to_tail);
    }
}

/// Copies all of `from` to the shared bytes from `to` on.
///
/// # Safety
/// As many bytes as `from` has are mapped from `to` on, all the while; in this process nobody else accesses them
/// meanwhile. `from` is not shared memory.
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) {
    let (head, words) = split(to, from.len());
    let (from_head, rest) = from.split_at(head);
    let (from_words, from_tail) = rest.split_at(words * WORD_BYTES);
    // SAFETY: as in `load`; nobody else in this process accesses the bytes, so that there is no race.
    unsafe {
        store_bytes(to, from_head);
        let to = to.add(head);
        for (at, word) in from_words.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
            AtomicU64::from_ptr(to.cast::<u64>().add(at)).store(u64::from_ne_bytes(*word), Relaxed);
        }
        store_bytes(to.add(words * WORD_BYTES), from_tail);
    }
}

/// Bytes before the first whole word, and words.
fn split(start: *mut u8, length: usize) -> (usize, usize) {
    let head = start.align_offset(WORD_BYTES).min(length);
    (head, (length - head) / WORD_BYTES)
}

/// # Safety
/// As [`load`].
unsafe fn load_bytes(from: *mut u8, to: &mut [u8]) {
    for (at, to) in to.iter_mut().enumerate() {
        // SAFETY: the caller vouches for as many bytes as `to` has.
        *to = unsafe { AtomicU8::from_ptr(from.add(at)).load(Relaxed) };
    }
}

/// # Safety
/// As [`store`].
unsafe fn store_bytes(to: *mut u8, from: &[u8]) {
    for (at, from) in from.iter().enumerate() {
        // SAFETY: the caller vouches for as many bytes as `from` has.
        unsafe { AtomicU8::from_ptr(to.add(at)).store(*from, Relaxed) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn copies_at_any_alignment_touch_exactly_their_bytes(
            offset in 0usize..20,
            bytes in prop::collection::vec(1u8.., 0..100),
        ) {
            let mut memory = vec![0u64; 20];
            let base = memory.as_mut_ptr().cast::<u8>();
            let mut back = vec![0; bytes.len()];
            // SAFETY: 20 + 100 bytes fit into 160; nobody else knows them.
            unsafe {
                store(base.add(offset), &bytes);
                load(base.add(offset), &mut back);
            }
            prop_assert_eq!(&back, &bytes);
            let all: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let (before, rest) = all.split_at(offset);
            prop_assert!(before.iter().chain(&rest[bytes.len()..]).all(|byte| *byte == 0));
        }
    }
}

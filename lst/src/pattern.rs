//! The pattern of bulk data, and its check (lst 7.3).
//!
//! The producer of data fills its buffer with [`PATTERN`], the consumer poisons its buffer before the
//! transfer and checks it afterwards. Which bytes of each page that concerns depends on the test's
//! [`Check`]. All functions treat the buffer as pages from its first byte on. Lengths are multiples
//! of 8; further bytes at the end are neither written nor checked.

use std::num::NonZeroUsize;

use lnet_proto::ByteOrder;
use lnet_proto::lst::Check;

/// The 8 bytes of intact data, as a number in the producer's byte order.
pub const PATTERN: u64 = 0xeeb0_eeb1_eeb2_eeb3;

/// The 8 bytes that a consumer's buffer has before the transfer.
pub const POISON: u64 = 0xbeef_beef_beef_beef;

/// Bytes of a page on most hosts. [`Check::SIMPLE`] finds its bytes only if both sides agree.
pub const PAGE_SIZE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Fills a producer's buffer.
pub fn fill(check: Check, page_size: NonZeroUsize, buffer: &mut [u8]) {
    write(check, page_size, buffer, PATTERN);
}

/// Poisons a consumer's buffer, so that bytes that never arrive are noticed.
pub fn poison(check: Check, page_size: NonZeroUsize, buffer: &mut [u8]) {
    write(check, page_size, buffer, POISON);
}

fn write(check: Check, page_size: NonZeroUsize, buffer: &mut [u8], value: u64) {
    let value = value.to_le_bytes();
    let (words, _) = buffer.as_chunks_mut::<8>();
    match check {
        Check::FULL => words.fill(value),
        Check::SIMPLE => {
            for page in words.chunks_mut(words_of(page_size)) {
                page[0] = value;
                page[page.len() - 1] = value;
            }
        }
        _ => {}
    }
}

/// Returns whether received data have the pattern of a producer with this byte order.
#[must_use]
pub fn is_intact(check: Check, page_size: NonZeroUsize, data: &[u8], producer: ByteOrder) -> bool {
    let expected = match producer {
        ByteOrder::Little => PATTERN.to_le_bytes(),
        ByteOrder::Big => PATTERN.to_be_bytes(),
    };
    let (words, _) = data.as_chunks::<8>();
    let mut pages = words.chunks(words_of(page_size));
    match check {
        // One branch per page: the compiler turns the loop over its words into vector instructions.
        Check::FULL => pages.all(|page| page.iter().fold(true, |good, word| good & (*word == expected))),
        Check::SIMPLE => pages.all(|page| page[0] == expected && page[page.len() - 1] == expected),
        _ => true,
    }
}

fn words_of(page_size: NonZeroUsize) -> usize {
    (page_size.get() / 8).max(1)
}

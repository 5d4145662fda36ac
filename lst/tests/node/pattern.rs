//! lst 7.3: the pattern of bulk data.

use std::num::NonZeroUsize;

use lnet_proto::ByteOrder;
use lnet_proto::lst::Check;
use nlx_lst::pattern::{PAGE_SIZE, fill, is_intact, poison};
use proptest::prelude::*;

const WORD: [u8; 8] = [0xb3, 0xee, 0xb2, 0xee, 0xb1, 0xee, 0xb0, 0xee];

/// Whether lst 7.3 has something at this word of a buffer.
fn concerns(check: Check, page_words: usize, words: usize, index: usize) -> bool {
    let in_page = index % page_words;
    match check {
        Check::FULL => true,
        Check::SIMPLE => in_page == 0 || in_page == page_words - 1 || index == words - 1,
        _ => false,
    }
}

fn checks() -> impl Strategy<Value = Check> {
    (0_u32..6).prop_map(Check)
}

proptest! {
    #[test]
    fn buffers_are_written_and_checked_where_the_specification_says(
        check in checks(), page_words in 1_usize..9, words in 0_usize..40, big in any::<bool>()
    ) {
        let page = NonZeroUsize::new(page_words * 8).unwrap();
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut filled = vec![7; words * 8];
        let mut poisoned = filled.clone();
        fill(check, page, &mut filled);
        poison(check, page, &mut poisoned);
        for index in 0..words {
            let at = index * 8..index * 8 + 8;
            let is_written = concerns(check, page_words, words, index);
            prop_assert_eq!(&filled[at.clone()], if is_written { &WORD } else { &[7; 8] });
            prop_assert_eq!(&poisoned[at.clone()], &if is_written { [0xef, 0xbe].repeat(4) } else { vec![7; 8] }[..]);
        }
        let mut data = filled;
        if big {
            data.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
        }
        prop_assert!(is_intact(check, page, &data, order));
        for index in 0..words * 8 {
            data[index] ^= 0x10;
            prop_assert_eq!(is_intact(check, page, &data, order), !concerns(check, page_words, words, index / 8));
            data[index] ^= 0x10;
        }
    }

    #[test]
    fn lengths_that_are_no_multiple_of_eight_are_harmless(
        check in checks(), page in 1_usize..30, bytes in prop::collection::vec(any::<u8>(), 0..100)
    ) {
        let page = NonZeroUsize::new(page).unwrap();
        let mut bytes = bytes;
        poison(check, page, &mut bytes);
        fill(check, page, &mut bytes);
        prop_assert!(is_intact(check, page, &bytes, ByteOrder::Little));
    }
}

/// The captured MiB: 256 times pattern, 4,080 zeros, pattern.
#[test]
fn a_simple_megabyte_is_that_of_kernel_nodes() {
    let mut buffer = vec![0; 1 << 20];
    fill(Check::SIMPLE, PAGE_SIZE, &mut buffer);
    let page = [&WORD[..], &[0; 4080], &WORD].concat();
    assert_eq!(buffer, page.repeat(256));
}

//! Mutations of an input.

use lnet_fake::Rng;

/// Largest number of changes made to one input at once.
const CHANGES_MAX: usize = 6;

/// Length of the longest piece that is inserted, removed or repeated at once, in bytes.
const PIECE_MAX: usize = 32;

/// Boundary values of protocols: limits and their neighbours, signs, magic numbers, types.
const INTERESTING: [u64; 37] = [
    0,
    1,
    2,
    3,
    4,
    5,
    12,
    16,
    17,
    18,
    63,
    64,
    0x7f,
    0x80,
    0xc0,
    0xc1,
    0xff,
    200,
    256,
    257,
    258,
    4096,
    4097,
    12345,
    0xffff,
    0x0010_0000,
    0x0010_0001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x4572_6963,
    0xacce_7100,
    0x7069_6e67,
    0x0be9_1b91,
    0x0009_0000_0000_0000,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Bytes that occur in the texts of addresses.
const TEXT: &[u8] = b"0123456789abcdef.:@-*<>[]/xULNET_PIDtcpo2iblognikfi ";

/// Changes `input` in one or a few random ways, some of which splice in bytes of `other`. Cuts the
/// result to `limit` bytes.
pub(crate) fn mutate(input: &mut Vec<u8>, other: &[u8], limit: usize, rng: &mut Rng) {
    for _ in 0..=rng.index(CHANGES_MAX) {
        change(input, other, rng);
        input.truncate(limit);
    }
}

fn change(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.index(input.len());
    match rng.below(10) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        2 => overwrite(input, at, &[rng.next_u64() as u8]),
        3 => overwrite(input, at, &[rng.pick(TEXT)]),
        4 | 5 => overwrite(input, at, &interesting(rng)),
        6 => input.truncate(at),
        7 => insert(input, at, rng),
        8 => {
            let end = (at + 1 + rng.index(PIECE_MAX)).min(input.len());
            input.drain(at.min(end)..end);
        }
        _ => {
            let from = rng.index(other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
}

/// Returns one of the numbers in a random width and byte order.
fn interesting(rng: &mut Rng) -> Vec<u8> {
    let value = rng.pick(&INTERESTING);
    let width = 1 << rng.index(4);
    let mut bytes = value.to_le_bytes()[..width].to_vec();
    if rng.below(2) == 0 {
        bytes.reverse();
    }
    bytes
}

/// Overwrites existing bytes, up to the end of the input.
fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    for (slot, byte) in input.iter_mut().skip(at).zip(bytes) {
        *slot = *byte;
    }
}

/// Inserts random bytes or a copy of the bytes at this place.
fn insert(input: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let piece: Vec<u8> = match rng.below(2) {
        0 => input[at..].iter().copied().take(1 + rng.index(PIECE_MAX)).collect(),
        _ => rng.bytes((1, PIECE_MAX as u64)),
    };
    input.splice(at..at, piece);
}

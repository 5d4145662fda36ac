//! Copies of bytes that others may be reading and writing at the same time: other processes, the
//! system, and transports of this process under leases that overlap.
//!
//! No reference to such memory is ever formed: a `&[u8]` promises that its bytes do not change, and
//! a plain copy promises that there is no concurrent write. A copy here is a relaxed atomic load
//! and a relaxed atomic store of each byte, in no particular order. Such accesses race with
//! nothing, because all other accesses to these bytes are of the same kind, or made by the system
//! or another process; leases exclude slices. So a copy ends, accesses no byte outside of its range
//! (not even a neighbour in the same word, of which a slice may exist), and gives each byte a value
//! that it had at some moment. There is no further guarantee: bytes of one message may come from
//! different moments. Bytes that must be valid are copied first and validated afterwards.
//!
//! The copy is byte by byte for the program, not for the machine. The compiler would not join
//! atomic accesses, so the C library copies, called by an instruction that is opaque to the
//! compiler: for it, the call is the loop in `by_bytes`. The machine's wide loads and stores give
//! each byte a value that it had, as that loop does.

use nix::libc;

/// Copies `length` bytes; where the ranges overlap, each byte may be an old or a new one.
///
/// # Safety
/// Both ranges are mapped throughout, the target for writing. In this process there is no `&mut` to
/// the bytes of `from`, and no reference at all to those of `to`, except for one that the caller
/// has and does not use meanwhile; and other code of this process accesses either range meanwhile
/// only by this function or through the system.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's promises are passed on.
    unsafe { at_once(from, to, length) }
}

/// Copies by `memmove`, which may copy in another order; that makes a difference only if the bytes
/// change or overlap.
///
/// # Safety
/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn at_once(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: memmove takes its arguments in these registers, follows the C ABI, and gets the stack
    // aligned, as the block does not say `nostack`. It accesses the bytes of the two ranges alone.
    // To the compiler the block does the same as `by_bytes`, whose conditions the caller
    // guarantees.
    unsafe {
        std::arch::asm!(
            "call {memmove}",
            memmove = sym libc::memmove,
            inlateout("rdi") to => _,
            inlateout("rsi") from => _,
            inlateout("rdx") length => _,
            clobber_abi("C"),
        );
    }
}

/// Copies by `memmove`, which may copy in another order; that makes a difference only if the bytes
/// change or overlap.
///
/// # Safety
/// As [`copy`].
#[cfg(all(target_arch = "aarch64", not(miri)))]
unsafe fn at_once(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as on x86_64.
    unsafe {
        std::arch::asm!(
            "bl {memmove}",
            memmove = sym libc::memmove,
            inlateout("x0") to => _,
            inlateout("x1") from => _,
            inlateout("x2") length => _,
            clobber_abi("C"),
        );
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
use by_bytes as at_once;

/// Copies byte by byte: the definition of [`copy`].
///
/// # Safety
/// As [`copy`].
#[cfg(any(test, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
unsafe fn by_bytes(from: *const u8, to: *mut u8, length: usize) {
    use std::sync::atomic::AtomicU8;
    use std::sync::atomic::Ordering::Relaxed;

    for at in 0..length {
        // SAFETY: the caller guarantees these bytes of both ranges. The source is not stored to
        // through this pointer.
        unsafe {
            let byte = AtomicU8::from_ptr(from.cast_mut().add(at)).load(Relaxed);
            AtomicU8::from_ptr(to.add(at)).store(byte, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Copy = unsafe fn(*const u8, *mut u8, usize);

    proptest! {
        #[test]
        fn copies_at_any_alignment_touch_exactly_their_bytes(
            from in 0usize..20,
            to in 0usize..20,
            bytes in prop::collection::vec(1u8.., 0..300),
        ) {
            for copy in [copy as Copy, by_bytes] {
                let (mut source, mut target) = (vec![0; from], vec![0; 320]);
                source.extend(&bytes);
                // SAFETY: from + length bytes are in the source, 20 + 300 in the target; no other
                // code has them.
                unsafe { copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), bytes.len()) };
                let (before, rest) = target.split_at(to);
                prop_assert_eq!(&rest[..bytes.len()], &bytes);
                prop_assert!(before.iter().chain(&rest[bytes.len()..]).all(|byte| *byte == 0));
            }
        }

        #[test]
        fn copies_within_one_range_stay_there(from in 0usize..60, to in 0usize..60, length in 0usize..300) {
            let mut memory: Vec<u16> = (0..180).map(|at| at | 0x100).collect();
            let base = memory.as_mut_ptr().cast::<u8>();
            let length = length.min(300);
            // SAFETY: 60 + 300 bytes are all there are; no other code has them.
            unsafe { copy(base.add(from), base.add(to), length) };
            // SAFETY: as above.
            let all: Vec<u8> = (0..360).map(|at| unsafe { base.add(at).read() }).collect();
            let whole: Vec<u8> = (0..180u16).flat_map(|at| (at | 0x100).to_ne_bytes()).collect();
            prop_assert_eq!(&all[..to], &whole[..to]);
            prop_assert_eq!(&all[to + length..], &whole[to + length..]);
        }
    }

    /// If two threads copy to the same bytes, each final byte is that of one of them.
    #[test]
    fn two_may_write_the_same_bytes_at_once() {
        let mut target = vec![0u8; 5000];
        let base = target.as_mut_ptr() as usize;
        std::thread::scope(|scope| {
            for byte in [1u8, 2] {
                let source = vec![byte; 5000];
                scope.spawn(move || {
                    for round in 0..2000 {
                        let skip = round % 17;
                        // SAFETY: both have 5000 bytes; all accesses to the target are copies until
                        // the threads have ended.
                        unsafe { copy(source[skip..].as_ptr(), (base as *mut u8).add(skip), 5000 - skip) };
                    }
                });
            }
        });
        assert!(target.iter().all(|byte| [1, 2].contains(byte)));
    }
}

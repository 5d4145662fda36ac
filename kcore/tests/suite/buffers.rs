//! Registered buffers of any shape.

use lnet_api::Errno;
use lnet_region::{Fragment, IoVec, Region};
use nlx_core::{Core, OperationKind};

use super::bed;
use crate::bed::*;

/// Returns `count` segments of `bytes`, with `gap` bytes between them.
fn scattered(count: usize, bytes: usize, gap: usize) -> IoVec {
    let region = Region::heap(count * (bytes + gap)).unwrap();
    let segment = |index| Fragment::new(region.clone(), index * (bytes + gap) + gap, bytes).unwrap();
    IoVec::new((0..count).map(segment).collect::<Vec<_>>()).unwrap()
}

/// The largest buffer with the most segments, aligned to pages or not. (Motr limits pages instead
/// of segments: it counts a segment that lies on two pages twice, and so refuses the unaligned
/// buffer.)
// Covers: MT-1, MT-4, MT-5
#[test]
fn the_largest_buffer_of_most_segments_is_sent_and_received() {
    let bed = bed();
    let limits = bed.core.limits();
    for gap in [0, 1] {
        let bytes = limits.buffer_bytes_max / limits.segments_max;
        let memory = scattered(limits.segments_max, bytes, gap);
        fill(&memory, &pattern(2, limits.buffer_bytes_max));
        let buffer = bed.core.register(&memory).unwrap();
        let send = OperationKind::Send { length: limits.buffer_bytes_max as u64, to: peer() };
        bed.submit_on(buffer, COOKIE, send).unwrap();
        let message = bed.world.outgoing().pop().unwrap();
        assert_eq!(message.payload, pattern(2, limits.buffer_bytes_max));
        bed.world.leave(&message, Ok(()));
        assert_eq!(bed.tm.event_get().unwrap().unwrap().status(), Ok(()));
        let receive =
            OperationKind::Receive { min_receive_size: limits.buffer_bytes_max as u64, max_messages: 1 };
        bed.submit_on(buffer, COOKIE, receive).unwrap();
        bed.receive(&bed.message(&peer(), limits.buffer_bytes_max as u32));
        assert_eq!(content(&memory), pattern(7, limits.buffer_bytes_max));
        assert_eq!(bed.tm.event_get().unwrap().unwrap().status(), Ok(()));
        bed.core.deregister(buffer).unwrap();
    }
    bed.assert_idle();
}

/// Starts and lengths around a page, which need not be whole pages here: unaligned first segments,
/// unaligned and short ones inside.
// Covers: MT-2, MT-3, MT-228
#[test]
fn segments_of_any_start_and_length_are_registered() {
    const PAGE: usize = 4096;
    let bed = bed();
    for start in [0, 1, PAGE / 2, PAGE - 1] {
        for lengths in [[PAGE, PAGE + 1, PAGE - 1], [2 * PAGE, PAGE / 2 + 1, 1], [PAGE / 2 - 1, 1, 2 * PAGE]]
        {
            let region = |bytes| Region::heap(start + bytes).unwrap();
            let segments = lengths.map(|bytes| Fragment::new(region(bytes), start, bytes).unwrap());
            let memory = IoVec::new(segments.to_vec()).unwrap();
            let buffer = bed.core.register(&memory).unwrap();
            let descriptor = bed.submit_on(buffer, 1, OperationKind::PassiveReceive).unwrap().descriptor;
            let passive = Passive(passive_of(&descriptor.unwrap()));
            assert_eq!(passive.0.length, memory.len() as u64);
            bed.receive(&passive.put(&peer(), memory.len() as u32));
            assert_eq!(content(&memory), pattern(9, memory.len()));
            assert_eq!(bed.tm.event_get().unwrap().map(|event| event.length), Some(memory.len() as u64));
            bed.core.deregister(buffer).unwrap();
        }
    }
    bed.assert_idle();
}

/// No bytes, too many, too many segments, and segments of no bytes or beyond the memory are defined
/// errors.
// Covers: MT-228
#[test]
fn a_buffer_that_cannot_be_is_refused() {
    let bed = bed();
    let limits = bed.core.limits();
    let long = memory(limits.buffer_bytes_max + 1);
    assert_eq!(bed.core.register(&long).unwrap_err().errno(), Errno::EFBIG);
    assert_eq!(bed.core.register(&long.trimmed(0).unwrap()).unwrap_err().errno(), Errno::EINVAL);
    let region = Region::heap(limits.segments_max + 1).unwrap();
    let bytes = (0..=limits.segments_max).map(|at| Fragment::new(region.clone(), at, 1).unwrap());
    assert!(IoVec::new(bytes.collect::<Vec<_>>()).is_err());
    for (start, bytes) in [(0, 0), (limits.segments_max, 2), (usize::MAX, 2)] {
        let refused = Fragment::new(region.clone(), start, bytes).unwrap_err();
        assert_eq!(refused.errno(), Errno::EINVAL, "{refused}");
    }
    bed.assert_idle();
}

/// A stale handle names nothing.
// Covers: MT-6, MT-12
#[test]
fn a_deregistered_buffer_is_forgotten() {
    let bed = bed();
    bed.core.deregister(bed.buffer).unwrap();
    assert_eq!(bed.core.deregister(bed.buffer).unwrap_err().errno(), Errno::ENOENT);
    let next = bed.core.register(&bed.memory).unwrap();
    assert_ne!(next, bed.buffer);
    assert_eq!(bed.submit(OperationKind::PassiveReceive).unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(bed.tm.cancel(bed.buffer, COOKIE).unwrap_err().errno(), Errno::ENOENT);
    bed.submit_on(next, COOKIE, OperationKind::PassiveReceive).unwrap();
}

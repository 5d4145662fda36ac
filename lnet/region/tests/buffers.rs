//! Buffers of any shape over every kind of memory, against plain byte vectors.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use lnet_region::{
    Fragment, IoVec, MAX_FRAGMENTS, Pages, Part, PartMut, Region, RegionError, copy, receive, send,
};
use nix::sys::socket::MsgFlags;
use nlx_testkit::buffers::pattern;
use proptest::prelude::*;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Heap,
    Private,
    Shared,
}

fn region(kind: Kind, bytes: usize) -> Region {
    match kind {
        Kind::Heap => Region::heap(bytes).unwrap(),
        Kind::Private => Region::memfd(bytes, Pages::Normal).unwrap(),
        Kind::Shared => {
            let region = Region::memfd(bytes, Pages::Normal).unwrap();
            region.share().unwrap();
            region
        }
    }
}

/// Creates a buffer whose fragments have these (gap before, length) values within one region.
fn buffer(kind: Kind, shape: &[(usize, usize)]) -> (Region, IoVec) {
    let region = region(kind, shape.iter().map(|(gap, length)| gap + length).sum());
    let mut at = 0;
    let mut fragments = Vec::new();
    for &(gap, length) in shape {
        fragments.push(Fragment::new(region.clone(), at + gap, length).unwrap());
        at += gap + length;
    }
    (region, IoVec::new(fragments).unwrap())
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Heap), Just(Kind::Private), Just(Kind::Shared)]
}

fn shapes() -> impl Strategy<Value = Vec<(usize, usize)>> {
    let length = prop_oneof![20 => 1usize..40, 1 => 4000usize..10_000];
    prop::collection::vec((0usize..9, length), 1..12)
}

proptest! {
    /// Trimming at every byte count over mixed vectors, and copying between any two shapes
    /// (MT-190).
    // Covers: MT-16, MT-190, MT-227
    #[test]
    fn bytes_survive_a_copy_between_buffers_of_any_shape(
        a in shapes(), b in shapes(), from_kind in kinds(), to_kind in kinds(), cut in 0usize..20_000
    ) {
        let ((_, from), (_, to)) = (buffer(from_kind, &a), buffer(to_kind, &b));
        let length = cut.min(from.len());
        let bytes = pattern(1, length);
        prop_assert_eq!(from.write(0..length).unwrap().copy_from(0, &bytes), length);
        let source = from.trimmed(length).unwrap().read(0..length).unwrap();
        let moved = copy(&source, &mut to.write(0..to.len()).unwrap());
        prop_assert_eq!(moved, length.min(to.len()));
        prop_assert_eq!(to.read(0..moved).unwrap().to_vec(), &bytes[..moved]);
        prop_assert!(to.read(moved..to.len()).unwrap().to_vec().iter().all(|&byte| byte == 0));
    }

    /// One lease is split into many: each byte is in one of them, and free when this one is
    /// dropped.
    #[test]
    fn a_lease_that_is_split_covers_each_byte_as_before(
        shape in shapes(), kind in kinds(), cuts in prop::collection::vec(0usize..9000, 0..8), reads in any::<bool>()
    ) {
        let (region, vec) = buffer(kind, &shape);
        let bytes = pattern(1, vec.len());
        vec.write(0..vec.len()).unwrap().copy_from(0, &bytes);
        let mut at = 0;
        let mut parts = Vec::new();
        if reads {
            let mut rest = vec.outgoing(0..vec.len()).unwrap();
            for cut in cuts {
                let behind = rest.split_off(cut);
                parts.push((at, rest.len()));
                prop_assert_eq!(&rest.to_vec(), &bytes[at..at + rest.len()]);
                at += rest.len();
                // A lease for sending permits reads, but no writes.
                prop_assert!(rest.is_empty() || vec.check_write(at - 1..at).is_err());
                rest = behind;
                prop_assert!(vec.check_write(0..at).is_ok());
            }
            prop_assert_eq!(rest.len(), vec.len() - at);
        } else {
            let mut rest = vec.incoming(0..vec.len()).unwrap();
            for cut in cuts {
                let mut behind = rest.split_off(cut);
                let length = rest.len();
                prop_assert_eq!(length, cut.min(vec.len() - at));
                prop_assert!(rest.is_empty() || vec.check_read(at..at + 1).is_err());
                prop_assert_eq!(behind.copy_from(0, &bytes[at + length..]), behind.len());
                let message = rest.into_read();
                prop_assert_eq!(message.to_vec(), &bytes[at..at + length]);
                parts.push((at, length));
                at += length;
                // Received bytes can be read; bytes that are still to come cannot.
                prop_assert!(vec.check_read(0..at).is_ok());
                prop_assert!(behind.is_empty() || vec.check_read(at..at + 1).is_err());
                rest = behind;
            }
        }
        prop_assert_eq!(parts.iter().map(|(_, length)| length).sum::<usize>(), at);
        prop_assert!(region.is_idle());
        prop_assert_eq!(vec.read(0..vec.len()).unwrap().to_vec(), bytes);
    }

    /// The ranges that a device gets: the leased bytes of each region.
    #[test]
    fn the_places_of_a_lease_hold_its_bytes(shape in shapes(), kind in kinds(), skip in 0usize..500) {
        let (region, vec) = buffer(kind, &shape);
        let bytes = pattern(1, vec.len());
        vec.write(0..vec.len()).unwrap().copy_from(0, &bytes);
        let lease = vec.outgoing(0..vec.len()).unwrap();
        let places: Vec<_> = lease.parts(skip).map(|(region, part)| (region.clone(), part)).collect();
        drop(lease);
        let same = vec.incoming(0..vec.len()).unwrap();
        prop_assert!(same.parts(skip).map(|(_, part)| part).eq(places.iter().map(|(_, part)| part.clone())));
        drop(same);
        let whole = IoVec::whole(region.clone());
        let mut found = Vec::new();
        for (of, part) in places {
            prop_assert!(of.same(&region));
            prop_assert_eq!(of.address_of(part.start) - region.extent().0, part.start as u64);
            found.extend(whole.read(part).unwrap().to_vec());
        }
        prop_assert_eq!(found, &bytes[skip.min(bytes.len())..]);
    }

    #[test]
    fn parts_name_each_byte_once_and_in_order(shape in shapes(), kind in kinds(), skip in 0usize..500) {
        let (_, vec) = buffer(kind, &shape);
        let skip = skip.min(vec.len() - 1);
        let bytes = pattern(1, vec.len() - skip);
        let (ours, theirs) = UnixStream::pair().unwrap();

        prop_assert_eq!(send(theirs.as_fd(), &[Part::new(&bytes)], MsgFlags::MSG_NOSIGNAL), Ok(bytes.len()));
        let mut lease = vec.write(0..vec.len()).unwrap();
        let mut scatter: Vec<PartMut<'_>> = Vec::new();
        lease.scatter(skip, &mut scatter, MAX_FRAGMENTS);
        prop_assert_eq!(scatter.iter().map(PartMut::len).sum::<usize>(), bytes.len());
        prop_assert_eq!(receive(ours.as_fd(), &mut scatter, MsgFlags::MSG_WAITALL), Ok(bytes.len()));

        let message = lease.into_read();
        prop_assert!(message.to_vec()[..skip].iter().all(|byte| *byte == 0));
        prop_assert_eq!(&message.to_vec()[skip..], &bytes);

        let mut gather: Vec<Part<'_>> = Vec::new();
        message.gather(skip, &mut gather, MAX_FRAGMENTS);
        prop_assert_eq!(gather.iter().map(Part::len).sum::<usize>(), bytes.len());
        prop_assert_eq!(send(ours.as_fd(), &gather, MsgFlags::MSG_NOSIGNAL), Ok(bytes.len()));
        let mut back = vec![0; bytes.len()];
        prop_assert_eq!(receive(theirs.as_fd(), &mut [PartMut::new(&mut back)], MsgFlags::MSG_WAITALL), Ok(bytes.len()));
        prop_assert_eq!(back, bytes);
    }

    #[test]
    fn a_part_is_copied_and_filled_like_bytes_of_a_vector(
        shape in shapes(), kind in kinds(), skip in 0usize..500, length in 0usize..500, byte in any::<u8>()
    ) {
        let (_, vec) = buffer(kind, &shape);
        let mut model = vec![byte; vec.len()];
        let mut lease = vec.write(0..vec.len()).unwrap();
        lease.fill(byte);
        let bytes = pattern(1, length);
        let count = length.min(vec.len().saturating_sub(skip));
        prop_assert_eq!(lease.copy_from(skip, &bytes), count);
        if count > 0 {
            model[skip..skip + count].copy_from_slice(&bytes[..count]);
        }
        let message = lease.into_read();
        let mut back = vec![0; length];
        prop_assert_eq!(message.copy_to(skip, &mut back), count);
        prop_assert_eq!(&back[..count], &bytes[..count]);
        prop_assert_eq!(message.to_vec(), model);
    }
}

#[test]
fn bytes_in_one_piece_of_private_memory_are_slices() {
    for kind in [Kind::Heap, Kind::Private, Kind::Shared] {
        let (_, vec) = buffer(kind, &[(0, 8), (0, 8)]);
        let private = !matches!(kind, Kind::Shared);
        let mut lease = vec.write(2..6).unwrap();
        assert_eq!(lease.as_mut_slice().map(|slice| slice.len()), private.then_some(4));
        assert_eq!(lease.as_slice().map(<[u8]>::len), private.then_some(4));
        assert_eq!(lease.into_read().as_slice().map(<[u8]>::len), private.then_some(4));
        assert_eq!(vec.read(6..10).unwrap().as_slice(), None, "two pieces");
        assert_eq!(vec.read(7..7).unwrap().as_slice(), Some(&[][..]), "no byte at all");
    }
}

#[test]
fn a_received_message_has_many_readers_and_no_writer() {
    let (region, vec) = buffer(Kind::Heap, &[(1, 10), (2, 10)]);
    let mut incoming = vec.write(5..15).unwrap();
    incoming.copy_from(0, b"0123456789");
    assert_eq!(vec.read(14..20).unwrap_err(), RegionError::InUse { start: 17, end: 23 });
    let message = incoming.into_read();
    let second = vec.read(5..15).unwrap();
    let next = vec.write(15..20).unwrap();
    assert!(vec.write(14..15).is_err());
    drop(message);
    assert_eq!(vec.write(14..15).unwrap_err().errno(), nix::errno::Errno::EBUSY);
    assert_eq!(second.to_vec(), b"0123456789");
    drop((second, next));
    assert!(region.is_idle());
}

#[test]
fn a_lease_that_fails_half_way_leaves_nothing_behind() {
    let (region, vec) = buffer(Kind::Heap, &[(0, 10), (5, 10), (0, 10)]);
    let held = vec.read(15..16).unwrap();
    let error = vec.write(0..30).expect_err("a byte in the middle is lent out");
    assert_eq!(error, RegionError::InUse { start: 15, end: 25 });
    drop(held);
    assert!(region.is_idle());
    assert!(vec.write(0..30).is_ok());
}

#[test]
fn a_buffer_that_names_a_byte_twice_can_be_read_but_not_written() {
    let region = Region::heap(16).unwrap();
    let twice = [Fragment::new(region.clone(), 0, 8).unwrap(), Fragment::new(region.clone(), 4, 8).unwrap()];
    let vec = IoVec::new(twice).unwrap();
    assert!(vec.read(0..16).is_ok());
    assert!(vec.write(0..16).is_err());
    assert!(region.is_idle());
    // The application is responsible for received content.
    let mut incoming = vec.incoming(0..16).unwrap();
    incoming.copy_from(0, b"0123456789abcdef");
    drop(incoming);
    assert_eq!(vec.read(0..16).unwrap().to_vec(), b"012389ab89abcdef");
    assert!(region.is_idle());
}

#[test]
fn transports_share_what_a_program_has_alone() {
    let (region, vec) = buffer(Kind::Heap, &[(1, 10), (2, 10)]);
    let mut first = vec.incoming(0..15).unwrap();
    let mut second = vec.incoming(5..20).unwrap();
    let sent = vec.outgoing(0..20).unwrap();
    assert!(first.as_slice().is_none() && first.as_mut_slice().is_none() && sent.as_slice().is_none());
    assert!(vec.incoming(7..7).unwrap().as_slice().is_none(), "not even of no byte");
    assert!(vec.read(19..20).is_err() && vec.write(0..1).is_err());
    first.fill(1);
    assert_eq!(second.copy_from(0, &[2; 15]), 15);
    assert_eq!(sent.to_vec(), [[1; 5].as_slice(), &[2; 15]].concat());
    assert_eq!(copy(&sent, &mut first), 15);
    // Received bytes can be sent on while other leases receive into them, and read when those
    // leases have ended.
    let (first, second) = (first.into_read(), second.into_read());
    assert_eq!(first.as_slice(), None);
    let looked = vec.read(0..10).unwrap();
    assert_eq!(looked.as_slice(), Some(&[1, 1, 1, 1, 1, 2, 2, 2, 2, 2][..]));
    assert!(vec.incoming(9..11).is_err() && vec.outgoing(9..11).is_ok());
    drop((looked, first, second));
    assert!(vec.write(0..1).is_err(), "it is still being sent");
    drop(sent);
    let written = vec.write(0..10).unwrap();
    assert!(vec.incoming(9..11).is_err() && vec.outgoing(9..11).is_err());
    drop(written);
    assert!(region.is_idle());
}

// Covers: MT-228
#[test]
fn ranges_and_fragments_beyond_the_end_are_refused() {
    let (region, vec) = buffer(Kind::Heap, &[(3, 7)]);
    assert!(matches!(vec.read(0..8), Err(RegionError::OutOfBounds { end: 8, length: 7, .. })));
    #[allow(clippy::reversed_empty_ranges, reason = "what is refused")]
    let backwards = vec.read(5..4);
    assert!(backwards.is_err());
    assert!(vec.trimmed(8).is_err());
    assert!(Fragment::new(region.clone(), usize::MAX, 2).is_err());
    assert!(Fragment::new(region.clone(), 10, 1).is_err());
    assert!(Fragment::new(region.clone(), 0, 0).is_err());
    let many = vec![Fragment::new(region, 0, 1).unwrap(); MAX_FRAGMENTS + 1];
    assert!(matches!(IoVec::new(many), Err(RegionError::Fragments { fragments: 257, max: 256 })));
    assert!(IoVec::new(Vec::new()).is_err());
}

#[test]
fn memory_outlives_its_buffer_while_a_message_is_held() {
    for kind in [Kind::Heap, Kind::Private, Kind::Shared] {
        let vec = IoVec::whole(region(kind, 100));
        vec.write(0..3).unwrap().copy_from(0, b"abc");
        let message = vec.read(0..3).unwrap();
        drop(vec);
        assert_eq!(message.to_vec(), b"abc");
    }
}

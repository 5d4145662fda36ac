//! The options of a transfer machine: the form of descriptors, and the source of match bits.

use std::collections::BTreeSet;
use std::time::Duration;

use lnet_api::Drive;
use lnet_fake::Call;
use nlx_core::{DescriptorForm, MatchCounters, split_match_bits};
use nlx_sync::Spin;

use super::*;

/// Returns the descriptor of a passive buffer.
fn described(rig: &Rig, buffer: BufferHandle) -> Descriptor {
    let operation = Operation { buffer, cookie: COOKIE, kind: OperationKind::PassiveReceive };
    rig.tm.submit(&operation).unwrap().descriptor.expect("it is passive")
}

fn counter_of(descriptor: &Descriptor) -> u64 {
    split_match_bits(descriptor.for_active_send(1).unwrap().match_bits).1.get()
}

/// Starts a transfer machine whose NID has a 16-byte address, and registers a buffer.
fn with_large_nid() -> (Arc<FakeLnet>, Arc<Kcore>, KcoreTm, BufferHandle) {
    let lnet = FakeLnet::new(&["fd00::1@tcp"]);
    let core = Kcore::new(lnet.clone(), FakeDrive::new());
    let tm = core.start_machine(&start("fd00::1@tcp:12345:31:*"), &TmOptions::default()).unwrap();
    let buffer = core.register(&IoVec::whole(Region::heap(BUFFER_BYTES).unwrap())).unwrap();
    lnet.take_calls();
    (lnet, core, tm, buffer)
}

/// The spin limit of a machine's waits: its option, else the node's.
#[test]
fn waits_spin_for_as_long_as_was_asked_for() {
    let limit = |options| {
        let rig = Rig::with(options);
        assert_eq!(rig.drive.spin(), Duration::ZERO);
        rig.tm.local_sink().waiters.sleeper().unwrap().spin_limit()
    };
    let asked = Duration::from_micros(20);
    // With one processor, nothing spins.
    let expected = Spin::new(asked).limit();
    assert_eq!(
        [limit(TmOptions::default()), limit(TmOptions::default().spin(asked))],
        [Duration::ZERO, expected]
    );
}

/// Motr's form is the default.
// Covers: MT-74
#[test]
fn descriptors_have_the_form_that_was_asked_for() {
    for (options, form) in [
        (TmOptions::default(), DescriptorForm::Compatible),
        (TmOptions::default().descriptors(DescriptorForm::Extended), DescriptorForm::Extended),
    ] {
        let rig = Rig::with(options);
        let descriptor = described(&rig, rig.buffer);
        assert_eq!(descriptor.form(), form);
        assert!(descriptor.as_bytes().len() <= rig.core.limits().descriptor_bytes_max);
        let said = descriptor.for_active_send(1).unwrap();
        assert_eq!((said.address, said.length), (rig.tm.address(), BUFFER_BYTES as u64));
    }
}

/// The descriptor of a passive buffer behind an IPv6 NID leads to the buffer.
#[test]
fn a_large_nid_is_described_and_reached() {
    let (_, _core, tm, buffer) = with_large_nid();
    let operation = Operation { buffer, cookie: COOKIE, kind: OperationKind::PassiveReceive };
    let descriptor = tm.submit(&operation).unwrap().descriptor.unwrap();
    assert_eq!(descriptor.form(), DescriptorForm::Extended);
    let rig = Rig::new();
    rig.start(OperationKind::ActiveSend { descriptor, length: 100 });
    let calls = rig.lnet.take_calls();
    let [Call::BindPut { put, .. }] = &calls[..] else { panic!("not a PUT, but {calls:?}") };
    assert_eq!(put.target.nid, tm.address().nid);
    assert_eq!(put.match_bits, match_bits(tm.address().tmid, MatchCounter::FIRST));
}

/// K5: each waiting buffer has its own match bits, which do not predict the next ones.
// Covers: S-409
#[test]
fn random_match_bits_are_unique_and_not_in_order() {
    let rig = Rig::with(TmOptions::default().match_counters(MatchCounters::Random));
    let buffers: Vec<_> = (0..500).map(|_| rig.core.register(&rig.memory).unwrap()).collect();
    let mut live = BTreeSet::new();
    let mut high = Vec::new();
    for (slot, &buffer) in (0..).zip(&buffers) {
        let counter = counter_of(&described(&rig, buffer));
        assert!(live.insert(counter), "{counter:#x} is in use");
        assert_eq!(counter & 0xf_ffff, slot);
        high.push(counter >> 20);
    }
    assert!(high.iter().all(|&number| number != 0));
    // In order by chance once in 500! runs.
    assert!(!high.is_sorted());
    // A slot is reused; its value is the same with a probability of 1 in 2³² only.
    rig.tm.cancel(buffers[7], COOKIE).unwrap();
    rig.tm.event_get().unwrap().unwrap();
    let again = counter_of(&described(&rig, buffers[7]));
    assert!(live.insert(again));
    assert_eq!(again & 0xf_ffff, 7);
}

/// LNet listens for the match bits of the descriptor, and messages still come under counter 0.
#[test]
fn random_match_bits_are_those_of_the_match_entry() {
    let rig = Rig::with(TmOptions::default().match_counters(MatchCounters::Random));
    let descriptor = described(&rig, rig.buffer);
    let calls = rig.lnet.take_calls();
    let [Call::MeAttach(me), Call::MdAttach { .. }] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(me.match_bits, descriptor.for_active_send(1).unwrap().match_bits);
    let other = rig.core.register(&rig.memory).unwrap();
    rig.tm.submit(&Operation { buffer: other, cookie: COOKIE, kind: RECEIVE }).unwrap();
    let calls = rig.lnet.take_calls();
    let [Call::MeAttach(me), Call::MdAttach { .. }] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(me.match_bits, match_bits(rig.tm.address().tmid, MatchCounter::UNSOLICITED));
}

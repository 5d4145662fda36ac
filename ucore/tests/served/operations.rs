//! Operations of all six kinds, between transfer machines of one client and of two.

use nlx_core::{Core, DescriptorForm, Errno, MatchCounters, OperationKind, TmOptions};
use nlx_helper::ClientQuotas;

use crate::bed::*;

/// A message, its sender, and the rest of the buffer.
// Covers: MT-215
#[test]
fn a_message_reaches_another_client() {
    let helper = Helper::start();
    let (here, there) = (helper.client(), helper.client());
    let (sender, receiver) = (start(&*here), start(&*there));
    let posted = buffer(&*there, 4096);
    submit(&*receiver, &posted.receive(2));
    // After a request of the same client the buffer is posted: the helper serves clients in any
    // order.
    there.nids();
    let sent = buffer(&*here, 100);
    sent.fill(b"hello");
    submit(&*sender, &sent.send(5, receiver.address()));
    assert_ok(&event(&*sender));
    let came = event(&*receiver);
    assert_ok(&came);
    assert!(!came.unlinked());
    assert_eq!((came.sender(), came.length), (Some(sender.address()), 5));
    assert_eq!(posted.bytes(came.offset as usize, 5), b"hello");
    // The next message is received into the rest while this one is still being read.
    let lent = posted.memory.read(came.offset as usize..came.offset as usize + 5).unwrap();
    assert_eq!(lent.as_slice(), Some(&b"hello"[..]), "memory of the domain is seen without a copy");
    submit(&*sender, &sent.send(5, receiver.address()));
    let last = event(&*receiver);
    assert!(last.unlinked() && last.offset != came.offset);
    assert_eq!((receiver.needed(), last.released), (0, 2));
    drop(lent);
    assert_ok(&event(&*sender));
    sender.stop().unwrap();
    receiver.stop().unwrap();
}

#[test]
fn bulk_goes_both_ways_with_each_form_of_descriptor_and_counter() {
    let (_helper, domain) = served();
    for (form, counters) in [
        (DescriptorForm::Compatible, MatchCounters::Sequential),
        (DescriptorForm::Extended, MatchCounters::Random),
    ] {
        let options = TmOptions::default().descriptors(form).match_counters(counters);
        let (passive, active) = (start_with(&*domain, &options), start_with(&*domain, &options));
        let bytes: Vec<u8> = (0..100_000u32).map(|at| (at * 7 + 3) as u8).collect();
        for make in [buffer as fn(&dyn Core, usize) -> Buffer, copying] {
            let (source, target) = (make(&*domain, bytes.len()), make(&*domain, bytes.len()));
            source.fill(&bytes);
            let length = bytes.len() as u64;
            let descriptor =
                submit(&*passive, &source.to(OperationKind::PassiveSend { length })).descriptor.unwrap();
            submit(&*active, &target.to(OperationKind::ActiveReceive { descriptor }));
            let ended = [event(&*passive), event(&*active)];
            ended.iter().for_each(assert_ok);
            assert_eq!(ended[1].length, length);
            assert!(target.bytes(0, bytes.len()) == bytes);

            target.fill(&[0; 1000]);
            let descriptor = submit(&*passive, &target.to(OperationKind::PassiveReceive)).descriptor.unwrap();
            submit(&*active, &source.to(OperationKind::ActiveSend { descriptor, length: 900 }));
            let ended = [event(&*passive), event(&*active)];
            ended.iter().for_each(assert_ok);
            assert_eq!(ended[0].length, 900);
            assert!(target.bytes(0, 900) == bytes[..900]);
            assert_eq!(target.bytes(900, 100), [0; 100]);
        }
        passive.stop().unwrap();
        active.stop().unwrap();
    }
}

/// Messages that arrive in a copied buffer are in the client's memory when their events are taken.
#[test]
fn messages_are_copied_into_foreign_memory() {
    let (_helper, domain) = served();
    let (sender, receiver) = (start(&*domain), start(&*domain));
    let posted = copying(&*domain, 4096);
    submit(&*receiver, &posted.receive(10));
    let sent = copying(&*domain, 8);
    for number in 0..10u8 {
        sent.fill(&[number; 8]);
        submit(&*sender, &sent.send(8, receiver.address()));
        assert_ok(&event(&*sender));
        let came = event(&*receiver);
        assert_ok(&came);
        assert_eq!(posted.bytes(came.offset as usize, 8), [number; 8]);
        assert_eq!(came.unlinked(), number == 9);
    }
}

/// More operations than the submission ring has slots, in one batch and in order.
// Covers: S-407
#[test]
fn a_batch_is_longer_than_the_ring() {
    let helper = Helper::with(ClientQuotas { ring_slots: 8, ..ClientQuotas::default() });
    let domain = helper.client();
    let (sender, receiver) = (start(&*domain), start(&*domain));
    let posted = buffer(&*domain, 1 << 16);
    submit(&*receiver, &posted.receive(500));
    let buffers: Vec<_> = (0..500u32)
        .map(|number| {
            let sent = buffer(&*domain, 64);
            sent.fill(&number.to_le_bytes());
            sent
        })
        .collect();
    let operations: Vec<_> = buffers.iter().map(|sent| sent.send(4, receiver.address())).collect();
    let mut told = vec![];
    sender.submit_all(None, &operations, &mut |place, outcome| told.push((place, outcome.is_ok())));
    assert!(told.iter().copied().eq((0..500).map(|place| (place, true))), "{told:?}");
    events_until(&*sender, 500).iter().for_each(assert_ok);
    for (number, came) in events_until(&*receiver, 1).iter().enumerate() {
        assert_eq!(posted.bytes(came.offset as usize, 4), (number as u32).to_le_bytes());
    }
}

#[test]
fn an_operation_is_cancelled_once_and_by_its_own_cookie() {
    let (_helper, domain, tm) = started();
    let posted = buffer(&*domain, 100);
    let operation = posted.to(OperationKind::PassiveReceive);
    submit(&*tm, &operation);
    let cancel = |cookie| tm.cancel(posted.handle, cookie).map_err(|error| error.errno());
    assert_eq!(cancel(operation.cookie + 1), Err(Errno::ENOENT));
    cancel(operation.cookie).unwrap();
    let last = event(&*tm);
    assert_eq!((last.status(), last.unlinked()), (Err(Errno::ECANCELED), true));
    assert_eq!(cancel(operation.cookie), Err(Errno::ENOENT));
    tm.stop().unwrap();
}

/// A transfer machine dropped in use leaves neither its address nor its buffers taken.
#[test]
fn what_is_dropped_in_use_is_free_again() {
    let (helper, domain) = served();
    let address = "0@lo:12345:41:7".parse().unwrap();
    let posted = buffer(&*domain, 100);
    for _ in 0..3 {
        let tm = domain.tm_start(&address, &TmOptions::default()).unwrap();
        submit(&*tm, &posted.receive(3));
        drop(tm);
        assert!(posted.memory.write(0..100).is_ok());
    }
    domain.deregister(posted.handle).unwrap();
    assert_eq!(helper.host.status().clients[0].tms.len(), 0);
}

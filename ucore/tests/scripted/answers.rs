//! Answers that are wrong, late, or missing (U2, MT-214).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nlx_core::{Core, Errno, IoVec, Operation, OperationKind, TmOptions};
use nlx_driver_proto::{Entry, Reason, Refusal, Reply, Request};
use nlx_ucore::{HelperOptions, Ucore};

use crate::helper::*;

type Wrong = fn(u64, &Request) -> Answer;

/// A hello that fails: the error contains the reason, and nothing hangs.
#[test]
fn a_hello_that_goes_wrong() {
    let refusal = Refusal::new(Errno::EACCES, Reason::Other);
    let cases: [(Wrong, Errno); 5] = [
        (|_, _| Answer::End, Errno::ECONNRESET),
        (|_, _| Answer::Packet(b"220 mail.example.org ESMTP".to_vec(), 0), Errno::EPROTO),
        (|id, request| Answer::Packet(written(request, id, &Reply::Done), 0), Errno::EPROTO),
        (|id, request| Answer::Packet(written(request, id + 1, &Reply::Nids(vec![])), 2), Errno::EPROTO),
        (|_, _| Answer::Silence, Errno::ETIMEDOUT),
    ];
    for (answer, errno) in cases {
        let helper = Helper::start(1, answer);
        let options = helper.options().timeout(Duration::from_millis(100));
        assert_eq!(Ucore::connect(&options).unwrap_err().errno(), errno);
    }
    let helper = Helper::start(1, move |_, _| Answer::Reply(Reply::Refused(refusal)));
    assert_eq!(Ucore::connect(&helper.options()).unwrap_err().errno(), Errno::EACCES);
}

/// Whichever request is answered wrongly: that call fails with the reason, the domain ends, and no
/// packet is taken for the answer to another request.
#[test]
fn what_is_no_answer_ends_the_domain() {
    let wrong: [Wrong; 5] = [
        |_, _| Answer::Packet(vec![1, 2, 3], 0),
        // The id of the previous request.
        |id, request| Answer::Packet(written(request, id - 1, &Reply::Done), 1),
        |id, request| Answer::Packet(written(request, id, &Reply::Done), 2),
        |id, _| Answer::Packet(written(&Request::Nids, id, &Reply::Nids(vec![])), 3),
        |id, request| {
            Answer::Packet(vec![0; 5000].into_iter().chain(written(request, id, &Reply::Done)).collect(), 0)
        },
    ];
    for answer in wrong {
        let helper = Helper::start(1, move |id, request| match request {
            Request::StartTm(_) => answer(id, request),
            _ => Answer::Right,
        });
        let domain = helper.client();
        let start = || {
            let started = domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), &TmOptions::default());
            started.map(|_| ()).unwrap_err()
        };
        let error = start();
        assert_eq!(error.errno(), Errno::EPROTO, "{error}");
        assert_eq!(start().errno(), Errno::ENOTCONN);
        assert_eq!(domain.allocate(1).unwrap_err().errno(), Errno::ENOTCONN);
        assert!(!domain.is_connected());
    }
}

/// The helper dies at each kind of request.
#[test]
fn the_helper_dies_at_a_request() {
    for victim in 0..5 {
        let helper = Helper::start(1, move |_, request| {
            let dies = match request {
                Request::CreateArena { .. } => 0,
                Request::StartTm(_) => 1,
                Request::StopTm { .. } => 2,
                Request::TmDescriptor { .. } => 3,
                Request::Register { .. } => 4,
                _ => 9,
            };
            if dies == victim { Answer::End } else { Answer::Right }
        });
        let domain = helper.client();
        let outcome = domain.allocate(4096).map(IoVec::whole).and_then(|memory| {
            let fragments = [memory.fragments()[0].clone(), memory.fragments()[0].clone()];
            let tm = domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), &TmOptions::default())?;
            domain.register(&memory)?;
            domain.register(&IoVec::new(fragments)?)?;
            tm.descriptor()?;
            // Without a helper there is nothing to stop.
            tm.stop()
        });
        let errno = outcome.err().map(|error| error.errno());
        assert_eq!(errno, (victim != 2).then_some(Errno::ENOTCONN), "{victim}");
        until("the connection ends", || !domain.is_connected());
    }
}

/// A helper that is stopped: the call fails in time, and everything ends; but its memory stays
/// leased until it is gone.
#[test]
fn a_helper_that_does_not_answer_counts_as_gone() {
    let silent = Arc::new(AtomicBool::new(false));
    let script = silent.clone();
    let helper =
        Helper::start(
            1,
            move |_, _| {
                if script.load(Ordering::SeqCst) { Answer::Silence } else { Answer::Right }
            },
        );
    let domain = Ucore::connect(&helper.options().timeout(Duration::from_millis(100))).unwrap();
    let tm = domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), &TmOptions::default()).unwrap();
    let memory = IoVec::whole(domain.allocate(4096).unwrap());
    let buffer = domain.register(&memory).unwrap();
    let kind = nlx_core::OperationKind::PassiveReceive;
    tm.submit(&nlx_core::Operation { buffer, cookie: 7, kind }).unwrap();
    // While this is held, the helper does not even notice that the client has closed its direction.
    let stopped = helper.seen.lock();
    silent.store(true, Ordering::SeqCst);
    assert_eq!(domain.allocate(1 << 20).unwrap_err().errno(), Errno::ETIMEDOUT);
    assert_eq!(domain.allocate(1 << 20).unwrap_err().errno(), Errno::ENOTCONN);
    assert!(tm.has_ended() && tm.event_wait(None));
    let last = tm.event_get().unwrap().unwrap();
    assert_eq!((last.status(), last.cookie, last.unlinked()), (Err(Errno::ENOTCONN), 7, true));
    assert_eq!((tm.needed(), tm.event_get().unwrap()), (0, None));
    assert!(memory.read(0..1).is_err(), "it may still be written to");
    drop(stopped);
    until("the memory is free", || memory.write(0..4096).is_ok());
    domain.deregister(buffer).unwrap();
    tm.stop().unwrap();
}

/// Memory that the next helper refuses is requested again when the buffer is used.
#[test]
fn memory_is_refused_by_the_next_helper_and_asked_for_again() {
    let die = Arc::new(AtomicBool::new(false));
    let (refusals, dying) = (Arc::new(AtomicU32::new(0)), die.clone());
    let (refused, died) = (refusals.clone(), AtomicBool::new(false));
    let again = Arc::new(AtomicU64::new(0));
    let named = again.clone();
    let helper = Helper::start(2, move |_, request| match request {
        Request::StartTm(_) if dying.swap(false, Ordering::SeqCst) => {
            died.store(true, Ordering::SeqCst);
            Answer::End
        }
        Request::CreateArena { .. }
            if died.load(Ordering::SeqCst) && refused.fetch_add(1, Ordering::SeqCst) < 2 =>
        {
            Answer::Reply(Reply::Refused(Refusal::new(Errno::EPERM, Reason::Other)))
        }
        Request::Register { buffer, .. } => {
            named.store(*buffer, Ordering::SeqCst);
            Answer::Right
        }
        _ => Answer::Right,
    });
    let options: HelperOptions = helper.options().reconnect(true);
    let domain = Ucore::connect(&options).unwrap();
    let memory = IoVec::whole(domain.allocate(4096).unwrap());
    let buffer = domain.register(&memory).unwrap();
    die.store(true, Ordering::SeqCst);
    let start = || domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), &TmOptions::default());
    assert_eq!(start().map(drop).unwrap_err().errno(), Errno::ENOTCONN);
    until("the client connects again", || domain.is_connected());
    let asked = || (refusals.load(Ordering::SeqCst), helper.connections.load(Ordering::SeqCst));
    assert_eq!(asked(), (1, 2));
    let tm = start().unwrap();
    let kind = OperationKind::Receive { min_receive_size: 1, max_messages: 1 };
    let receive = Operation { buffer, cookie: 1, kind };
    assert_eq!(tm.submit(&receive).unwrap_err().errno(), Errno::EPERM);
    assert_eq!(asked(), (2, 2));
    tm.submit(&receive).unwrap();
    assert_eq!(asked(), (3, 2));
    assert_eq!(again.load(Ordering::SeqCst), buffer.0);
    until("an entry arrives", || !helper.entries().is_empty());
    // By its old handle, which is also used for later registrations.
    let entries = helper.entries();
    assert!(
        matches!(entries[..], [Entry::Operate { operation, .. }] if operation.buffer == buffer),
        "{entries:?}"
    );
    let again = domain.register(&memory).unwrap();
    domain.deregister(again).unwrap();
}

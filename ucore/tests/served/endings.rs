//! The end of the helper: everything ends, and a new helper is found.

use std::sync::atomic::{AtomicU32, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use nlx_core::{Core, Errno, OperationKind, TmOptions};
use nlx_helper::ClientQuotas;
use nlx_ucore::Ucore;

use crate::bed::*;

/// Every wait and every operation ends; events that were produced before come first.
#[test]
fn the_helpers_end_ends_all_waits_and_operations() {
    let mut helper = Helper::start();
    let domain = helper.client();
    let (tm, looped, idle) = (start(&*domain), start(&*domain), start(&*domain));
    let posted: Vec<_> = (0..100).map(|_| buffer(&*domain, 100)).collect();
    for posted in &posted {
        submit(&*tm, &posted.receive(3));
    }
    let sent = buffer(&*domain, 100);
    submit(&*idle, &sent.send(7, tm.address()));
    assert_ok(&event(&*idle));
    until("an event is pending", || tm.pending());
    assert!(looped.arm(None).unwrap());
    let waits = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !idle.has_ended() {
                idle.event_wait(None);
            }
            waits.fetch_add(1, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut set = [PollFd::new(looped.descriptor().unwrap(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut set, PollTimeout::NONE).unwrap(), 1);
            waits.fetch_add(1, Ordering::Relaxed);
        });
        helper.stop();
    });
    assert_eq!(waits.load(Ordering::Relaxed), 2);
    assert!(tm.has_ended() && tm.pending() && tm.event_wait(None) && !domain.is_connected());
    let events = events_until(&*tm, 100);
    assert_ok(&events[0]);
    assert!(!events[0].unlinked());
    let mut gone: Vec<_> =
        events.iter().filter(|event| event.status() == GONE).map(|event| event.buffer()).collect();
    gone.sort();
    // All except those that LNet had cancelled before the end.
    assert!(events[1..].iter().all(|event| event.status().is_err() && event.unlinked()));
    gone.dedup();
    assert_eq!(gone.len(), events.iter().filter(|event| event.status() == GONE).count());
    assert_eq!((tm.needed(), tm.event_get().unwrap()), (0, None));
    assert!(!tm.pending() && !tm.event_wait(None));
    // The memory is the client's again, and every call fails except clean-up.
    assert!(posted.iter().all(|posted| posted.memory.write(0..100).is_ok()));
    for error in [
        domain.allocate(10_000_000).unwrap_err(),
        domain.register(&sent.memory).unwrap_err(),
        tm.submit(&posted[0].receive(1)).unwrap_err(),
        domain.tm_start(&"0@lo:12345:41:*".parse().unwrap(), &TmOptions::default()).map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.errno(), Errno::ENOTCONN, "{error}");
    }
    domain.deregister(posted[0].handle).unwrap();
    for tm in [tm, looped, idle] {
        tm.stop().unwrap();
    }
    // A new domain.
    helper.start_again();
    let domain = helper.client();
    start(&*domain).stop().unwrap();
}

/// Reconnecting: memory and buffers go over to the next helper, transfer machines do not.
// Covers: MT-214
#[test]
fn a_domain_connects_again() {
    let mut helper = Helper::start();
    let domain = Ucore::connect(&helper.options().reconnect(true)).unwrap();
    let (sent, posted, copied) = (buffer(&*domain, 4096), buffer(&*domain, 4096), copying(&*domain, 4096));
    sent.fill(b"as it was");
    for round in 0..3 {
        let old = start(&*domain);
        submit(&*old, &posted.receive(1));
        helper.stop();
        until("the machine ends", || old.has_ended());
        helper.start_again();
        until("the client connects again", || domain.is_connected());
        assert!(old.has_ended(), "it stays ended");
        assert_eq!(old.submit(&sent.send(1, old.address())).unwrap_err().errno(), Errno::ENOTCONN);
        let tm = start(&*domain);
        assert_eq!(tm.submit(&posted.receive(1)).unwrap_err().errno(), Errno::EBUSY, "its end is not taken");
        assert!(event(&*old).status().is_err());
        for posted in [&posted, &copied] {
            submit(&*tm, &posted.receive(1));
            submit(&*tm, &sent.send(9, tm.address()));
            events_until(&*tm, 2).iter().for_each(assert_ok);
            assert_eq!(posted.bytes(0, 9), b"as it was", "round {round}");
        }
        old.stop().unwrap();
        tm.stop().unwrap();
        assert!(!buffer(&*domain, 1 << 19).memory.is_empty());
    }
}

/// The next helper allows fewer buffers and less memory than the one before: buffers that it
/// accepts are served, those that it refuses are offered again when they are used, and disturb
/// nothing.
#[test]
fn a_helper_with_less_room_gets_what_it_takes() {
    let mut helper = Helper::start();
    let domain = Ucore::connect(&helper.options().reconnect(true)).unwrap();
    let all: Vec<Buffer> = (0..6).map(|_| buffer(&*domain, 1 << 20)).collect();
    for (quotas, known) in [
        (ClientQuotas { bytes: 4 << 20, ..ClientQuotas::default() }, 4),
        (ClientQuotas { buffers: 3, ..ClientQuotas::default() }, 3),
        (ClientQuotas::default(), 6),
    ] {
        helper.set_quotas(quotas);
        helper.stop();
        until("the connection ends", || !domain.is_connected());
        helper.start_again();
        until("the client connects again", || domain.is_connected());
        assert_eq!(domain.limits().buffers_max, quotas.buffers as usize);
        let tm = start(&*domain);
        for (place, buffer) in all.iter().enumerate() {
            let sent = tm.submit(&buffer.send(1, tm.address()));
            let errno = sent.map(drop).map_err(|error| error.errno());
            assert_eq!(errno, if place < known { Ok(()) } else { Err(Errno::ENOMEM) }, "buffer {place}");
        }
        events_until(&*tm, known);
        tm.stop().unwrap();
        assert_eq!(helper.host.status().totals.violations, 0);
    }
    for Buffer { handle, .. } in all {
        domain.deregister(handle).unwrap();
    }
    until("the buffers are deregistered", || helper.host.status().clients[0].buffers == 0);
}

/// A domain that is dropped does not reconnect.
#[test]
fn a_domain_that_is_dropped_does_not_come_back() {
    let mut helper = Helper::start();
    let domain = Ucore::connect(&helper.options().reconnect(true)).unwrap();
    helper.stop();
    until("the connection ends", || !domain.is_connected());
    drop(domain);
    helper.start_again();
    let other = helper.client();
    assert_eq!(helper.host.status().clients.len(), 1);
    drop(other);
    until("the session ends", || helper.host.status().clients.is_empty());
}

/// Submitting, taking events and the helper's end at the same time: each operation that was started
/// ends once.
#[test]
fn every_operation_ends_once_whenever_the_helper_goes() {
    let mut helper = Helper::start();
    for round in 0..20 {
        let domain = helper.client();
        let tm = start(&*domain);
        let buffers: Vec<_> = (0..32).map(|_| buffer(&*domain, 64)).collect();
        let (started, ended) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0.. {
                    let buffer = &buffers[turn % buffers.len()];
                    let kinds = [
                        OperationKind::Send { length: 7, to: tm.address() },
                        OperationKind::PassiveReceive,
                        OperationKind::Receive { min_receive_size: 1, max_messages: 2 },
                    ];
                    match tm.submit(&buffer.to(kinds[turn % 3])) {
                        Ok(_) => drop(started.fetch_add(1, Ordering::Relaxed)),
                        Err(error) if error.errno() == Errno::EBUSY => {
                            // It may have ended by now.
                            let _ = tm.cancel(buffer.handle, buffer.handle.0);
                        }
                        Err(error) => {
                            assert_eq!(error.errno(), Errno::ENOTCONN);
                            return;
                        }
                    }
                }
            });
            scope.spawn(|| {
                while !tm.has_ended() || tm.needed() > 0 {
                    if let Some(event) = tm.event_get().unwrap() {
                        ended.fetch_add(u32::from(event.unlinked()), Ordering::Relaxed);
                    } else {
                        tm.event_wait(Some(deadline(std::time::Duration::from_millis(1))));
                    }
                }
            });
            until("operations start", || started.load(Ordering::Relaxed) > 100 * round);
            helper.stop();
        });
        while let Some(event) = tm.event_get().unwrap() {
            ended.fetch_add(u32::from(event.unlinked()), Ordering::Relaxed);
        }
        assert_eq!(started.into_inner(), ended.into_inner());
        assert!(buffers.iter().all(|buffer| buffer.memory.write(0..64).is_ok()));
        tm.stop().unwrap();
        helper.start_again();
    }
}

/// A forked child has no share in the connection, and does not shut it down.
#[test]
#[allow(unsafe_code, reason = "forking a process with threads")]
fn a_forked_child_leaves_it_alone() {
    let (_helper, domain, tm) = started();
    let posted = buffer(&*domain, 100);
    submit(&*tm, &posted.receive(1));
    // SAFETY: the child allocates nothing that another thread may hold a lock for, and ends without
    // unwinding.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let refused = |outcome: Option<Errno>| outcome == Some(Errno::ESTALE);
            let fine = refused(domain.allocate(1).err().map(|error| error.errno()))
                && refused(domain.register(&posted.memory).err().map(|error| error.errno()))
                && refused(domain.deregister(posted.handle).err().map(|error| error.errno()))
                && refused(tm.submit(&posted.receive(1)).err().map(|error| error.errno()))
                && refused(tm.cancel(posted.handle, posted.handle.0).err().map(|error| error.errno()))
                && refused(tm.stop().err().map(|error| error.errno()))
                && refused(tm.arm(None).err().map(|error| error.errno()))
                && !tm.event_wait(None)
                && !tm.pending()
                && tm.event_get().unwrap().is_none()
                && (tm.needed(), tm.dropped()) == (0, 0);
            tm.wake();
            tm.poll();
            drop((tm, domain));
            // SAFETY: it ends this process, whose other threads do not exist in the child.
            unsafe { nix::libc::_exit(if fine { 7 } else { 1 }) };
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 7));
        }
    }
    let sent = buffer(&*domain, 100);
    submit(&*tm, &sent.send(3, tm.address()));
    events_until(&*tm, 2).iter().for_each(assert_ok);
    tm.stop().unwrap();
}

/// Two clients do not notice each other's end.
#[test]
fn another_client_goes_unnoticed() {
    let helper = Helper::start();
    let (domain, other) = (helper.client(), helper.client());
    let (tm, theirs) = (start(&*domain), start(&*other));
    let posted = buffer(&*other, 100);
    submit(&*theirs, &posted.receive(1));
    let address = theirs.address();
    drop((theirs, posted, other));
    until("the other session ends", || helper.host.status().clients.len() == 1);
    let again = domain.tm_start(&address.into(), &TmOptions::default()).unwrap();
    again.stop().unwrap();
    tm.stop().unwrap();
}

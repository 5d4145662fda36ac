//! Refusals: at once on this side, or by an event of the helper.

use nlx_core::{Address, BufferHandle, Core, Descriptor, Errno, IoVec, OperationKind, TmOptions};
use nlx_helper::ClientQuotas;
use nlx_ucore::{HelperOptions, Ucore};

use crate::bed::*;

/// No helper listens.
// Covers: MT-11
#[test]
fn a_helper_that_is_not_there() {
    let directory = tempfile::TempDir::new().unwrap();
    let at = |name: &str| Ucore::connect(&HelperOptions::at(directory.path().join(name))).unwrap_err();
    let nobody = at("nobody.sock");
    assert_eq!(nobody.errno(), Errno::ENOENT);
    assert!(nobody.to_string().contains("nobody.sock"), "{nobody}");
    std::fs::write(directory.path().join("file"), "").unwrap();
    assert_eq!(at("file").errno(), Errno::ECONNREFUSED);
    assert_eq!(at(&"x".repeat(200)).errno(), Errno::ENAMETOOLONG);
}

/// MT-6 and K7, as in-process: refused at once, without an event.
// Covers: MT-228
#[test]
fn what_can_be_checked_is_refused_at_once() {
    let (_helper, domain, tm) = started();
    let posted = buffer(&*domain, 1000);
    let refused = |operation| tm.submit(&operation).unwrap_err().errno();
    let unknown = Address { portal: 64, ..tm.address() };
    let passive = submit(&*tm, &posted.to(OperationKind::PassiveSend { length: 1000 })).descriptor.unwrap();
    assert_eq!(refused(posted.receive(1)), Errno::EBUSY);
    assert_eq!(domain.deregister(posted.handle).unwrap_err().errno(), Errno::EBUSY);
    let free = buffer(&*domain, 500);
    for (kind, errno) in [
        (OperationKind::Send { length: 0, to: tm.address() }, Errno::EINVAL),
        (OperationKind::Send { length: 501, to: tm.address() }, Errno::EINVAL),
        (OperationKind::Send { length: 1, to: unknown }, Errno::EINVAL),
        (OperationKind::Receive { min_receive_size: 501, max_messages: 1 }, Errno::EINVAL),
        (OperationKind::Receive { min_receive_size: 1, max_messages: 0 }, Errno::EINVAL),
        (OperationKind::Receive { min_receive_size: 1, max_messages: u32::MAX }, Errno::EINVAL),
        (OperationKind::PassiveSend { length: 501 }, Errno::EINVAL),
        (OperationKind::ActiveReceive { descriptor: Descriptor::NONE }, Errno::EINVAL),
        (OperationKind::ActiveReceive { descriptor: passive }, Errno::EFBIG),
        (OperationKind::ActiveSend { descriptor: passive, length: 1 }, Errno::EPERM),
    ] {
        assert_eq!(refused(free.to(kind)), errno, "{kind:?}");
    }
    for nowhere in [0, 5, u64::MAX, posted.handle.0 ^ 1 << 40] {
        let kind = OperationKind::PassiveReceive;
        let operation = nlx_core::Operation { buffer: BufferHandle(nowhere), cookie: 0, kind };
        assert_eq!(refused(operation), Errno::ENOENT, "{nowhere:#x}");
        assert_eq!(domain.deregister(BufferHandle(nowhere)).unwrap_err().errno(), Errno::ENOENT);
    }
    assert_eq!(tm.needed(), 1);
    assert_eq!(tm.stop().unwrap_err().errno(), Errno::EBUSY);
    tm.cancel(posted.handle, posted.handle.0).unwrap();
    event(&*tm);
    tm.stop().unwrap();
    tm.stop().unwrap();
    assert_eq!(refused(free.receive(1)), Errno::ESHUTDOWN);
    domain.deregister(free.handle).unwrap();
    assert_eq!(refused(free.receive(1)), Errno::ENOENT);
}

#[test]
fn starts_are_refused_in_the_words_of_the_interface() {
    let helper = Helper::with(ClientQuotas { tms: 1, ..ClientQuotas::default() });
    let domain = helper.client();
    let refused = |address: &str| {
        let started = domain.tm_start(&address.parse().unwrap(), &TmOptions::default());
        started.map(|_| ()).unwrap_err()
    };
    for portal in [0, 64, 1000] {
        assert_eq!(refused(&format!("0@lo:12345:{portal}:1")).errno(), Errno::EINVAL);
    }
    assert_eq!(refused("10.1.2.3@tcp:12345:41:1").errno(), Errno::ENOENT);
    assert_eq!(refused("0@lo:999:41:1").errno(), Errno::ENOENT);
    let _tm = domain.tm_start(&"0@lo:12345:41:9".parse().unwrap(), &TmOptions::default()).unwrap();
    let full = refused("0@lo:12345:41:8");
    assert_eq!(full.errno(), Errno::ENOMEM, "{full}");
    assert!(full.to_string().contains('1'), "{full}");
    let other = helper.client();
    let taken = other.tm_start(&"0@lo:12345:41:9".parse().unwrap(), &TmOptions::default());
    assert_eq!(taken.map(|_| ()).unwrap_err().errno(), Errno::EADDRINUSE);
}

/// The limits of the helper are checked on this side, so that the helper refuses nothing.
#[test]
fn quotas_are_kept_on_this_side() {
    let quotas = ClientQuotas { buffers: 4, operations: 2, events: 10, ..ClientQuotas::default() };
    let helper = Helper::with(quotas);
    let domain = helper.client();
    assert_eq!(domain.limits().buffers_max, 4);
    let tm = start(&*domain);
    let buffers: Vec<_> = (0..4).map(|_| buffer(&*domain, 100)).collect();
    let more = IoVec::whole(domain.allocate(100).unwrap());
    assert_eq!(domain.register(&more).unwrap_err().errno(), Errno::ENOMEM);
    assert_eq!(tm.submit(&buffers[0].receive(11)).unwrap_err().errno(), Errno::ENOMEM, "events");
    submit(&*tm, &buffers[0].receive(9));
    submit(&*tm, &buffers[1].receive(1));
    assert_eq!(
        tm.submit(&buffers[2].receive(1)).unwrap_err().errno(),
        Errno::ENOMEM,
        "events and operations"
    );
    for at in [0, 1] {
        tm.cancel(buffers[at].handle, buffers[at].handle.0).unwrap();
        assert_eq!(event(&*tm).status(), Err(Errno::ECANCELED));
    }
    // At the limit, repeatedly: each end makes room for one operation.
    let passive = |at: usize| buffers[at].to(OperationKind::PassiveReceive);
    for _ in 0..200 {
        submit(&*tm, &passive(2));
        submit(&*tm, &passive(3));
        assert_eq!(tm.submit(&passive(0)).unwrap_err().errno(), Errno::ENOMEM, "operations");
        for at in [2, 3] {
            tm.cancel(buffers[at].handle, buffers[at].handle.0).unwrap();
            assert_eq!(event(&*tm).status(), Err(Errno::ECANCELED));
        }
    }
    domain.deregister(buffers[0].handle).unwrap();
    assert!(domain.register(&more).is_ok());
}

#[test]
fn the_nids_are_those_of_the_helper() {
    let (helper, domain) = served();
    assert_eq!(domain.nids(), [nlx_core::Nid::LOOPBACK]);
    assert!(domain.client() > 0 && domain.is_connected());
    let status = helper.host.status();
    assert_eq!(status.clients[0].pid, std::process::id() as i32);
}

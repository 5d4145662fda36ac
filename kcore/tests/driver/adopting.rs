//! Memory that an earlier helper made, and descriptors that only look like it.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use nlx_core::{Errno, OperationKind};
use nlx_driver_proto::{Reason, Reply, Request};

use crate::client::{Client, ROOT, USER, ask};
use crate::worlds::{loopback, loopback_with, quotas};

const NAME: &CStr = c"test";

fn memory(bytes: i64, flags: MFdFlags, seals: SealFlag) -> OwnedFd {
    let fd = memfd_create(NAME, flags | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&fd, bytes).unwrap();
    fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    fd
}

fn sized() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

/// The helper was restarted: a client hands its memory to the new one, and its bytes are still there.
#[test]
fn an_arena_of_an_earlier_helper_is_used_again() {
    let mut before = Client::connect(&loopback(), USER);
    let arena = before.arena(8192);
    arena.put(4096, b"kept");
    drop(before);

    let host = loopback();
    let mut client = Client::connect(&host, USER);
    let fd = arena.fd.try_clone().unwrap();
    let (reply, fds) = ask(&mut client.session, &Request::AdoptArena, vec![fd]).unwrap();
    let Reply::Arena { arena: handle, bytes: 8192, huge: false } = reply else { panic!("{reply:?}") };
    assert!(fds.is_empty());
    let (mut tm, mut other) = (client.start("0@lo:12345:40:*", 4), client.start("0@lo:12345:40:*", 4));
    let (from, to) = (client.register(0, handle, 4096, 4), client.register(1, handle, 0, 64));
    client.operate(&mut other, to, OperationKind::Receive { min_receive_size: 64, max_messages: 1 }, 0);
    client.operate(&mut tm, from, OperationKind::Send { length: 4, to: other.address }, 0);
    assert_eq!((tm.ended(from), other.ended(to)), (Ok(4), Ok(4)));
    assert_eq!(arena.bytes(0, 4), b"kept");
    assert_eq!(host.status().clients[0].bytes, 8192);
}

/// What is no memory, or could change its size, or has seals that no helper sets, is refused and closed.
#[test]
fn descriptors_that_are_not_what_they_should_be_are_refused() {
    let host = loopback();
    let mut client = Client::connect(&host, ROOT);
    let file = tempfile(&[0; 4096]);
    let plain = MFdFlags::empty();
    let cases: [(&str, OwnedFd); 8] = [
        ("an eventfd", EventFd::new().unwrap().into()),
        ("a pipe", nix::unistd::pipe().unwrap().0),
        ("a file", file),
        ("a directory", std::fs::File::open("/").unwrap().into()),
        ("no seals", memory(4096, plain, SealFlag::empty())),
        ("it can grow", memory(4096, plain, SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL)),
        ("it cannot be written", memory(4096, plain, sized() | SealFlag::F_SEAL_WRITE)),
        ("no bytes", memory(0, plain, sized())),
    ];
    for (what, fd) in cases {
        let refusal = ask(&mut client.session, &Request::AdoptArena, vec![fd]).unwrap_err();
        assert_eq!(refusal.reason, Reason::NotArena, "{what}");
    }
    assert_eq!((host.status().clients[0].arenas, host.status().clients[0].bytes), (0, 0));
    client.done(&Request::Sync);
}

/// Huge pages are for helpers that survive their loss; and what is adopted counts as what is made.
#[test]
fn huge_pages_and_too_much_memory_are_refused() {
    let host = loopback_with(quotas(|quotas| quotas.bytes = 10_000));
    let mut client = Client::connect(&host, ROOT);
    client.arena(4096);
    let large = memory(5905, MFdFlags::empty(), sized());
    let refusal = ask(&mut client.session, &Request::AdoptArena, vec![large]).unwrap_err();
    assert_eq!((refusal.errno, refusal.reason), (Errno::ENOMEM, Reason::Bytes));
    // Its pages come when they are touched: there need be none.
    let huge = memory(2 << 20, MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB, sized());
    let refusal = ask(&mut client.session, &Request::AdoptArena, vec![huge]).unwrap_err();
    assert_eq!((refusal.errno, refusal.reason), (Errno::EPERM, Reason::NotArena));
    let (reply, _) = client.ask(&Request::CreateArena { bytes: 4096, huge: true }).unwrap();
    assert!(matches!(reply, Reply::Arena { huge: false, .. }), "asked for, but not to be had: {reply:?}");
}

fn tempfile(bytes: &[u8]) -> OwnedFd {
    let directory = std::env::temp_dir();
    let file = nix::fcntl::open(
        &directory,
        nix::fcntl::OFlag::O_TMPFILE | nix::fcntl::OFlag::O_RDWR,
        nix::sys::stat::Mode::S_IRUSR,
    );
    let file = file.unwrap();
    nix::unistd::write(&file, bytes).unwrap();
    file
}

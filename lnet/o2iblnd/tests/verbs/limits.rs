//! Requests for more than a device or the system supports.

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use lnet_region::Region;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::common::*;

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn queues_beyond_the_device() {
    let host = new_host();
    let node = node(&host, 0);
    let limits = *node.device.limits();
    let too_many = [
        QueueSizes { sends: limits.queue_entries + 1, ..SIZES },
        QueueSizes { receives: limits.queue_entries + 1, ..SIZES },
        QueueSizes { completions: limits.completions + 1, ..SIZES },
        QueueSizes { pieces: limits.pieces + 1, ..SIZES },
        QueueSizes { completions: u32::MAX, ..SIZES },
    ];
    let (_, mut endpoint) = node.resolved(node.at(SERVICE));
    for sizes in too_many {
        let error = endpoint.make_queues(&sizes).expect_err("more than it can");
        assert!(matches!(error.errno, Errno::ENOMEM | Errno::EINVAL), "{error}");
        assert!(error.what.contains("at most") && error.what.contains("peer_credits"), "{error}");
    }
    // The device then makes smaller queues, with the inline size that it supports.
    let made = endpoint.make_queues(&QueueSizes { inline: 1 << 20, ..SIZES }).expect("queues");
    assert!(made.inline < 1 << 20, "{made:?}");
    assert_eq!(endpoint.make_queues(&SIZES).map_err(|error| error.errno), Err(Errno::EALREADY));
}

#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn nothing_goes_without_queues() {
    let host = new_host();
    let node = node(&host, 0);
    let (_, mut endpoint) = node.resolved(node.at(SERVICE));
    assert_eq!(endpoint.post_receives(&[]), Err(PostError { index: 0, errno: Errno::ENOTCONN }));
    assert_eq!(endpoint.arm(), Err(Errno::ENOTCONN));
    assert_eq!(endpoint.connect(&[], &OPTIONS).map_err(|error| error.errno), Err(Errno::ENOTCONN));
}

/// A user who may not lock enough memory gets an error with the limit's name, and with the way to
/// raise it.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn memory_beyond_memlock() {
    const LIMIT: u64 = 1 << 20;
    let host = new_host();
    let node = node(&host, 0);
    let before = getrlimit(Resource::RLIMIT_MEMLOCK).expect("the limit");
    let region = Region::heap(2 * LIMIT as usize).expect("memory");
    node.device.register(&region, false).expect("root may");
    // The capability to lock memory without limit belongs to each thread.
    let ordinary = std::thread::scope(|scope| {
        let register = || {
            capabilities::drop_lock_right();
            setrlimit(Resource::RLIMIT_MEMLOCK, LIMIT, before.1).expect("a limit");
            node.device.register(&region, false).err()
        };
        scope.spawn(register).join().expect("the thread")
    });
    setrlimit(Resource::RLIMIT_MEMLOCK, before.0, before.1).expect("the limit");
    let error = ordinary.expect("more than it may lock");
    assert_eq!(error.errno, Errno::ENOMEM);
    assert!(error.what.contains("may lock 1048576 bytes (RLIMIT_MEMLOCK)"), "{error}");
    node.device.register(&region, false).expect("root may again");
}

mod capabilities {
    use nix::libc;

    /// `struct __user_cap_header_struct` and two of `struct __user_cap_data_struct` of capset(2).
    #[repr(C)]
    struct Header {
        version: u32,
        thread: i32,
    }

    const VERSION_3: u32 = 0x2008_0522;
    const IPC_LOCK: u32 = 14;

    /// Drops this thread's effective capability to lock memory without limit.
    pub(super) fn drop_lock_right() {
        let mut header = Header { version: VERSION_3, thread: 0 };
        let mut sets = [[0u32; 3]; 2];
        // SAFETY: both structures have the layout of capget(2) and capset(2), and are valid for the
        // calls.
        unsafe {
            assert_eq!(libc::syscall(libc::SYS_capget, &mut header, &mut sets), 0);
            sets[0][0] &= !(1 << IPC_LOCK);
            assert_eq!(libc::syscall(libc::SYS_capset, &mut header, &sets), 0);
        }
    }
}

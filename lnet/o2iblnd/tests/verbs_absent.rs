//! A program that supports RDMA, on a machine without its libraries (`./test verbs` runs it in such
//! a guest).

use lnet_api::Errno;
use lnet_o2iblnd::fabric::Fabric;
use lnet_o2iblnd::verbs::{HostFabric, devices};

/// The program starts without the libraries, and reports what to install as soon as it uses RDMA.
#[test]
#[ignore = "needs a guest without RDMA libraries: ./test verbs"]
fn without_libraries_everything_says_so() {
    // SAFETY: nothing can be opened.
    let host = unsafe { HostFabric::new() };
    let errors = [
        host.open("10.77.0.1".parse().expect("an address")).err().expect("no library"),
        host.channel().err().expect("no library"),
        devices().expect_err("no library"),
    ];
    for error in errors {
        assert_eq!(error.errno, Errno::ENOSYS);
        assert_eq!(
            error.what,
            "libibverbs.so.1 is not installed (Debian: apt install libibverbs1 ibverbs-providers librdmacm1)"
        );
    }
    // Even one of the library's own functions: it fails as the documentation says.
    // SAFETY: the function is not loaded, so nothing is called.
    assert!(unsafe { nlx_ibverbs_sys::rdma_create_event_channel() }.is_null());
    assert_eq!(Errno::last(), Errno::ENOSYS);
}

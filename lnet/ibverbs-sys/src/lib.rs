//! Bindings of libibverbs and librdmacm (rdma-core), loaded at run time.
//!
//! The registry's crate `ibverbs-sys` needs cmake, clang and RDMA packages to build, and a program
//! that links it does not start without libibverbs. With this crate, every machine builds the same
//! program, which loads the libraries when it needs RDMA:
//!
//! ```
//! match nlx_ibverbs_sys::load() {
//!     Ok(()) => println!("RDMA can be asked for"),
//!     Err(why) => println!("{why}"),
//! }
//! ```
//!
//! Each function has the name and arguments of the library's; functions that the libraries' headers
//! define inline are called as there, through the tables in [`ibv_context`]. If the libraries are
//! not loaded, a function fails as it does for other reasons, with ENOSYS.
//!
//! `generate.sh` beside this crate's manifest generates the types from the headers of rdma-core 44
//! (whose binary interface is stable) for x86_64 and aarch64, which differ only in the size of a
//! mutex. Layouts are asserted. The headers are under the OpenIB.org BSD licence
//! (`LICENSE-OpenIB`), and so are the bindings generated from them.

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("generate the bindings for this architecture: see generate.sh");

mod forward;
mod load;

#[allow(
    missing_docs,
    nonstandard_style,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod bindings {
    /// The size of the C library's mutex, which some structures contain.
    const MUTEX: usize = std::mem::size_of::<pthread_mutex_t>();

    include!("bindings.rs");
}

pub use bindings::*;
pub use forward::*;
pub use load::load;

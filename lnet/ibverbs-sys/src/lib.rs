//! Bindings of libibverbs and librdmacm (rdma-core), loaded at run time.
//!
//! The registry's crate `ibverbs-sys` needs cmake, clang and RDMA packages to build, and a program that links it does not start
//! where libibverbs is not installed. With this one, every machine builds the same program, and the libraries are looked for when
//! a program asks for RDMA:
//!
//! ```
//! match nlx_ibverbs_sys::load() {
//!     Ok(()) => println!("RDMA can be asked for"),
//!     Err(why) => println!("{why}"),
//! }
//! ```
//!
//! Each function of the libraries is here under its own name, and takes what the library's takes; those that the libraries'
//! headers define inline are reached as there, by the tables in [`ibv_context`]. Where the libraries are not loaded a function
//! fails as it does for other reasons, with ENOSYS.
//!
//! The types are generated, by `generate.sh` beside this crate's manifest, from the headers of rdma-core 44 (whose binary
//! interface is stable) for x86_64 and aarch64, which differ in the size of a mutex only. Layouts are asserted.
//! The headers are under the OpenIB.org BSD licence (`LICENSE-OpenIB`), and so is what comes of them.

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
    /// The C library's mutex, which some structures hold.
    const MUTEX: usize = std::mem::size_of::<pthread_mutex_t>();

    include!("bindings.rs");
}

pub use bindings::*;
pub use forward::*;
pub use load::load;

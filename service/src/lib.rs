//! The service layer: requests that worker threads of CPU partitions serve (S-313).

#![forbid(unsafe_code)]

mod buffers;
#[cfg(feature = "lnet")]
pub mod caller;
mod driver;
mod error;
mod options;
pub mod pool;
#[cfg(feature = "lnet")]
pub mod portals;
mod request;
mod service;
mod statistics;
pub mod transport;

pub use driver::Driver;
pub use error::ServiceError;
pub use options::{BUFFERS_MAX, BufferOptions, PoolOptions, REQUESTS_PER_BUFFER_MAX, THREADS_MAX};
pub use pool::{Class, Pool, PoolCounters, PoolHandle, Source};
pub use request::{Handler, Next, Request};
pub use service::Service;
pub use statistics::{Percentiles, ServiceCounters};
pub use transport::Transport;

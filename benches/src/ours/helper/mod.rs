//! The costs of the helper process, which the rows `helper/…` measure. [`super::xo`] measures bulk
//! and messages through helpers.
//!
//! | module | holds |
//! | --- | --- |
//! | `process` | a helper process |
//! | `submit` | submissions through the ring between two processes |
//! | `clients` | attaching, memory, large numbers of clients |
//! | `syscalls` | system calls per operation |
//! | `stall` | the longest message while large clients leave, and while memory is taken away beneath the helper |
//! | `flood` | messages beside a flood of requests of another user |
//! | `group` | a control group of half the machine |
//! | `link` | descriptors for another process |

pub(crate) mod clients;
pub(crate) mod flood;
mod group;
mod link;
pub(crate) mod process;
pub(crate) mod stall;
pub(crate) mod submit;
pub(crate) mod syscalls;

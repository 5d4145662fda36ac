//! What the helper process adds: what the rows `helper/…` measure. Bulk and messages through helpers are the work of
//! [`super::xo`], done another way.
//!
//! | module | holds |
//! | --- | --- |
//! | `process` | a helper process |
//! | `submit` | submissions through the ring between two processes |
//! | `clients` | attaching, memory, many clients |
//! | `syscalls` | system calls of each operation |
//! | `stall` | the longest message while much is let go of, and while memory is taken away beneath the helper |
//! | `flood` | messages beside requests without end, of another user |
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

//! What the helper process adds: what the rows `helper/…` measure. Bulk and messages through helpers are the work of
//! [`super::xo`], done another way.
//!
//! | module | holds |
//! | --- | --- |
//! | `process` | a helper process |
//! | `submit` | submissions through the ring between two processes |
//! | `clients` | attaching, memory, many clients |
//! | `syscalls` | system calls of each operation |
//! | `stall` | the longest message while much is let go of |
//! | `link` | descriptors for another process |

pub(crate) mod clients;
mod link;
pub(crate) mod process;
pub(crate) mod stall;
pub(crate) mod submit;
pub(crate) mod syscalls;

//! The complete life of a client, which a test of a real `nlxd` ends at each named point; and the
//! spin limit of its waits.
//!
//! That test is `tests/tests/helper/killed.rs`: it starts this test program in a separate process.

mod life;
pub(crate) mod points;
mod spinning;
#[path = "../tests/served/work.rs"]
mod work;

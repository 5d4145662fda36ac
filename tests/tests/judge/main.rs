//! nlx against the judge, which checks measured behaviour of real LNet nodes, line by line; and the
//! judge against itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod active;
mod careless;
mod judged;
mod node;
mod passive;
mod place;
mod races;
mod recorded;

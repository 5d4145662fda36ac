//! nlx before the judge: what real LNet nodes were measured to do, line by line; and the judge before itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod active;
mod careless;
mod judged;
mod node;
mod passive;
mod place;
mod races;
mod recorded;

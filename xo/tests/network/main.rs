//! Domains on nodes, and nodes in processes: the owner of an address (S-404), and traffic between
//! them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod domains;
mod dying;
mod large;
mod processes;

//! Domains on nodes, and nodes in processes: to whom an address belongs (S-404), and what crosses
//! between them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod domains;
mod dying;
mod large;
mod processes;

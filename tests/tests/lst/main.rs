//! Consoles and test nodes of lst: the judge's raw console drives its raw node and nodes of nlx over
//! TCP, and the console of nlx drives raw nodes; with recorded sessions of kernel nodes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod clients;
mod console;
mod hostile;
mod place;
mod recorded;
mod refusals;
mod sessions;

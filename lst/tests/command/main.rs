//! The command language: every command with its defaults, errors that name the word, and texts of
//! any kind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lines;
mod nodes;
mod words;

//! The engine against a network of memory alone.

mod common;
mod transfer;

//! The helper process `nlxd` against clients that send false data, overwrite shared memory, hang
//! and die: it keeps running, an honest client is not affected, and all resources of the other
//! clients are released. The clients are made of raw bytes ([`nlx_tests::client`]), except those
//! that die at the points of real ones ([`ucore`]).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accounts;
mod departed;
mod descriptors;
mod document;
mod entries;
mod floods;
mod gone;
mod killed;
mod limits;
mod memory;
mod names;
mod queues;
mod quotas;
mod requests;
#[path = "../support/scene.rs"]
mod scene;
mod scribbling;
mod shares;
#[path = "../support/mod.rs"]
mod support;
mod ucore;

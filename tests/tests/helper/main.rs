//! The helper process `nlxd` before clients that lie, scribble, hang and die: it lives on, an honest client beside them
//! notices nothing, and nothing of theirs is left. The clients are made of raw bytes ([`nlx_tests::client`]), but for those that
//! die where real ones do ([`ucore`]).

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

//! The real fabric on real devices (S-4): two nodes are two addresses of one of them. They run in a guest with soft-RoCE
//! (`./test verbs`), one at a time, for some take the link away.

mod common;
mod connecting;
mod devices;
mod ending;
mod limits;
mod transfers;

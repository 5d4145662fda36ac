//! The real fabric on real devices (S-4): two nodes are two addresses of one device. The tests run
//! in a guest with soft-RoCE (`./test verbs`), one at a time, as some take the link down.

mod common;
mod connecting;
mod devices;
mod ending;
mod limits;
mod transfers;

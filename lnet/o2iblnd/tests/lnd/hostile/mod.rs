//! A hostile verbs client, and a kernel node as it was measured: their bytes are made here by hand,
//! from lnet-wire 32 to 35.

mod answers;
mod bytes;
mod few_fragments;
mod flood;
mod kernel;
mod messages;
mod requests;
mod short_replies;
mod silence;
mod stranger;

//! A hostile verbs client: the bytes it says are made here and by hand, out of lnet-wire 32 to 35.

mod answers;
mod bytes;
mod few_fragments;
mod flood;
mod messages;
mod requests;
mod stranger;

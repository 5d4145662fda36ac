//! LNet's wire layouts and sans-I/O protocol state machines.

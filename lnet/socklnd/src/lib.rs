//! The TCP LND.

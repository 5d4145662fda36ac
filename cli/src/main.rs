//! The programs of nlx.
fn main() {}

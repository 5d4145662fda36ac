//! Measures nlx side by side with its anchors in one run.
fn main() {}

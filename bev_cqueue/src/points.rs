//! Named points, at which tests kill or stop a process. Elsewhere they are nothing.

#[cfg(all(test, not(loom)))]
macro_rules! point {
    ($name:ident) => {
        $crate::tests::points::Point::$name.hit()
    };
}

#[cfg(not(all(test, not(loom))))]
macro_rules! point {
    ($name:ident) => {};
}

//! Named points, at which tests kill a process. Elsewhere they are nothing: a client that is shipped cannot end at one.

/// The code has come to a point: `point!(Name)`, or `point!(Name if …)`; or to the one that a stage of this request or entry
/// has: `point!(request => asked)`.
#[cfg(test)]
macro_rules! point {
    ($name:ident) => {
        $crate::tests::points::Point::$name.hit()
    };
    ($name:ident if $so:expr) => {
        if $so {
            point!($name);
        }
    };
    ($what:expr => $stage:ident) => {
        $crate::tests::points::Point::$stage($what).hit()
    };
}

#[cfg(not(test))]
macro_rules! point {
    ($name:ident) => {};
    ($name:ident if $so:expr) => {};
    ($what:expr => $stage:ident) => {};
}

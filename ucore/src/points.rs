//! Named points at which tests kill a process. The macro is empty in other builds, so a shipped
//! client cannot end at one.

/// Marks a named point: `point!(Name)`, or `point!(Name if …)`; or the point of a stage of a
/// request or entry: `point!(request => asked)`.
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

//! Named points at which tests kill a process. The macro is empty in other builds, so a shipped
//! client cannot end at one.

/// Marks a named point: `point!(Name)`, or `point!(Name if …)`; or the point of a stage of a
/// request or entry: `point!(request => asked)`.
#[cfg(test)]
macro_rules! point {
    ($name:ident) => {
        $crate::tests::points::Point::$name.hit()
    };
    ($name:ident if $condition:expr) => {
        if $condition {
            point!($name);
        }
    };
    ($item:expr => $stage:ident) => {
        $crate::tests::points::Point::$stage($item).hit()
    };
}

#[cfg(not(test))]
macro_rules! point {
    ($name:ident) => {};
    ($name:ident if $condition:expr) => {};
    ($item:expr => $stage:ident) => {};
}

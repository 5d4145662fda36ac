//! Named points, at which tests kill or stop a process. Without the feature `points` they are nothing.

/// A named point of the code, at which a test may kill or stop the process ([`set_points`]).
#[cfg(feature = "points")]
#[macro_export]
macro_rules! point {
    ($name:ident) => {
        $crate::meet(stringify!($name))
    };
}

/// A named point of the code, at which a test may kill or stop the process; nothing without the feature `points`.
#[cfg(not(feature = "points"))]
#[macro_export]
macro_rules! point {
    ($name:ident) => {};
}

#[cfg(feature = "points")]
static MET: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// From now on this process calls `met` with the name of each point that it comes to. The first one set stays.
#[cfg(feature = "points")]
pub fn set_points(met: fn(&'static str)) {
    MET.get_or_init(|| met);
}

/// What [`point!`](crate::point!) does.
#[cfg(feature = "points")]
#[doc(hidden)]
pub fn meet(name: &'static str) {
    if let Some(met) = MET.get() {
        met(name);
    }
}

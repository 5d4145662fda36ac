//! Named points, at which tests kill or stop a process. Without the feature `points` they expand to
//! nothing.

/// A named point of the code, at which a test may kill or stop the process ([`set_points`]).
#[cfg(feature = "points")]
#[macro_export]
macro_rules! point {
    ($name:ident) => {
        $crate::meet(stringify!($name))
    };
}

/// A named point of the code, at which a test may kill or stop the process; expands to nothing
/// without the feature `points`.
#[cfg(not(feature = "points"))]
#[macro_export]
macro_rules! point {
    ($name:ident) => {};
}

#[cfg(feature = "points")]
static MET: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// Makes this process call `met` with the name of each point that it reaches. Only the first call
/// has an effect.
#[cfg(feature = "points")]
pub fn set_points(met: fn(&'static str)) {
    MET.get_or_init(|| met);
}

/// Reports that a thread has reached a point; [`point!`](crate::point!) calls it.
#[cfg(feature = "points")]
#[doc(hidden)]
pub fn meet(name: &'static str) {
    if let Some(met) = MET.get() {
        met(name);
    }
}

//! Named points, at which tests kill or stop a process. Without the feature `points` they are nothing.

#[cfg(feature = "points")]
macro_rules! point {
    ($name:ident) => {
        $crate::points::meet(stringify!($name))
    };
}

#[cfg(not(feature = "points"))]
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

#[cfg(feature = "points")]
pub(crate) fn meet(name: &'static str) {
    if let Some(met) = MET.get() {
        met(name);
    }
}

//! A sleeper for each thread that waits, made once.

use std::cell::Cell;
use std::sync::Arc;

use lnet_api::{Errno, EventFd, Sleeper};

thread_local! {
    static OWN: Cell<Option<Arc<dyn Sleeper>>> = const { Cell::new(None) };
}

/// Lends the calling thread's sleeper; a wait within a wait gets another.
///
/// # Errors
/// EMFILE or ENFILE when there are no descriptors left.
pub(crate) fn with<R>(wait: impl FnOnce(&Arc<dyn Sleeper>) -> R) -> Result<R, Errno> {
    // A thread that is ending has none.
    let own = OWN.try_with(Cell::take).ok().flatten();
    let sleeper = match own {
        Some(sleeper) => sleeper,
        None => Arc::new(EventFd::new()?),
    };
    let result = wait(&sleeper);
    let _ = OWN.try_with(|own| own.set(Some(sleeper)));
    Ok(result)
}

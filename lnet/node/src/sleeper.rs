//! A sleeper for each thread that waits, made once.

use std::cell::Cell;
use std::sync::Arc;

use lnet_api::{Errno, EventFd, Sleeper};
use lnet_region::Origin;

thread_local! {
    static OWN: Cell<Option<(Origin, Arc<dyn Sleeper>)>> = const { Cell::new(None) };
}

/// Lends the calling thread's sleeper; a wait within a wait gets another.
///
/// # Errors
/// EMFILE or ENFILE when there are no descriptors left.
pub(crate) fn with<R>(wait: impl FnOnce(&Arc<dyn Sleeper>) -> R) -> Result<R, Errno> {
    // A thread that is ending has none.
    let own = OWN.try_with(Cell::take).ok().flatten();
    // That of the thread which forked this process is the parent's still.
    let (origin, sleeper) = match own.filter(|(origin, _)| origin.is_here()) {
        Some(own) => own,
        None => (Origin::here(), Arc::new(EventFd::new()?) as Arc<dyn Sleeper>),
    };
    let result = wait(&sleeper);
    let _ = OWN.try_with(|own| own.set(Some((origin, sleeper))));
    Ok(result)
}

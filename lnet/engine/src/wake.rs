//! Waking handlers, which may call LNet.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use lnet_api::EventHandler;

thread_local! {
    /// A handler is being woken on this thread.
    static WAKING: Cell<bool> = const { Cell::new(false) };
    /// Those to be woken when it returns.
    static NEXT: RefCell<Vec<Arc<dyn EventHandler>>> = const { RefCell::new(Vec::new()) };
}

/// Wakes handlers, and those that they cause to be woken. One that sends to its own node from inside `wake` causes the
/// next wake-up, perhaps its own: that one comes when it has returned, so the stack does not grow with the messages.
pub(crate) fn all<A>(handlers: &mut smallvec::SmallVec<A>)
where
    A: smallvec::Array<Item = Arc<dyn EventHandler>>,
{
    if handlers.is_empty() {
        return;
    }
    if WAKING.get() {
        return NEXT.with_borrow_mut(|next| {
            for handler in handlers.drain(..) {
                if !next.iter().any(|known| Arc::ptr_eq(known, &handler)) {
                    next.push(handler);
                }
            }
        });
    }
    /// Also if a handler panics, the thread's next wake-up is not taken for one inside it.
    struct Awake;
    impl Drop for Awake {
        fn drop(&mut self) {
            WAKING.set(false);
        }
    }
    WAKING.set(true);
    let _awake = Awake;
    for handler in handlers.drain(..) {
        handler.wake();
    }
    while let Some(handler) = NEXT.with_borrow_mut(Vec::pop) {
        handler.wake();
    }
}

//! Wake-ups of handlers, which may call LNet.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use lnet_api::Handler;

thread_local! {
    /// True if a handler is being woken on this thread.
    static WAKING: Cell<bool> = const { Cell::new(false) };
    /// Handlers to wake after the present `wake` call returns.
    static NEXT: RefCell<VecDeque<Handler>> = const { RefCell::new(VecDeque::new()) };
}

/// Wakes handlers, and then those that they cause to be woken, in order. A handler that sends to
/// its own node from inside `wake` causes another wake-up, possibly its own. That wake-up runs
/// after it has returned, so the stack does not grow with the messages. A handler that panics does
/// not suppress the wake-ups of others; the panic continues after all of them.
pub(crate) fn all<A>(handlers: &mut smallvec::SmallVec<A>)
where
    A: smallvec::Array<Item = Handler>,
{
    if handlers.is_empty() {
        return;
    }
    if WAKING.get() {
        for handler in handlers.drain(..).filter(|handler| !enqueue(handler)) {
            handler.wake();
        }
        return;
    }
    let mut panic: Option<Box<dyn Any + Send>> = None;
    let mut wake = |handler: Handler| {
        if let Err(cause) = catch_unwind(AssertUnwindSafe(|| handler.wake())) {
            panic.get_or_insert(cause);
        }
    };
    WAKING.set(true);
    handlers.drain(..).for_each(&mut wake);
    while let Ok(Some(handler)) = NEXT.try_with(|next| next.borrow_mut().pop_front()) {
        wake(handler);
    }
    WAKING.set(false);
    if let Some(cause) = panic {
        resume_unwind(cause);
    }
}

/// Queues a handler, once; `false` if there is no memory for it, or the thread is about to end.
fn enqueue(handler: &Handler) -> bool {
    let entered = NEXT.try_with(|next| {
        let mut next = next.borrow_mut();
        let known = next.iter().any(|known| known.same(handler));
        if !known && next.try_reserve(1).is_ok() {
            next.push_back(handler.clone());
            return true;
        }
        known
    });
    entered == Ok(true)
}

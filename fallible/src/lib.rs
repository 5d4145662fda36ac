//! Fallible allocation on stable Rust.
//!
//! A process that serves others must not end because an allocation for one of them fails. `Vec`,
//! `VecDeque` and hash tables have `try_reserve`. This crate adds [`TryArc`], an `Arc` whose
//! construction returns [`NoMemory`], its weak reference [`WeakArc`], and [`try_box`].
//!
//! ```
//! use nlx_fallible::{TryArc, NoMemory, unsize};
//!
//! fn shared(words: &[&str]) -> Result<TryArc<dyn Fn() -> usize + Send + Sync>, NoMemory> {
//!     let count = words.len();
//!     let counter = TryArc::try_new(move || count)?;
//!     Ok(unsize!(counter => dyn Fn() -> usize + Send + Sync))
//! }
//! assert_eq!(shared(&["a", "b"])?(), 2);
//! # Ok::<(), NoMemory>(())
//! ```

use std::alloc::{Layout, alloc, dealloc};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

/// The error of a failed allocation: ENOMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

impl std::error::Error for NoMemory {}

/// Reference count above which the process aborts, as `Arc` does: only leaked references reach it.
const REFERENCES_MAX: usize = isize::MAX as usize;

/// A reference-counted pointer like `std::sync::Arc`, whose construction can fail.
pub struct TryArc<T: ?Sized> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<Block<T>>,
}

/// A weak reference to the value of a [`TryArc`]: it does not keep the value alive.
pub struct WeakArc<T> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<Block<T>>,
}

/// The allocation that all references of a [`TryArc`] share.
#[doc(hidden)]
#[repr(C)]
pub struct Block<T: ?Sized> {
    /// Strong references; they keep the value alive.
    strong: AtomicUsize,
    /// References that keep the block allocated: the weak ones, and one for all strong ones
    /// together.
    weak: AtomicUsize,
    value: T,
}

// SAFETY: as for `Arc`: each thread gets shared references only, and the thread that drops the last
// one drops the value.
unsafe impl<T: ?Sized + Sync + Send> Send for TryArc<T> {}
// SAFETY: as above; a shared reference can be cloned.
unsafe impl<T: ?Sized + Sync + Send> Sync for TryArc<T> {}
// SAFETY: it can become a `TryArc` in any thread.
unsafe impl<T: Sync + Send> Send for WeakArc<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + Send> Sync for WeakArc<T> {}

impl<T> TryArc<T> {
    /// Allocates a value with one reference.
    ///
    /// # Errors
    /// [`NoMemory`]; the value is dropped.
    pub fn try_new(value: T) -> Result<TryArc<T>, NoMemory> {
        let block = Block { strong: AtomicUsize::new(1), weak: AtomicUsize::new(1), value };
        let raw = Box::into_raw(try_box(block)?);
        // SAFETY: a box is never null.
        let block = unsafe { NonNull::new_unchecked(raw) };
        Ok(TryArc { block, _owns: PhantomData })
    }

    /// Allocates a value with one reference; aborts the process if there is no memory. For
    /// allocations that clients of a server cannot trigger.
    #[must_use]
    pub fn new(value: T) -> TryArc<T> {
        let no_memory = |NoMemory| std::alloc::handle_alloc_error(Layout::new::<Block<T>>());
        TryArc::try_new(value).unwrap_or_else(no_memory)
    }

    /// Returns a weak reference to the value.
    #[must_use]
    pub fn downgrade(this: &TryArc<T>) -> WeakArc<T> {
        // Relaxed, as for a strong reference, because no other access depends on the count.
        if this.block().weak.fetch_add(1, Relaxed) > REFERENCES_MAX {
            std::process::abort();
        }
        WeakArc { block: this.block, _owns: PhantomData }
    }

    /// Returns the value if this is the only strong reference; `upgrade` of weak references then
    /// returns `None`.
    ///
    /// # Errors
    /// The reference itself, if there is another strong one.
    pub fn try_unwrap(this: TryArc<T>) -> Result<T, TryArc<T>> {
        // As in `Arc`, the fence makes the accesses through dropped references visible.
        if this.block().strong.compare_exchange(1, 0, Relaxed, Relaxed).is_err() {
            return Err(this);
        }
        fence(Acquire);
        let block = this.block;
        std::mem::forget(this);
        // SAFETY: it was the last strong reference, so nothing else reads the value or drops it.
        let value = unsafe { ptr::read(&raw const (*block.as_ptr()).value) };
        // Releases the share of the block that belongs to the strong references.
        drop(WeakArc { block, _owns: PhantomData });
        Ok(value)
    }
}

impl<T> TryArc<[T]> {
    /// Moves the elements of a vector into one block.
    ///
    /// # Errors
    /// [`NoMemory`]; the vector is dropped.
    pub fn try_from_vec(mut values: Vec<T>) -> Result<TryArc<[T]>, NoMemory> {
        let count = values.len();
        let header = Layout::new::<Block<[T; 0]>>();
        let array = Layout::array::<T>(count).map_err(|_| NoMemory)?;
        let (layout, offset) = header.extend(array).map_err(|_| NoMemory)?;
        // SAFETY: the header has two words, so the layout is not empty.
        let raw = unsafe { alloc(layout.pad_to_align()) };
        if raw.is_null() {
            return Err(NoMemory);
        }
        // SAFETY: the block is a fresh allocation of `layout`. `Block` is `repr(C)`: the counts
        // come first, and the values at the offset from `extend`, which is the next multiple of
        // their alignment. The values are moved there: the vector gives up its elements with
        // `set_len(0)`.
        unsafe {
            let counts = raw.cast::<AtomicUsize>();
            counts.write(AtomicUsize::new(1));
            counts.add(1).write(AtomicUsize::new(1));
            ptr::copy_nonoverlapping(values.as_ptr(), raw.add(offset).cast::<T>(), count);
            values.set_len(0);
        }
        let block = ptr::slice_from_raw_parts_mut(raw.cast::<T>(), count) as *mut Block<[T]>;
        // SAFETY: checked above: it is not null.
        Ok(TryArc { block: unsafe { NonNull::new_unchecked(block) }, _owns: PhantomData })
    }
}

impl<T: ?Sized> TryArc<T> {
    fn block(&self) -> &Block<T> {
        // SAFETY: a reference keeps the block allocated.
        unsafe { self.block.as_ref() }
    }

    /// Returns whether both references point to the same value.
    #[must_use]
    pub fn ptr_eq(one: &TryArc<T>, other: &TryArc<T>) -> bool {
        ptr::addr_eq(one.block.as_ptr(), other.block.as_ptr())
    }

    /// Returns the number of strong references.
    #[must_use]
    pub fn strong_count(this: &TryArc<T>) -> usize {
        this.block().strong.load(Relaxed)
    }

    /// Turns the reference into its block, for [`unsize!`](crate::unsize).
    #[doc(hidden)]
    #[must_use]
    pub fn into_block(this: TryArc<T>) -> *mut Block<T> {
        let block = this.block.as_ptr();
        std::mem::forget(this);
        block
    }

    /// Turns a block back into a reference.
    ///
    /// # Safety
    /// The block must come from [`TryArc::into_block`] and be used once. Its type is the original
    /// one, or one to which the compiler has coerced it.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn from_block(block: *mut Block<T>) -> TryArc<T> {
        // SAFETY: the block of a reference is not null.
        TryArc { block: unsafe { NonNull::new_unchecked(block) }, _owns: PhantomData }
    }
}

/// Turns a [`TryArc`] of a value into one of a trait object: `unsize!(arc => dyn Trait)`. For an
/// `Arc` the compiler does so itself.
#[macro_export]
macro_rules! unsize {
    ($arc:expr => $object:ty) => {{
        let block = $crate::TryArc::into_block($arc);
        let object: *mut $crate::Block<$object> = block;
        // SAFETY: the block comes from `into_block` above, and the compiler has coerced its type.
        unsafe { $crate::TryArc::from_block(object) }
    }};
}

impl<T: ?Sized> Deref for TryArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.block().value
    }
}

impl<T: ?Sized> Clone for TryArc<T> {
    fn clone(&self) -> TryArc<T> {
        // Relaxed, because the existing reference already orders all accesses to the value.
        if self.block().strong.fetch_add(1, Relaxed) > REFERENCES_MAX {
            std::process::abort();
        }
        TryArc { block: self.block, _owns: PhantomData }
    }
}

impl<T: ?Sized> Drop for TryArc<T> {
    fn drop(&mut self) {
        // Release: accesses through this reference happen before the last reference drops the
        // value.
        if self.block().strong.fetch_sub(1, Release) != 1 {
            return;
        }
        fence(Acquire);
        let layout = Layout::for_value(self.block());
        // SAFETY: it was the last strong reference: nothing reads the value any more, and `upgrade`
        // fails.
        unsafe { ptr::drop_in_place(&raw mut (*self.block.as_ptr()).value) };
        // SAFETY: the strong references' share still keeps the block, whose layout this is.
        unsafe { release_block(self.block.cast(), layout) };
    }
}

/// Drops one reference to a block, and frees the block with the last one.
///
/// # Safety
/// The reference must not be used again, and the block must have been allocated with this layout.
/// If this is the last reference, the value must have been dropped.
unsafe fn release_block(block: NonNull<Block<()>>, layout: Layout) {
    // SAFETY: the counts come first in each block, which this reference still keeps.
    let weak = unsafe { &(*block.as_ptr()).weak };
    if weak.fetch_sub(1, Release) == 1 {
        fence(Acquire);
        // SAFETY: no other reference exists; the caller guarantees the layout.
        unsafe { dealloc(block.as_ptr().cast(), layout) };
    }
}

impl<T> WeakArc<T> {
    fn strong(&self) -> &AtomicUsize {
        // SAFETY: a reference keeps the block allocated; the counts stay valid after the
        // value is dropped.
        unsafe { &(*self.block.as_ptr()).strong }
    }

    /// Returns the number of strong references; 0 once the value has been dropped.
    #[must_use]
    pub fn strong_count(&self) -> usize {
        self.strong().load(Relaxed)
    }

    /// Returns a strong reference, if the value has not been dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<TryArc<T>> {
        let more = |count: usize| (count > 0 && count <= REFERENCES_MAX).then(|| count + 1);
        // As in `Arc`, the ordering Acquire makes the value visible as it was when it was shared.
        self.strong().fetch_update(Acquire, Relaxed, more).ok()?;
        Some(TryArc { block: self.block, _owns: PhantomData })
    }
}

impl<T> Clone for WeakArc<T> {
    fn clone(&self) -> WeakArc<T> {
        // SAFETY: as in `strong`.
        let weak = unsafe { &(*self.block.as_ptr()).weak };
        if weak.fetch_add(1, Relaxed) > REFERENCES_MAX {
            std::process::abort();
        }
        WeakArc { block: self.block, _owns: PhantomData }
    }
}

impl<T> Drop for WeakArc<T> {
    fn drop(&mut self) {
        // SAFETY: the block was allocated as a `Block<T>` in a box; its value is dropped with the
        // last strong reference, whose share of the block is released after that.
        unsafe { release_block(self.block.cast(), Layout::new::<Block<T>>()) };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for TryArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> fmt::Debug for WeakArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(weak)")
    }
}

/// Allocates a box. If there is no memory, the value is dropped.
///
/// # Errors
/// [`NoMemory`].
pub fn try_box<T>(value: T) -> Result<Box<T>, NoMemory> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the layout is not empty.
    let raw = NonNull::new(unsafe { alloc(layout) }.cast::<T>()).ok_or(NoMemory)?;
    // SAFETY: memory of the value's layout from the allocator that boxes use, and no other pointer
    // to it exists.
    unsafe {
        raw.write(value);
        Ok(Box::from_raw(raw.as_ptr()))
    }
}

/// Appends a value to a vector.
///
/// # Errors
/// [`NoMemory`]; the value is dropped.
pub fn try_push<T>(values: &mut Vec<T>, value: T) -> Result<(), NoMemory> {
    values.try_reserve(1).map_err(|_| NoMemory)?;
    values.push(value);
    Ok(())
}

/// Collects the values of an iterator into a vector.
///
/// # Errors
/// The iterator's first error, or [`NoMemory`].
pub fn try_collect<T, E: From<NoMemory>>(values: impl Iterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut all = Vec::new();
    let _ = all.try_reserve_exact(values.size_hint().0);
    for value in values {
        try_push(&mut all, value?)?;
    }
    Ok(all)
}

/// Formats a value like `format!`; the text is truncated where there is no memory for more.
#[must_use]
pub fn text_of(value: &dyn fmt::Display) -> String {
    struct Short(String);

    impl fmt::Write for Short {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
            self.0.push_str(text);
            Ok(())
        }
    }

    let mut text = Short(String::new());
    // An error means that the text was truncated.
    let _ = fmt::Write::write_fmt(&mut text, format_args!("{value}"));
    text.0
}

#[cfg(test)]
mod tests;

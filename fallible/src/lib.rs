//! Allocation that can fail: what the standard library only offers unstably.
//!
//! A process that serves others must not end because an allocation for one of them fails. `Vec`, `VecDeque` and hash tables
//! have `try_reserve`. This crate has the rest: [`TryArc`], an `Arc` whose construction returns [`NoMemory`], with
//! [`WeakArc`]; and [`try_box`].
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

/// There is no memory: ENOMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of memory")
    }
}

impl std::error::Error for NoMemory {}

/// References beyond which the process ends, as with `Arc`: so many can only be leaked ones.
const REFERENCES_MAX: usize = isize::MAX as usize;

/// A reference-counted value, as `std::sync::Arc`, whose construction can fail.
pub struct TryArc<T: ?Sized> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<Block<T>>,
}

/// A reference to the value of a [`TryArc`] that does not keep it.
pub struct WeakArc<T> {
    block: NonNull<Block<T>>,
    _owns: PhantomData<Block<T>>,
}

/// What the references share.
#[doc(hidden)]
#[repr(C)]
pub struct Block<T: ?Sized> {
    /// References that keep the value.
    strong: AtomicUsize,
    /// References that keep the block: weak ones, and one for all strong ones together.
    weak: AtomicUsize,
    value: T,
}

// SAFETY: as for `Arc`: a reference gives out shared references in any thread, and the last one drops the value in its own.
unsafe impl<T: ?Sized + Sync + Send> Send for TryArc<T> {}
// SAFETY: as above; a shared reference can be cloned.
unsafe impl<T: ?Sized + Sync + Send> Sync for TryArc<T> {}
// SAFETY: it can become a `TryArc` in any thread.
unsafe impl<T: Sync + Send> Send for WeakArc<T> {}
// SAFETY: as above.
unsafe impl<T: Sync + Send> Sync for WeakArc<T> {}

impl<T> TryArc<T> {
    /// A value with one reference.
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

    /// A value with one reference, where no memory ends the process: for what no client of a server drives.
    #[must_use]
    pub fn new(value: T) -> TryArc<T> {
        let no_memory = |NoMemory| std::alloc::handle_alloc_error(Layout::new::<Block<T>>());
        TryArc::try_new(value).unwrap_or_else(no_memory)
    }

    /// A reference that does not keep the value.
    #[must_use]
    pub fn downgrade(this: &TryArc<T>) -> WeakArc<T> {
        // Nothing follows from the number, as with a strong reference.
        if this.block().weak.fetch_add(1, Relaxed) > REFERENCES_MAX {
            std::process::abort();
        }
        WeakArc { block: this.block, _owns: PhantomData }
    }

    /// The value, if there is no other reference to it; weak ones find nothing from then on.
    ///
    /// # Errors
    /// The reference again, if there is another one.
    pub fn try_unwrap(this: TryArc<T>) -> Result<T, TryArc<T>> {
        // As `Arc` does: what others did to the value before they let go of it is seen.
        if this.block().strong.compare_exchange(1, 0, Relaxed, Relaxed).is_err() {
            return Err(this);
        }
        fence(Acquire);
        let block = this.block;
        std::mem::forget(this);
        // SAFETY: it was the last strong reference, so nobody else reads the value or drops it.
        let value = unsafe { ptr::read(&raw const (*block.as_ptr()).value) };
        // The strong references' share of the block.
        drop(WeakArc { block, _owns: PhantomData });
        Ok(value)
    }
}

impl<T> TryArc<[T]> {
    /// The elements of a vector, moved into one block.
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
        // SAFETY: the block is `layout` bytes of its own. `Block` is `repr(C)`: the counts stand first, and the values where
        // `extend` says, which is the next multiple of their alignment. They are moved there: the vector forgets them.
        unsafe {
            let counts = raw.cast::<AtomicUsize>();
            counts.write(AtomicUsize::new(1));
            counts.add(1).write(AtomicUsize::new(1));
            ptr::copy_nonoverlapping(values.as_ptr(), raw.add(offset).cast::<T>(), count);
            values.set_len(0);
        }
        let block = ptr::slice_from_raw_parts_mut(raw.cast::<T>(), count) as *mut Block<[T]>;
        // SAFETY: it is not null, as has just been seen.
        Ok(TryArc { block: unsafe { NonNull::new_unchecked(block) }, _owns: PhantomData })
    }
}

impl<T: ?Sized> TryArc<T> {
    fn block(&self) -> &Block<T> {
        // SAFETY: the block lives as long as a reference to it.
        unsafe { self.block.as_ref() }
    }

    /// Whether both are references to one value.
    #[must_use]
    pub fn ptr_eq(one: &TryArc<T>, other: &TryArc<T>) -> bool {
        ptr::addr_eq(one.block.as_ptr(), other.block.as_ptr())
    }

    /// The references that keep the value.
    #[must_use]
    pub fn strong_count(this: &TryArc<T>) -> usize {
        this.block().strong.load(Relaxed)
    }

    /// The block, for [`unsize!`](crate::unsize).
    #[doc(hidden)]
    #[must_use]
    pub fn into_block(this: TryArc<T>) -> *mut Block<T> {
        let block = this.block.as_ptr();
        std::mem::forget(this);
        block
    }

    /// The reference that a block was made of.
    ///
    /// # Safety
    /// The block came from [`TryArc::into_block`] and is used once; its type is that one's, or one that the compiler has
    /// coerced it to.
    #[doc(hidden)]
    #[must_use]
    pub unsafe fn from_block(block: *mut Block<T>) -> TryArc<T> {
        // SAFETY: that of a reference is not null.
        TryArc { block: unsafe { NonNull::new_unchecked(block) }, _owns: PhantomData }
    }
}

/// Turns a [`TryArc`] of a value into one of a trait object, as `Arc` does by itself: `unsize!(arc => dyn Trait)`.
#[macro_export]
macro_rules! unsize {
    ($arc:expr => $object:ty) => {{
        let block = $crate::TryArc::into_block($arc);
        let object: *mut $crate::Block<$object> = block;
        // SAFETY: the block has just been taken out, and the compiler has coerced its type.
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
        // Who has a reference needs to see nothing for another one.
        if self.block().strong.fetch_add(1, Relaxed) > REFERENCES_MAX {
            std::process::abort();
        }
        TryArc { block: self.block, _owns: PhantomData }
    }
}

impl<T: ?Sized> Drop for TryArc<T> {
    fn drop(&mut self) {
        // What this reference did to the value comes before the value is dropped, by whoever is the last.
        if self.block().strong.fetch_sub(1, Release) != 1 {
            return;
        }
        fence(Acquire);
        let layout = Layout::for_value(self.block());
        // SAFETY: it was the last strong reference: nobody reads the value any more, and weak references find none.
        unsafe { ptr::drop_in_place(&raw mut (*self.block.as_ptr()).value) };
        // SAFETY: the strong references' share still keeps the block, whose layout this is.
        unsafe { let_go(self.block.cast(), layout) };
    }
}

/// Lets go of one reference to a block, and of the block with the last one.
///
/// # Safety
/// The reference is not used again; the block was allocated with this layout, and its value has been dropped if it is the
/// last reference.
unsafe fn let_go(block: NonNull<Block<()>>, layout: Layout) {
    // SAFETY: the counts stand first in each block, which this reference still keeps.
    let weak = unsafe { &(*block.as_ptr()).weak };
    if weak.fetch_sub(1, Release) == 1 {
        fence(Acquire);
        // SAFETY: nobody else has a reference; the caller vouches for the layout.
        unsafe { dealloc(block.as_ptr().cast(), layout) };
    }
}

impl<T> WeakArc<T> {
    fn strong(&self) -> &AtomicUsize {
        // SAFETY: the block lives as long as a reference to it; the counts are valid, whatever has become of the value.
        unsafe { &(*self.block.as_ptr()).strong }
    }

    /// The references that keep the value; 0 once it has been dropped.
    #[must_use]
    pub fn strong_count(&self) -> usize {
        self.strong().load(Relaxed)
    }

    /// A reference that keeps the value, if it is still there.
    #[must_use]
    pub fn upgrade(&self) -> Option<TryArc<T>> {
        let more = |count: usize| (count > 0 && count <= REFERENCES_MAX).then(|| count + 1);
        // As `Arc` does: a reference that is seen here keeps the value that was whole before it was shared.
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
        // SAFETY: the block was made of a `Block<T>` in a box; its value is dropped with the last strong reference, whose share
        // is let go of after that.
        unsafe { let_go(self.block.cast(), Layout::new::<Block<T>>()) };
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

/// A box, or [`NoMemory`]; the value is dropped then.
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
    // SAFETY: memory of the value's layout from the allocator that boxes use, of which nobody else knows.
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

/// A vector of the values of an iterator.
///
/// # Errors
/// What the iterator says first, or [`NoMemory`].
pub fn try_collect<T, E: From<NoMemory>>(values: impl Iterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut all = Vec::new();
    let _ = all.try_reserve_exact(values.size_hint().0);
    for value in values {
        try_push(&mut all, value?)?;
    }
    Ok(all)
}

/// A text as `format!` makes it; cut where there is no memory for more.
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
    // What there is room for.
    let _ = fmt::Write::write_fmt(&mut text, format_args!("{value}"));
    text.0
}

#[cfg(test)]
mod tests;

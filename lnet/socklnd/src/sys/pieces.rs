use lnet_region::{Part, PartMut};
use smallvec::SmallVec;

/// The most pieces of memory handed to one system call: a message of LNet's 256 fragments with what stands before or
/// behind it. The system itself allows 1024.
pub(crate) const PIECES_MAX: usize = 512;

/// What one call sends, on the stack.
pub(crate) type Gather<'a> = SmallVec<[Part<'a>; PIECES_MAX]>;

/// Where one call receives to, on the stack.
pub(crate) type Scatter<'a> = SmallVec<[PartMut<'a>; PIECES_MAX]>;

//! LNet in user space: what a storage client programs against.

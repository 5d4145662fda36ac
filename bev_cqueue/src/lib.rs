//! The growable single-producer single-consumer queue of buffer events in shared memory.

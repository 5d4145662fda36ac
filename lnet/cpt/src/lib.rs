//! CPU partitions: tables, patterns, partitioned locks and counts, NUMA-aware memory, thread binding.

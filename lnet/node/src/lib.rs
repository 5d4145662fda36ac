//! A node assembled from a configuration: engine, LNDs, threads, timers, clock.

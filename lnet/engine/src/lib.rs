//! The LNet engine: portals, match entries, memory descriptors, event queues, credits, ping.

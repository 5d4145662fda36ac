//! Many LNet nodes on one thread over a simulated network with virtual time.

//! The Core interface served by LNet.

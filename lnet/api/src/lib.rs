//! The LNet API and the LND interface as traits with their types.

//! Memory that may be in flight: reference-counted regions with a stable address, ranges, copying.

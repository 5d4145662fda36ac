//! The address-space-agnostic Core interface: addresses, descriptors, events, limits, errors.

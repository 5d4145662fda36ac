//! The Core interface served by the helper process `nlxd`: shared memory first, a request only where it must.

#![deny(unsafe_code)]

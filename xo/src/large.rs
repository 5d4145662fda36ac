//! Bulk transfers of more than one operation takes.

mod offer;
mod progress;

pub use offer::Offer;

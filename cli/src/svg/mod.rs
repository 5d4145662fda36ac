//! Pictures and pages: what all reports have in common.
//!
//! | module | holds |
//! | --- | --- |
//! | `page` | a page's look, its parts, and text in it |
//! | `picture`, `frame`, `scale` | a picture, its axes, and the round numbers on them |

mod frame;
mod page;
mod picture;
mod scale;

pub(crate) use frame::Frame;
pub(crate) use page::{document, escaped, section};
pub(crate) use picture::{Anchor, Svg};
pub(crate) use scale::{Linear, Log, Tick};

//! Pictures and pages: the parts that all reports share.
//!
//! | module | holds |
//! | --- | --- |
//! | `page` | a page's style, its parts, and escaped text |
//! | `picture`, `frame`, `scale` | a picture, its axes, and their round numbers |

mod frame;
mod page;
mod picture;
mod scale;

pub(crate) use frame::Frame;
pub(crate) use page::{document, escaped, section};
pub(crate) use picture::{Anchor, Svg};
pub(crate) use scale::{Linear, Log, Tick};

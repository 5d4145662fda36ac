//! Pictures and pages: what all reports have in common.

mod picture;
mod scale;
mod text;

pub(crate) use picture::{Anchor, Svg};
pub(crate) use scale::{Linear, Log};
pub(crate) use text::{escaped, in_thousands, in_time, quoted, three_digits};

/// How pages look, light and dark and on paper.
pub(crate) const STYLE: &str = include_str!("style.css");

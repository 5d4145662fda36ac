//! Pictures and pages: the parts that all reports share.
//!
//! | module | holds |
//! | --- | --- |
//! | `page` | a page: style, header, tables, facts, escaped text, the file |
//! | `latency`, `curve` | pictures of latencies, and of rates over time |
//! | `picture`, `frame`, `scale` | a picture, its axes, and their round numbers |

mod curve;
mod frame;
mod latency;
mod page;
mod picture;
mod scale;

pub(crate) use curve::{Curve, Sample, over_time};
pub(crate) use frame::Frame;
pub(crate) use latency::{Latency, latencies};
#[cfg(test)]
pub(crate) use page::elements;
pub(crate) use page::{
    Card, Header, cards, command_line, document, escaped, facts, pair, reserve, section, table, write,
};
pub(crate) use picture::{Anchor, Svg};
pub(crate) use scale::{Linear, Log, Tick};

/// The frame of pictures that are side by side. Above the bars there is room for the names of
/// percentiles.
const PAIR: Frame = Frame { width: 560.0, height: 244.0, left: 52.0, right: 548.0, top: 56.0, bottom: 222.0 };

/// Approximate number of steps of their vertical axis.
const STEPS: u32 = 4;

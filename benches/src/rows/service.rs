//! The rows of the service layer.

use super::Goal::{AtLeast, AtMost};
use super::{Row, row};
use crate::ours::{lnet, service};

pub(super) static ROWS: &[Row] = &[
    row("service/ping", "µs", service::ping)
        .beside("bare LNet, PUTs answered by PUTs", lnet::pingpong::default::<160>)
        .goal(AtMost(1.2)),
    row("service/rate", "M/s", service::rate)
        .beside("bare LNet, PUTs answered by PUTs", lnet::rate::answered_puts)
        .goal(AtLeast(0.8)),
];

//! The rows of the service layer, and of lst, which is built on it.

use super::Goal::{AtLeast, AtMost};
use super::{Row, row};
use crate::ours::{lnet, lst, service};

/// The anchor of handlers that run at the same time.
const BLOCKING: &str = "one worker, handlers that block 1 ms";

pub(super) static ROWS: &[Row] = &[
    row("service/ping", "µs", service::ping)
        .beside("bare LNet, PUTs answered by PUTs", lnet::pingpong::default::<160>)
        .goal(AtMost(1.2)),
    row("service/rate", "M/s", service::rate)
        .beside("bare LNet, PUTs answered by PUTs", lnet::rate::answered_puts)
        .goal(AtLeast(0.8)),
    row("service/smp-2", "k/s", service::partitioned::<2>)
        .beside(BLOCKING, service::partitioned::<1>)
        .goal(AtLeast(1.8))
        .and("2 workers, npartitions=1", service::unpartitioned::<2>, AtLeast(0.9)),
    row("service/smp-4", "k/s", service::partitioned::<4>)
        .beside(BLOCKING, service::partitioned::<1>)
        .goal(AtLeast(3.6))
        .and("4 workers, npartitions=1", service::unpartitioned::<4>, AtLeast(0.9)),
    row("lst/ping", "M/s", lst::ping)
        .beside("bare LNet, PUTs answered by PUTs", lnet::rate::answered_puts)
        .goal(AtLeast(0.8)),
    row("lst/brw-read-1m", "GB/s", lst::read)
        .beside("bare LNet: request, PUT of 1 MiB, reply", lnet::exchange::read)
        .goal(AtLeast(0.95)),
    row("lst/brw-write-1m", "GB/s", lst::write)
        .beside("bare LNet: request, GET of 1 MiB, reply", lnet::exchange::write)
        .goal(AtLeast(0.95)),
];

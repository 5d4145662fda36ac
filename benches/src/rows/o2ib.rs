//! The rows over RDMA, measured in the guest (`tests/guest`), which has soft-RoCE: compared with
//! perftest's programs between the same two addresses, in the same run. Only the ratios are
//! meaningful, for the device is a program. `ib_write_bw` cannot sleep.
//!
//! The rows that count have no other implementation as an anchor: the device's figures must equal
//! the calculated ones.

use super::Goal::{self, AtLeast, AtMost, Equal};
use super::{Row, Side};
use crate::anchors::{limit, perftest};
use crate::ours::o2ib::{self, cost};

const fn row(
    name: &'static str,
    unit: &'static str,
    ours: Side,
    (anchor_name, anchor): (&'static str, Side),
    goal: Goal,
) -> Row {
    super::row(name, unit, ours).beside(anchor_name, anchor).goal(goal)
}

const WRITES: (&str, Side) = ("ib_write_bw, which polls", perftest::write_bw);
const SENDS: (&str, Side) = ("ib_send_lat, which polls", perftest::send_lat_polling);
const SENDS_SLEEPING: (&str, Side) = ("ib_send_lat --events", perftest::send_lat_sleeping);
const BOX: (&str, Side) = ("one box", limit::boxes);
const BANDWIDTH: Goal = AtLeast(0.9);
const LATENCY: Goal = AtMost(1.5);
/// A message is posted; for its completion and for that of the answer the queue is armed and the
/// event read.
const CALLS: (&str, Side) = ("ib_send_lat --events makes", limit::agreed::<5>);
const NONE: Goal = AtMost(0.0);

pub(super) static ROWS: &[Row] = &[
    row("o2ib/pingpong-64", "µs", o2ib::pingpong_sleeping, SENDS_SLEEPING, LATENCY),
    row("o2ib/pingpong-64-polling", "µs", o2ib::pingpong_polling, SENDS, LATENCY),
    row("o2ib/put-1m", "GB/s", o2ib::put_sleeping, WRITES, BANDWIDTH),
    row("o2ib/put-1m-polling", "GB/s", o2ib::put_polling, WRITES, BANDWIDTH),
    row("o2ib/get-1m", "GB/s", o2ib::get_sleeping, WRITES, BANDWIDTH),
    row("o2ib/get-1m-polling", "GB/s", o2ib::get_polling, WRITES, BANDWIDTH),
    row("o2ib/syscalls-pingpong", "1", o2ib::calls, CALLS, AtMost(1.0)),
    row("o2ib/copies", "1", cost::copies, ("one of each byte", limit::agreed::<1>), NONE),
    row("o2ib/registrations", "1", cost::registrations, ("one of each operation", limit::agreed::<1>), NONE),
    row("alloc/message-o2ib", "1", cost::allocations, BOX, NONE),
    row("o2ib/queue-sends", "1", cost::sends, ("calculated", cost::calculated_sends), Equal),
    row("o2ib/queue-receives", "1", cost::receives, ("calculated", cost::calculated_receives), Equal),
    row(
        "o2ib/queue-completions",
        "1",
        cost::completions,
        ("calculated", cost::calculated_completions),
        Equal,
    ),
    row("o2ib/receives-posted", "1", cost::posted, ("calculated", cost::calculated_receives), Equal),
    row("o2ib/receive-bytes", "B", cost::posted_bytes, ("calculated", cost::calculated_bytes), Equal),
];

//! A service and its callers on two nodes over TCP, with 1, 2 and 4 partitions.

#![allow(clippy::unwrap_used, reason = "tests")]

mod bed;
mod clients;

use std::sync::Arc;

use lnet_api::Errno;
use nlx_service::PartitionStatistics;
use nlx_service::caller::CallEnd;
use nlx_testkit::buffers::pattern;
use nlx_testkit::until;

use bed::{Ask, BULK, Bed, LENGTH, small};

/// Every kind of call gets its own answer, and the bulk arrives before it.
// Covers: S-313
#[test]
fn each_call_is_answered_once() {
    for partitions in [1, 2, 4] {
        let bed = Bed::new(partitions, small());
        let kinds = [Ask::Echo, Ask::Push, Ask::Pull];
        let calls = 300;
        for number in 1..=calls {
            bed.call(number, kinds[number as usize % 3]);
        }
        let mut ended = bed.ends(calls as usize);
        ended.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut expected: Vec<_> = (1..=calls)
            .map(|number| {
                let mut bytes = pattern(number, LENGTH);
                bytes[..8].copy_from_slice(&(number * 2).to_le_bytes());
                bytes[8] = kinds[number as usize % 3] as u8;
                let moved = (!number.is_multiple_of(3)).then_some(BULK);
                bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                (bytes, CallEnd { reply: Ok(LENGTH), moved })
            })
            .collect();
        expected.sort_by(|(one, _), (other, _)| one.cmp(other));
        assert!(ended == expected, "{partitions} partitions: replies differ");
        let counters = bed.service.counters();
        let sum = |of: fn(&nlx_service::ServiceCounters) -> u64| counters.iter().map(of).sum::<u64>();
        assert_eq!((sum(|c| c.requests), sum(|c| c.bulk), sum(|c| c.dropped)), (calls, 200, 0));
        until("replies have left", || bed.service.counters().iter().map(|c| c.replies).sum::<u64>() == calls);
        assert_eq!(bed.service.service_times().count, calls);
    }
}

/// A service on two of four CPU partitions serves the requests that arrive in all of them, and its
/// statistics name its partitions.
// Covers: S-313
#[test]
fn a_service_runs_on_the_partitions_of_its_list() {
    let bed = Bed::on(4, Arc::new([3, 1]), small());
    let calls = 100;
    for number in 1..=calls {
        bed.call(number, Ask::Echo);
    }
    let ended = bed.ends(calls as usize);
    assert!(ended.iter().all(|(_, ended)| ended.reply == Ok(LENGTH)));
    let statistics = || bed.service.statistics("echo", &bed.serving);
    let sum = |of: fn(&PartitionStatistics) -> u64| statistics().partitions.iter().map(of).sum::<u64>();
    until("replies have left", || sum(|partition| partition.service_times.count) == calls);
    assert_eq!(statistics().partitions.iter().map(|partition| partition.cpt).collect::<Vec<_>>(), [3, 1]);
    assert_eq!((sum(|partition| partition.counters.requests), sum(|p| p.waits.count)), (calls, calls));
    assert!(statistics().partitions.iter().all(|partition| partition.pool.threads >= 1));
}

/// A request without a reply ends at its deadline; a handler that panics costs its request alone.
#[test]
fn without_a_reply_a_call_ends_at_its_deadline() {
    let bed = Bed::new(2, small());
    for (number, ask) in [(1, Ask::Nothing), (2, Ask::Panic), (3, Ask::Echo)] {
        bed.call(number, ask);
    }
    let ended = bed.ends(3);
    let timed_out = ended.iter().filter(|(_, ended)| ended.reply == Err(Errno::ETIMEDOUT)).count();
    let answered = ended.iter().filter(|(_, ended)| ended.reply == Ok(LENGTH)).count();
    assert_eq!((timed_out, answered), (2, 1));
}

/// A handler that panics costs its request alone: more of them than all buffers have room for leave
/// the service as it was.
#[test]
fn buffers_outlive_handlers_that_panic() {
    let bed = Bed::new(1, small());
    let calls = u64::from(small().buffers_max * small().requests_per_buffer) + 1;
    for number in 1..=calls {
        bed.call(number, Ask::Panic);
    }
    bed.ends(calls as usize);
    let dropped = || bed.service.counters().iter().map(|counters| counters.dropped).sum::<u64>();
    until("all requests are given up", || dropped() == calls);
    bed.call(calls + 1, Ask::Echo);
    let ended = bed.ends(calls as usize + 1);
    assert_eq!(ended.iter().map(|(_, ended)| ended.reply).collect::<Vec<_>>(), [Ok(LENGTH)]);
}

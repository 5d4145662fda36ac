//! Look-ups in a hash table: the anchor of LNet's match lists.

use std::hint::black_box;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::error::{BenchError, Result};
use crate::keys;
use crate::measure::Round;
use crate::meter::{Sample, Stopwatch, Timed};

/// Look-ups between two readings of the clock.
const BATCH: u64 = 256;

/// The network of all NIDs: TCP, number 0.
const NET: u64 = 2 << 16;

/// A NID as one number, and the match bits.
type Key = (u64, u64);
type Table = HashMap<Key, u32, RandomState>;

/// Look-ups among `COUNT` entries from `SOURCES` NIDs, where each key depends on the previous
/// result: nanoseconds.
pub(crate) fn dependent<const COUNT: usize, const SOURCES: usize>(round: &Round) -> Result<Sample> {
    let (table, mut at) = (table(COUNT, SOURCES), 0);
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            at = find(&table, at, SOURCES)?;
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Look-ups like those of [`dependent`], with keys that are known in advance, so that the processor
/// overlaps several look-ups: nanoseconds.
pub(crate) fn independent<const COUNT: usize, const SOURCES: usize>(round: &Round) -> Result<Sample> {
    let table = table(COUNT, SOURCES);
    let mut numbers = (0..COUNT as u32).cycle();
    let timed = Timed::warm(round.time, || {
        for number in numbers.by_ref().take(BATCH as usize) {
            black_box(find(&table, number, SOURCES)?);
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Fills a table with `COUNT` entries: the processor time of the longest single insert, in
/// milliseconds.
pub(crate) fn worst_insert<const COUNT: usize>(_: &Round) -> Result<Sample> {
    let (mut table, mut stopwatch) = (Table::default(), Stopwatch::start()?);
    for number in 0..COUNT as u32 {
        table.insert(key(number, 1), number);
        stopwatch.lap()?;
    }
    black_box(&table);
    Ok(Sample::of(stopwatch.longest_ms()))
}

fn key(number: u32, sources: usize) -> Key {
    (NET << 32 | u64::from(keys::address(number, sources)), keys::bits(number))
}

/// Returns a table in which each number's entry holds the next number.
fn table(count: usize, sources: usize) -> Table {
    let chain = keys::chain(count);
    chain.iter().enumerate().map(|(number, &next)| (key(number as u32, sources), next)).collect()
}

#[inline]
fn find(table: &Table, number: u32, sources: usize) -> Result<u32> {
    let missing =
        || BenchError::Wrong { subject: "an entry's number", value: u64::MAX, expected: number.into() };
    table.get(&key(number, sources)).copied().ok_or_else(missing)
}

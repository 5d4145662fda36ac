//! Copies of memory, and accesses to it, as anchors.

use std::hint::black_box;
use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::keys;
use crate::measure::Round;
use crate::meter::{Sample, Timed};
use crate::server::{self, Server};

pub(crate) const OWNER: &str = "memory-owner";

const LENGTH: usize = 1 << 20;
const PAGE: usize = 4096;

/// Repeated copies between two buffers of 1 MiB, each page-aligned as those of nlx: GB/s.
pub(crate) fn copy(round: &Round) -> Result<Sample> {
    let (mut source, mut target) = (vec![0xa5_u8; LENGTH + PAGE], vec![0_u8; LENGTH + PAGE]);
    let (source, target) = (page_aligned(&mut source), page_aligned(&mut target));
    let timed = Timed::warm(round.time, || {
        black_box(&mut *target).copy_from_slice(black_box(source));
        Ok(1)
    })?;
    Ok(Sample::of(timed.steps as f64 * LENGTH as f64 / timed.seconds / 1e9))
}

/// Repeated copies of 1 MiB from the memory of another process into this one's, by the system:
/// GB/s.
pub(crate) fn from_another_process(round: &Round) -> Result<Sample> {
    let server = Server::start::<&str>(OWNER, round.cores, &[])?;
    let base = server.reported().parse().map_err(|_| BenchError::Server {
        name: OWNER.to_string(),
        problem: format!("said '{}', not an address", server.reported()),
    })?;
    let source = [RemoteIoVec { base, len: LENGTH }];
    let mut target = vec![0_u8; LENGTH + PAGE];
    let target = page_aligned(&mut target);
    let timed = Timed::warm(round.time, || {
        let copied = process_vm_readv(server.pid(), &mut [IoSliceMut::new(target)], &source)
            .map_err(BenchError::system("copy from another process"))?;
        if copied == LENGTH {
            return Ok(1);
        }
        Err(BenchError::Wrong {
            subject: "the number of bytes copied",
            value: copied as u64,
            expected: LENGTH as u64,
        })
    })?;
    Ok(Sample::of(timed.steps as f64 * LENGTH as f64 / timed.seconds / 1e9))
}

/// Runs the other process.
pub(crate) fn serve(_: Cores, _: &[String]) -> Result<()> {
    let mut memory = vec![0xa5_u8; LENGTH + PAGE];
    let source = page_aligned(&mut memory);
    server::ready(black_box(source).as_ptr().addr())?;
    loop {
        std::thread::park();
    }
}

/// Repeated copies of 64 bytes: nanoseconds. A message of 64 bytes needs at least that.
pub(crate) fn copy_64(round: &Round) -> Result<Sample> {
    const BATCH: u64 = 4096;
    let (source, mut target) = ([0xa5_u8; 64], [0_u8; 64]);
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            black_box(&mut target).copy_from_slice(black_box(&source));
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Changes one of `COUNT` records of 128 bytes, each of which names the next one, and writes
/// another such record to the next slot of a ring of the same size: nanoseconds. With large counts
/// memory latency dominates.
pub(crate) fn touch<const COUNT: usize>(round: &Round) -> Result<Sample> {
    const BATCH: u64 = 256;
    let next = keys::chain(COUNT);
    let mut records: Vec<[u64; 16]> = next.iter().map(|&next| [next.into(); 16]).collect();
    let mut ring = vec![[0_u64; 16]; COUNT];
    let (mut at, mut slot) = (0, 0);
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            let record = &mut records[at];
            record[1] = record[1].wrapping_add(1);
            black_box(&mut ring)[slot] = *record;
            at = record[0] as usize;
            slot = if slot + 1 == COUNT { 0 } else { slot + 1 };
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

fn page_aligned(memory: &mut [u8]) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(PAGE);
    &mut memory[start..start + LENGTH]
}

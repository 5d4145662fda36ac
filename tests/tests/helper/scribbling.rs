//! Clients that overwrite all memory that they share with the helper.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::scene::{Helper, Other, Work, machine_to_itself};

/// While a client writes arbitrary values into its arenas, rings and event queues, the data of
/// other clients remains correct. The helper cuts off clients that corrupt their queues, and
/// releases everything of theirs.
// Covers: MT-219
#[test]
fn a_client_that_scribbles_harms_itself_alone() {
    let helper = Helper::start();
    let other = helper.another();
    let (near, far) = (Work::start(&helper), Work::between([&helper, &other]));
    let scribblers = [Other::start("scribble", &helper, &[]), Other::start("scribble", &helper, &[])];
    while helper.number("/totals/violations") < 20 {
        near.advance(5);
        far.advance(5);
    }
    scribblers.into_iter().for_each(Other::kill);
    near.stop();
    far.stop();
    helper.is_clean();
}

/// Honest rounds per measurement.
const ROUNDS: u64 = 60;

/// The number of measurements of each kind.
const TIMES: usize = 7;

/// The factor by which honest work may be slower beside a client that scribbles than beside one
/// that is equally busy with private memory, in most pairs of measurements. They should be equal;
/// other load of the machine makes them vary.
const SLOWER: u32 = 2;

/// A client that scribbles over all shared memory slows an honest client down no more than an
/// equally busy harmless one does, by the factor [`SLOWER`] at most. Both are measured in turns, in
/// the same minute, on the same helper.
// Covers: MT-219
#[test]
fn scribbling_slows_no_other_client_down() {
    let machine = machine_to_itself();
    let helper = Helper::start_alone(&machine);
    let work = Work::start(&helper);
    let others = ["busy", "scribble"].map(|role| Other::start(role, &helper, &[]));
    others.iter().for_each(|other| other.signal(Signal::SIGSTOP));
    let mut times: [Vec<Duration>; 2] = Default::default();
    for _ in 0..TIMES {
        for (other, times) in others.iter().zip(&mut times) {
            other.signal(Signal::SIGCONT);
            work.advance(ROUNDS / 4);
            let begun = Instant::now();
            work.advance(ROUNDS);
            times.push(begun.elapsed());
            other.signal(Signal::SIGSTOP);
        }
    }
    let [busy, scribble] = &times;
    println!("{ROUNDS} rounds take {busy:?} beside a busy client, {scribble:?} beside one that scribbles");
    // Other load of the machine varies; both measurements of a pair have it in common.
    let as_fast = busy.iter().zip(scribble).filter(|(busy, scribble)| **scribble <= **busy * SLOWER);
    assert!(
        as_fast.count() > TIMES / 2,
        "{scribble:?} beside one that scribbles, {busy:?} beside a busy one"
    );
    others.into_iter().for_each(|other| {
        other.signal(Signal::SIGCONT);
        other.kill();
    });
    work.stop();
    helper.is_clean();
}

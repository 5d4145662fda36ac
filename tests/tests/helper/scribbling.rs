//! Clients that write over all that they share with the helper.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::scene::{Helper, Other, Work, machine_to_itself};

/// While a client writes anything anywhere in its arenas, rings and event queues, the data of another one stays right;
/// the helper cuts off those that break their queues, and nothing is left of them.
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

/// Honest work between two looks at the clock.
const ROUNDS: u64 = 60;

/// How often both are measured.
const TIMES: usize = 7;

/// How much slower honest work may be beside one that scribbles than beside one that is as busy with memory of its own, in most
/// pairs of measurements. They should be equal; a machine with other things to do makes that vary.
const SLOWER: u32 = 2;

/// The speed of an honest client beside one that scribbles over all that it shares equals that beside an equally busy
/// harmless one: measured in turns, in the same minute, on the same helper.
// Covers: MT-219
#[test]
fn scribbling_slows_nobody_down() {
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
    // What else the machine has to do comes and goes; the two of a pair have it in common.
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

//! Clients that are killed: at each named point, and at any moment.

use nix::libc::SIGKILL;
use nlx_testkit::Rng;
use nlx_tests::client::points::POINTS;

use crate::scene::{Helper, Other, Silence, Work};
use crate::ucore::Ucore;

/// The visits to a point at which a client dies: the first, and one in full operation.
const VISITS: [u32; 2] = [1, 7];

/// A client is killed at each named point, and each is proven to be hit. Another client is not
/// affected, and at the end all resources are released.
// Covers: S-6, MT-234
#[test]
fn at_each_named_point() {
    let helper = Helper::start();
    let silence = Silence::new();
    let work = Work::start(&helper);
    work.advance(5);
    let before = helper.holdings();
    let silent = silence.address.to_string();
    for nth in VISITS {
        for point in POINTS {
            let other = Other::start("traffic", &helper, &[&silent, point, &nth.to_string()]);
            assert_eq!(other.line(), format!("hit {point}"));
            assert_eq!(other.died_of(), Some(SIGKILL), "{point}");
            work.advance(1);
        }
        helper.is_clean_but_for(2);
        helper.holds_again(before);
    }
    work.stop();
    helper.is_clean();
}

/// A client as programs link it, the code of `nlx-ucore`, is killed at each of its named points,
/// and each is proven to be hit. After each kill its resources are released, and another client is
/// not affected.
// Covers: S-6, MT-234
#[test]
fn a_program_at_each_named_point() {
    // Short rings: sometimes a batch finds no room in one.
    let helper = Helper::configured("[helper.quotas]\nring_slots = 8\n");
    let silence = Silence::new();
    let work = Work::start(&helper);
    work.advance(5);
    let before = helper.holdings();
    let ucore = Ucore::build();
    let points = ucore.points();
    for nth in VISITS {
        for point in &points {
            let client = ucore.start(&helper, &silence, point, nth);
            assert_eq!(client.line(), format!("hit {point}"), "visit {nth}: {:?}", client.last_words());
            assert_eq!(client.died_of(), Some(SIGKILL), "{point}");
            work.advance(1);
            helper.is_clean_but_for(2);
        }
        helper.holds_again(before);
    }
    work.stop();
    helper.is_clean();
}

/// The number of clients that are killed at once.
const BATCH: usize = 10;

/// Batches: a thousand clients in all.
const BATCHES: usize = 100;

/// A thousand clients are killed at any moment of their traffic, ten at a time; after each ten
/// their resources are released.
// Covers: S-6, MT-234
#[test]
fn at_a_thousand_moments() {
    let helper = Helper::start();
    let silence = Silence::new();
    let work = Work::start(&helper);
    work.advance(5);
    let before = helper.holdings();
    let silent = silence.address.to_string();
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Rng::new(seed);
    for _ in 0..BATCHES {
        let others: Vec<_> = (0..BATCH).map(|_| Other::start("traffic", &helper, &[&silent])).collect();
        for other in others {
            // Some microseconds, or some milliseconds.
            let longest = 1 << random.below(16);
            for _ in 0..random.below(longest) {
                std::hint::spin_loop();
            }
            other.kill();
        }
        work.advance(1);
        helper.is_clean_but_for(2);
        helper.holds_again(before);
    }
    work.stop();
    helper.is_clean();
}

/// A client is killed that has one operation of each queue in flight towards a silent node, and one
/// that waits: its resources are released, and the next client can use its address.
// Covers: MT-234
#[test]
fn with_everything_in_flight() {
    let helper = Helper::start();
    let silence = Silence::new();
    let work = Work::start(&helper);
    for _ in 0..10 {
        let hold = Other::start("hold", &helper, &[&silence.address.to_string()]);
        let wait = Other::start("wait", &helper, &[]);
        hold.kill();
        wait.kill();
        helper.is_clean_but_for(2);
    }
    work.stop();
    helper.is_clean();
}

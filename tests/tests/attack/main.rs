//! `nlxd` against attackers that are ordinary users of its host, or peers on its network: during
//! each attack, honest clients make progress and new clients are served; after it, everything of
//! the attackers is released. `./test attack` runs it.
//!
//! The helper, the honest clients and the attackers are processes of different users. Only root can
//! start these; without root all have one user, and tests that need several are skipped.
//!
//! # A new attack
//!
//! 1. The attack: a file in `tests/src/bin/nlx-attacker`, and a line in its list `ATTACKS`. It
//!    prints `full …` when the attack has its full strength, and continues until it is killed. Its
//!    tools are in [`nlx_tests::attack`], [`nlx_tests::client`] and [`nlx_tests::judge`].
//! 2. The requirement: a file here with a test such as this one, and its `mod` line below:
//!
//!    ```ignore
//!    /// One sentence: the attack, and the reaction of the helper.
//!    #[test]
//!    #[ignore = "./test attack"]
//!    fn too_many_machines() {
//!        let Some(mut stage) = Stage::new("machines").limits("ulimit -v 4000000").open() else { return };
//!        let attackers = stage.attack(&[(User::Attacker(0), &["machines", "255", "256"])]);
//!        stage.everybody_is_served();
//!        // The specific checks of this attack: counters of `stage.helper.status()`, lines of the attackers.
//!        stage.close(attackers);
//!    }
//!    ```
//! 3. By hand: `cargo test -p nlx-tests --test attack -- --ignored --test-threads=1 --nocapture
//!    too_many_machines`.
//!
//! Assertions count (rounds, clients, refusals), and never measure time. Latencies are recorded in
//! a table for review, one line for each attack. The environment may set:
//!
//! | variable | default | |
//! | --- | --- | --- |
//! | `NLX_ATTACK_ROUNDS` | 1000 | honest rounds before and during each attack |
//! | `NLX_ATTACK_THREADS` | 1 | serving threads of the helper |
//! | `NLX_ATTACK_NET` | `tcp` | `o2ib`: the honest clients work over RDMA, at the guest's two addresses |
//! | `NLX_ATTACK_UNIT` | – | set under `tests/systemd/run`: the helper is the packaged unit, with its limits and its sandbox |
//! | `NLX_ATTACK_TABLE` | – | a file to which the lines of the table are added |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod clients;
mod delays;
mod departures;
mod descriptors;
mod figures;
mod flood;
mod foreign;
mod fuse;
mod machines;
mod matches;
mod people;
#[path = "../support/scene.rs"]
mod scene;
mod silent;
mod stage;
mod status;
#[path = "../support/mod.rs"]
mod support;
mod throttled;
mod unread;

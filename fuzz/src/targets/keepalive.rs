//! The keepalive, against a plain model.

use lnet_proto::sock::{KEEPALIVE_PAUSE_NS, Keepalive, Prefix, Version};

use super::{Outcome, same};

/// Unit of time: the numbers of an input count it.
const STEP_NS: u64 = 500_000_000;

/// Compares the keepalive with the model. The first two bytes are version and silence; each further
/// byte advances the time, then reports a received message, or polls.
pub(super) fn keepalive(bytes: &[u8]) -> Outcome {
    let [version, silence, events @ ..] = bytes else { return Outcome::of("short") };
    let version = [Version::V2, Version::V3, Version::V4][usize::from(version % 3)];
    let silence_ns = (*silence != 0).then(|| u64::from(*silence) * STEP_NS);
    let mut keepalive = Keepalive::new(version, silence_ns, 0);
    let (mut now_ns, mut heard_ns, mut tried_ns) = (0, 0, None::<u64>);
    let mut sent = 0;
    for event in events {
        now_ns += u64::from(event >> 2) * STEP_NS;
        let silent = silence_ns.is_some_and(|silence_ns| heard_ns + silence_ns <= now_ns);
        let paused = tried_ns.is_some_and(|tried_ns| now_ns < tried_ns + KEEPALIVE_PAUSE_NS);
        let due = version > Version::V2 && silent && !paused;
        same(keepalive.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns), due, "deadline");
        match event & 3 {
            0 => {
                keepalive.heard(now_ns);
                heard_ns = now_ns;
            }
            idle => {
                let idle = idle > 1;
                same(
                    keepalive.poll(now_ns, idle),
                    (due && idle).then_some(Prefix::KEEPALIVE),
                    "what is sent",
                );
                sent += u32::from(due && idle);
                tried_ns = if due { Some(now_ns) } else { tried_ns };
            }
        }
    }
    Outcome::of((version, silence_ns.is_some(), sent.min(8)))
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let long = 61 << 2;
    vec![
        vec![1, 60, long | 2, 20 << 2 | 2, 0, long | 1, 21 << 2 | 3],
        vec![0, 60, long | 2],
        vec![2, 0, long | 2],
    ]
}

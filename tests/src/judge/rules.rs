//! The checks of the passive side: rules that every peer must keep while it is connected.

use std::collections::{BTreeMap, BTreeSet};

use super::{Outcome, Report};

/// A rule: its name, and the line that it enforces.
pub type Rule = (&'static str, &'static str);

/// The peer's source port.
pub const SOURCE_PORT: Rule =
    ("source-port", "measured: a node connects from ports 1023, 1022, 1021; others are reset");
/// The connection request.
pub const REQUEST: Rule = (
    "request",
    "measured: acceptor request V1 over IPv4, V2 over IPv6; lnet-wire 21: with exactly the node's NID",
);
/// Version and fields of the hello.
pub const HELLO: Rule = (
    "hello",
    "measured: hello V3 first over IPv4, V4 over IPv6; lnet-wire 22: PID 12345, no addresses, a type",
);
/// Incarnations in hellos.
pub const INCARNATION: Rule = ("incarnation", "lnet-wire 24: one incarnation in all hellos of one life");
/// The order of connection types.
pub const ORDER: Rule = ("order", "measured: CONTROL, BULK_IN, BULK_OUT in this order");
/// Connections that both nodes open at once.
pub const RACE: Rule = (
    "race",
    "lnet-wire 24: both connect at once: the connection of the higher NID wins, the other is answered NONE",
);
/// Prefixes, types and lengths of the messages in a stream.
pub const FRAMING: Rule =
    ("framing", "lnet-wire 9, 25.2: prefixes, types and lengths that exist; no end inside a frame");
/// Fields of the LNet header.
pub const HEADER: Rule =
    ("header", "measured: the source PID is the hello's; lnet-wire 6, 25.3: NIDs, zeros, no checksum");
/// Requests for zero-copy acks.
pub const NO_COOKIE: Rule = ("no-cookie", "lnet-wire 26: who copies never sets cookie 0");
/// The choice of a message's connection.
pub const CONNECTION: Rule =
    ("connection", "lnet-wire 25.4: messages below 1024 bytes on CONTROL, others on BULK_OUT");
/// The frames on BULK_IN.
pub const ACK_ONLY: Rule = ("ack-only", "lnet-wire 23: on its BULK_IN a node sends NOOPs alone");
/// NOOPs on an idle connection, and attempts to reconnect.
pub const KEEPALIVE: Rule = (
    "keepalive",
    "measured: keepalives on the idle BULK_IN connection; lnet-wire 28: after silence, one attempt per 10 s at most",
);
/// Interface cookies in the handles of MDs.
pub const HANDLES: Rule =
    ("handles", "lnet-wire 5: one interface cookie in all handles of a life; a GET has one");
/// Zero-copy acknowledgements.
pub const ZC_ACK: Rule =
    ("zc-ack", "measured: zero-copy acks are mandatory, on the same socket in the other direction");
/// Answers to pings.
pub const PING: Rule =
    ("ping-answer", "measured: always answer the ping GET; features, sequence, entries, in pushes also");
/// ACKs of pushes.
pub const PUSH: Rule = ("push-ack", "measured: a peer with MULTI_RAIL and DISCOVERY must ACK the push");
/// Waiting for the push back.
pub const PUSH_BACK: Rule = (
    "push-back",
    "measured: a node pushes back 3 ms after a push from a NID it did not know; a peer that has gone by then blocks its discovery",
);
/// Answers to PUTs and GETs.
pub const ANSWERS: Rule =
    ("answers", "lnet-wire 10-12: ACKs and REPLYs echo the handle that was given, and fit it");

/// All rules.
pub const RULES: &[Rule] = &[
    SOURCE_PORT,
    REQUEST,
    HELLO,
    INCARNATION,
    ORDER,
    RACE,
    FRAMING,
    HEADER,
    NO_COOKIE,
    CONNECTION,
    ACK_ONLY,
    KEEPALIVE,
    HANDLES,
    ZC_ACK,
    PING,
    PUSH,
    PUSH_BACK,
    ANSWERS,
];

/// The maximum number of violations of one rule that are recorded: the first ones matter most.
const KEPT_MAX: usize = 8;

/// The observations of each rule.
#[derive(Debug, Default)]
pub(crate) struct Record {
    kept: BTreeSet<&'static str>,
    broken: BTreeMap<&'static str, Vec<String>>,
}

impl Record {
    /// Records that a rule was kept, or how it was broken; returns whether it was kept.
    pub(crate) fn note(&mut self, rule: Rule, verdict: Result<(), String>) -> bool {
        let good = verdict.is_ok();
        match verdict {
            Ok(()) => {
                self.kept.insert(rule.0);
            }
            Err(words) => {
                let words_of = self.broken.entry(rule.0).or_default();
                if words_of.len() < KEPT_MAX {
                    words_of.push(words);
                }
            }
        }
        good
    }

    /// Returns the report, one line per rule.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report::default();
        for &(name, enforces) in RULES {
            let outcome = match (self.broken.get(name), self.kept.contains(name)) {
                (Some(words), _) => Outcome::Fail(words.join("; ")),
                (None, true) => Outcome::Pass,
                (None, false) => Outcome::DoesNotApply,
            };
            report.add(name, enforces, outcome);
        }
        report
    }
}

/// Returns `Ok` if the condition holds.
pub(crate) fn must(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

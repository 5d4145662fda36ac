//! The checks of the active side, one function each. A check returns nothing if it passes, and its
//! observation if it fails.

mod bulk;
mod handshake;
mod messages;
mod ping;
mod race;
mod refusals;
mod unprivileged;

use super::Target;

/// The result of a check: nothing, or a deviation from kernel nodes.
pub type CheckResult = Result<(), String>;

/// One check of the active side.
#[derive(Clone, Copy)]
pub struct Check {
    /// The check's name.
    pub name: &'static str,
    /// The line that it enforces: of `lnet-measured`, or a section of `lnet-wire`.
    pub enforces: &'static str,
    applies: fn(&Target) -> bool,
    run: fn(&Target) -> CheckResult,
}

/// The end of a check, for its line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The node behaved as a kernel.
    Pass,
    /// The deviation.
    Fail(String),
    /// The check does not apply to this node, or to this port of the judge.
    DoesNotApply,
}

impl Check {
    /// Runs the check on new connections.
    pub fn run(&self, target: &Target) -> Outcome {
        if !(self.applies)(target) {
            return Outcome::DoesNotApply;
        }
        match (self.run)(target) {
            Ok(()) => Outcome::Pass,
            Err(words) => Outcome::Fail(words),
        }
    }
}

const fn check(
    name: &'static str,
    applies: fn(&Target) -> bool,
    run: fn(&Target) -> CheckResult,
    enforces: &'static str,
) -> Check {
    Check { name, enforces, applies, run }
}

fn believes(target: &Target) -> bool {
    target.believes()
}

fn believes_on_ipv4(target: &Target) -> bool {
    target.believes() && !target.nid.is_large()
}

fn believes_on_ipv6(target: &Target) -> bool {
    target.believes() && target.nid.is_large()
}

/// Peers from unprivileged ports have names over IPv4 only (lnet-wire 27).
fn answers(target: &Target) -> bool {
    target.believes() || target.policy == super::Policy::All && !target.nid.is_large()
}

/// Returns whether the node can connect to the judge at its NID's address.
fn can_listen(target: &Target) -> bool {
    answers(target) && target.own.address() == target.from
}

fn connects_back(target: &Target) -> bool {
    target.believes() && can_listen(target)
}

fn has_buffer(target: &Target) -> bool {
    target.believes() && target.buffer.is_some()
}

/// All checks of the active side.
pub const CHECKS: &[Check] = &[
    check(
        "hello-v3",
        believes_on_ipv4,
        handshake::v3,
        "measured: hello V3 over IPv4 is accepted behind acceptor request V1",
    ),
    check(
        "hello-v2",
        believes_on_ipv4,
        handshake::v2,
        "measured: hello V2 over IPv4 is accepted behind acceptor request V1",
    ),
    check(
        "hello-v4",
        believes_on_ipv4,
        handshake::v4,
        "measured: hello V4 over IPv4 is accepted behind acceptor request V1",
    ),
    check(
        "request-v2",
        believes_on_ipv4,
        handshake::request_v2,
        "measured: V3 and V4 are accepted behind acceptor request V2 also",
    ),
    check(
        "hello-large",
        believes_on_ipv6,
        handshake::large,
        "measured: over IPv6 acceptor request V2 (28 bytes), hello V4 (80 bytes), 96-byte headers",
    ),
    check(
        "types",
        believes,
        handshake::types,
        "measured: CONTROL, BULK_IN, BULK_OUT are answered CONTROL, BULK_OUT, BULK_IN; lnet-wire 24: one incarnation",
    ),
    check(
        "swapped",
        believes,
        handshake::swapped,
        "lnet-wire 21, 22.3, 25.2: a peer of the other byte order",
    ),
    check(
        "addresses",
        believes_on_ipv4,
        handshake::addresses,
        "lnet-wire 22.2: a list of addresses is skipped",
    ),
    check(
        "hello-unchecked",
        believes,
        handshake::unchecked,
        "lnet-wire 22.2: the receiver's PID and incarnation in a hello are not checked",
    ),
    check(
        "pieces",
        believes,
        handshake::pieces,
        "lnet-wire 24: TCP cuts request, hello and messages anywhere",
    ),
    check(
        "foreign-source",
        believes,
        handshake::foreign_source,
        "measured: a hello's source NID need not be the source IP",
    ),
    check(
        "type-any",
        believes,
        handshake::type_any,
        "measured: type ANY is accepted, but nothing is sent back on it",
    ),
    check(
        "wrong-nid",
        answers,
        refusals::wrong_nid,
        "measured: an acceptor request that names another NID is reset",
    ),
    check(
        "request-magic",
        answers,
        refusals::request_magic,
        "lnet-wire 21: what is no request is closed, or answered 16 bytes",
    ),
    check(
        "unknown-version",
        answers,
        refusals::unknown_version,
        "measured: an unknown hello version is answered by a V3 hello (V4 over IPv6) of type NONE, then close",
    ),
    check("bad-hello", answers, refusals::bad_hello, "lnet-wire 22.5: hellos that are closed without a word"),
    check(
        "duplicate",
        believes,
        refusals::duplicate,
        "measured: a duplicate type is answered NONE and closed",
    ),
    check(
        "incarnation",
        believes,
        refusals::incarnation,
        "measured: another incarnation drops the old connections and is answered NONE: retry",
    ),
    check(
        "version-change",
        believes_on_ipv4,
        refusals::version_change,
        "lnet-wire 24: another version drops the old connections and is answered NONE",
    ),
    check(
        "silence",
        answers,
        refusals::silence,
        "lnet-wire 20: who sends no hello is closed after accept_timeout",
    ),
    check("address", on_loopback, refusals::address, "measured: a node listens only on its own NI's address"),
    check(
        "ping",
        answers,
        ping::answered,
        "measured: always answer the ping GET, with sinks of 272 and of 3960",
    ),
    check(
        "ping-large",
        believes_on_ipv6,
        ping::large,
        "measured: over IPv6 features 0x7e, a large ping entry of 24 bytes, total size 56 in entry 0",
    ),
    check("ping-cut", answers, ping::cut, "lnet-wire 15: an answer longer than the sink is cut"),
    check("ping-burst", answers, ping::burst, "lnet-wire 11: every GET is answered, with its own handle"),
    check("push", believes, ping::push, "measured: MULTI_RAIL and DISCOVERY oblige to acknowledge pushes"),
    check("dest-pid", believes, ping::dest_pid, "measured: the destination PID is not checked (999 worked)"),
    check(
        "source-pid",
        connects_back,
        ping::source_pid,
        "measured: another source PID than the hello's is another identity, and the answer goes to that",
    ),
    check(
        "no-buffer",
        answers,
        messages::no_buffer,
        "lnet-wire 10, 11: what matches nothing is dropped without a word",
    ),
    check("keepalive", believes, messages::keepalive, "measured: keepalives with cookie 1 want no answer"),
    check(
        "close-all",
        believes,
        messages::close_all,
        "lnet-wire 28: with one connection all of a peer's are closed",
    ),
    check(
        "bad-frame",
        answers,
        messages::bad_frame,
        "lnet-wire 9, 25.2: protocol errors close the connections",
    ),
    check("checksum", believes_on_ipv4, messages::checksum, "lnet-wire 25.3: a V2 checksum is verified"),
    check(
        "not-a-router",
        believes,
        messages::not_a_router,
        "lnet-wire 9: what is for another network is dropped",
    ),
    check(
        "stray-ack",
        believes,
        bulk::stray_ack,
        "lnet-wire 26: acknowledging what was not asked for closes all",
    ),
    check(
        "zc-ack",
        believes,
        bulk::zc_ack,
        "measured: zero-copy acks are mandatory for a non-zero cookie 0, at 64 KiB and 1 MiB, on the same socket",
    ),
    check(
        "zc-control",
        can_listen,
        bulk::zc_control,
        "measured: one CONTROL connection is enough for 64 KiB, and the node does not connect back",
    ),
    check(
        "bulk",
        has_buffer,
        bulk::bulk,
        "measured: with all three connections open bulk goes over the bulk connection",
    ),
    check(
        "secure",
        is_refused,
        unprivileged::secure,
        "measured: a source port above 1023 with accept=secure is reset",
    ),
    check(
        "all-identity",
        is_renamed,
        unprivileged::identity,
        "measured: with accept=all the peer is <source IP>@tcp with PID 0x80000000 | port, whatever its hello says",
    ),
    check(
        "all-ports",
        is_renamed,
        unprivileged::ports,
        "lnet-wire 27: every connection from an unprivileged port is a peer of its own",
    ),
    check(
        "race",
        connects_back,
        race::race,
        "lnet-wire 24: both connect at once: the connection of the higher NID wins, the other is answered NONE",
    ),
];

fn on_loopback(target: &Target) -> bool {
    target.to.ip().is_loopback()
}

fn is_refused(target: &Target) -> bool {
    !target.privileged && target.policy == super::Policy::Secure
}

fn is_renamed(target: &Target) -> bool {
    !target.privileged && target.policy == super::Policy::All && !target.nid.is_large()
}

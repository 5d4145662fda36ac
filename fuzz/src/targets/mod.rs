//! What is fuzzed, and what must hold.

mod bevq;
mod config;
mod descriptor;
mod driver;
mod engine;
mod handshakes;
mod ib;
mod ib_conn;
mod ib_connect;
mod keepalive;
mod layouts;
mod names;
mod offer;
mod ping;
mod session;

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use lnet_proto::ProtoError;

/// A parser or state machine with the properties that every input must leave intact.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs one input; panics if a property breaks.
    pub run: fn(&[u8]) -> Outcome,
    /// The inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// What an input led to, told apart as finely as is worth keeping an input for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(pub(crate) u64);

/// All targets. A new parser or trust boundary gets its line here.
pub const TARGETS: &[Target] = &[
    Target { name: "nid-text", run: names::nid_text, seeds: names::text_seeds },
    Target { name: "nid-wire", run: names::nid_wire, seeds: names::wire_seeds },
    Target { name: "header", run: layouts::header, seeds: layouts::header_seeds },
    Target { name: "request", run: layouts::request, seeds: layouts::request_seeds },
    Target { name: "hello", run: layouts::hello, seeds: layouts::hello_seeds },
    Target { name: "decoder", run: layouts::decoder, seeds: layouts::decoder_seeds },
    Target { name: "ack-queue", run: layouts::ack_queue, seeds: layouts::ack_seeds },
    Target { name: "ping-info", run: ping::ping_info, seeds: ping::seeds },
    Target { name: "acceptor", run: handshakes::acceptor, seeds: handshakes::acceptor_seeds },
    Target { name: "connector", run: handshakes::connector, seeds: handshakes::connector_seeds },
    Target { name: "keepalive", run: keepalive::keepalive, seeds: keepalive::seeds },
    Target { name: "descriptor", run: descriptor::descriptor, seeds: descriptor::seeds },
    Target { name: "offer", run: offer::offer, seeds: offer::seeds },
    Target { name: "engine", run: engine::engine, seeds: engine::seeds },
    Target { name: "ib-message", run: ib::message, seeds: ib::message_seeds },
    Target { name: "ib-reject", run: ib::reject, seeds: ib::reject_seeds },
    Target { name: "ib-listener", run: ib_connect::listener, seeds: ib_connect::listener_seeds },
    Target { name: "ib-connector", run: ib_connect::connector, seeds: ib_connect::connector_seeds },
    Target { name: "ib-conn", run: ib_conn::conn, seeds: ib_conn::seeds },
    Target { name: "config-yaml", run: config::yaml, seeds: config::yaml_seeds },
    Target { name: "config-toml", run: config::toml, seeds: config::toml_seeds },
    Target { name: "bevq", run: bevq::oracle, seeds: bevq::seeds },
    Target { name: "bevq-hostile", run: bevq::hostile, seeds: bevq::seeds },
    Target { name: "driver-request", run: driver::request, seeds: driver::packet_seeds },
    Target { name: "driver-reply", run: driver::reply, seeds: driver::packet_seeds },
    Target { name: "driver-entry", run: driver::entry, seeds: driver::entry_seeds },
    Target { name: "driver-session", run: session::session, seeds: session::seeds },
    Target { name: "config-modprobe", run: config::modprobe, seeds: config::modprobe_seeds },
];

impl Outcome {
    /// The outcome that this value stands for.
    fn of(value: impl Hash) -> Outcome {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Outcome(hasher.finish())
    }

    /// An error, told apart by its kind and errno; its text must name something.
    fn of_error(error: &ProtoError) -> Outcome {
        assert!(error.errno() > 0 && !error.to_string().is_empty(), "{error:?}");
        Outcome::of((std::mem::discriminant(error), error.errno()))
    }
}

/// Panics with both values if they differ.
#[track_caller]
fn same<T: PartialEq + Debug>(left: T, right: T, what: &str) {
    assert!(left == right, "{what}: {left:?} is not {right:?}");
}

//! The fuzz targets with their invariants.

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
mod lst_console;
mod names;
mod offer;
mod ping;
mod rpc;
mod session;
mod test_node;

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use lnet_proto::ProtoError;

/// A parser or state machine with invariants that hold for every input.
#[derive(Debug)]
pub struct Target {
    /// The target's name on the command line.
    pub name: &'static str,
    /// Runs one input; panics if a property breaks.
    pub run: fn(&[u8]) -> Outcome,
    /// The inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The longest input in bytes.
    pub input_max: usize,
}

/// Length of the longest input in bytes; longer ones reach nothing new: it holds several messages,
/// or hundreds of steps.
const INPUT_MAX: usize = 2048;

/// Creates a target with inputs of the usual length.
const fn target(name: &'static str, run: fn(&[u8]) -> Outcome, seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds, input_max: INPUT_MAX }
}

/// The outcome of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A hash that is distinct for each outcome for which an input is worth keeping.
    pub(crate) kind: u64,
    /// Number of entries in the input's list, where it was read as a format with a list.
    pub(crate) entries: usize,
}

/// All targets. A new parser or trust boundary gets its line here.
pub const TARGETS: &[Target] = &[
    target("nid-text", names::nid_text, names::text_seeds),
    target("nid-wire", names::nid_wire, names::wire_seeds),
    target("header", layouts::header, layouts::header_seeds),
    target("request", layouts::request, layouts::request_seeds),
    target("hello", layouts::hello, layouts::hello_seeds),
    target("decoder", layouts::decoder, layouts::decoder_seeds),
    target("ack-queue", layouts::ack_queue, layouts::ack_seeds),
    Target { input_max: ping::INFO_MAX, ..target("ping-info", ping::ping_info, ping::seeds) },
    target("acceptor", handshakes::acceptor, handshakes::acceptor_seeds),
    target("connector", handshakes::connector, handshakes::connector_seeds),
    target("keepalive", keepalive::keepalive, keepalive::seeds),
    target("descriptor", descriptor::descriptor, descriptor::seeds),
    target("offer", offer::offer, offer::seeds),
    target("engine", engine::engine, engine::seeds),
    target("lst-node", test_node::node, test_node::seeds),
    Target { input_max: ib::MESSAGE_INPUT_MAX, ..target("ib-message", ib::message, ib::message_seeds) },
    target("ib-reject", ib::reject, ib::reject_seeds),
    target("ib-listener", ib_connect::listener, ib_connect::listener_seeds),
    target("ib-connector", ib_connect::connector, ib_connect::connector_seeds),
    target("ib-conn", ib_conn::conn, ib_conn::seeds),
    Target { input_max: config::TEXT_MAX, ..target("config-yaml", config::yaml, config::yaml_seeds) },
    Target { input_max: config::TEXT_MAX, ..target("config-toml", config::toml, config::toml_seeds) },
    target("bevq", bevq::oracle, bevq::seeds),
    target("bevq-hostile", bevq::hostile, bevq::seeds),
    Target {
        input_max: driver::PACKET_INPUT_MAX,
        ..target("driver-request", driver::request, driver::packet_seeds)
    },
    Target {
        input_max: driver::PACKET_INPUT_MAX,
        ..target("driver-reply", driver::reply, driver::packet_seeds)
    },
    target("driver-entry", driver::entry, driver::entry_seeds),
    target("driver-session", session::session, session::seeds),
    Target {
        input_max: config::TEXT_MAX,
        ..target("config-modprobe", config::modprobe, config::modprobe_seeds)
    },
    target("lst-console", lst_console::console, lst_console::console_seeds),
    target("lst-command", lst_console::command, lst_console::command_seeds),
    target("rpc-header", rpc::header, rpc::seeds),
    target("rpc-server", rpc::server, rpc::seeds),
    target("rpc-client", rpc::client, rpc::seeds),
];

impl Outcome {
    /// Returns the outcome for this value.
    fn of(value: impl Hash) -> Outcome {
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        Outcome { kind: hasher.finish(), entries: 0 }
    }

    /// Returns the outcome for this value and the length of a list: each short length is distinct,
    /// longer ones are by powers of two, and the longest possible is distinct too.
    fn of_list(value: impl Hash, entries: usize, limit: usize) -> Outcome {
        let length = if entries <= 4 { entries } else { 4 + entries.ilog2() as usize };
        Outcome { entries, ..Outcome::of((value, length, entries == limit)) }
    }

    /// Returns the outcome of an error by its kind and errno; its text must not be empty.
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

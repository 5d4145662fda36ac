//! Settings that prevent the sides from connecting, independent of queue sizes (lnet-wire 31,
//! lnet-semantics 29).

use super::input::SideInput;

/// The settings that decide which peers a side can connect to, and which can connect to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// The port on which it listens, and expects the other side to listen.
    service: i32,
    /// Set if the side accepts connections from privileged ports alone.
    requires_privileged: bool,
    /// Set if the side connects from a privileged port.
    uses_privileged: bool,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach { service: 987, requires_privileged: false, uses_privileged: true }
    }
}

impl Reach {
    /// Sets a tunable, if it is one of these.
    pub(super) fn set(&mut self, name: &str, value: i32) {
        match name {
            "service" => self.service = value,
            "require_privileged_port" => self.requires_privileged = value != 0,
            "use_privileged_port" => self.uses_privileged = value != 0,
            _ => {}
        }
    }
}

/// A reason why a connection is impossible.
#[derive(Debug, Clone)]
pub(super) struct Barrier {
    /// Set for each direction that is prevented: `a` connecting to `b`, and `b` connecting to `a`.
    bars: [bool; 2],
    /// The tunable of each side that causes it.
    tunables: [&'static str; 2],
    /// The reason in words, for the reports.
    pub(super) text: String,
}

impl Barrier {
    /// Returns whether it prevents this side's connections.
    pub(super) fn bars(&self, opener: usize) -> bool {
        self.bars[opener]
    }

    /// Returns whether this side's tunable is part of the reason.
    pub(super) fn concerns(&self, side: usize, tunable: &str) -> bool {
        self.tunables[side] == tunable
    }
}

/// Returns all reasons between `a` and `b`.
pub(super) fn between(peers: [&SideInput; 2]) -> Vec<Barrier> {
    let [a, b] = peers.map(|peer| peer.reach.service);
    let ports = (a != b).then(|| Barrier {
        bars: [true; 2],
        tunables: ["service"; 2],
        text: format!(
            "{} and {} cannot connect to each other: each expects the other on its own service, {a} and {b}",
            peers[0].name, peers[1].name
        ),
    });
    let privileges = [0, 1].into_iter().filter_map(|opener| {
        let (active, passive) = (peers[opener], peers[1 - opener]);
        let barred = passive.reach.requires_privileged && !active.reach.uses_privileged;
        barred.then(|| {
            let mut tunables = ["require_privileged_port"; 2];
            tunables[opener] = "use_privileged_port";
            let (from, to) = (active.name, passive.name);
            let text = format!(
                "{from} cannot connect to {to}: {to} has require_privileged_port=1, and {from} use_privileged_port=0"
            );
            Barrier { bars: [opener == 0, opener == 1], tunables, text }
        })
    });
    ports.into_iter().chain(privileges).collect()
}

//! What keeps the sides from connecting, whatever queues they could have (lnet-wire 31, lnet-semantics 29).

use super::input::Peer;

/// What decides whom a side reaches, and who reaches it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// The port that it listens on, and on which it expects the other to.
    service: i32,
    /// Whether it takes connections from privileged ports alone.
    requires_privileged: bool,
    /// Whether it connects from such a port.
    uses_privileged: bool,
}

impl Default for Reach {
    fn default() -> Reach {
        Reach { service: 987, requires_privileged: false, uses_privileged: true }
    }
}

impl Reach {
    /// Takes a tunable, if it is one of these.
    pub(super) fn set(&mut self, name: &str, value: i32) {
        match name {
            "service" => self.service = value,
            "require_privileged_port" => self.requires_privileged = value != 0,
            "use_privileged_port" => self.uses_privileged = value != 0,
            _ => {}
        }
    }
}

/// One thing that does.
#[derive(Debug, Clone)]
pub(super) struct Barrier {
    /// Whether it keeps `a` from connecting to `b`, and `b` from connecting to `a`.
    bars: [bool; 2],
    /// The tunable of each side that makes it.
    tunables: [&'static str; 2],
    /// In words.
    pub(super) text: String,
}

impl Barrier {
    /// Whether this side's connections do not come about.
    pub(super) fn bars(&self, opener: usize) -> bool {
        self.bars[opener]
    }

    /// Whether it tells of this side's tunable.
    pub(super) fn tells_of(&self, side: usize, tunable: &str) -> bool {
        self.tunables[side] == tunable
    }
}

/// All that there are between `a` and `b`.
pub(super) fn between(peers: [&Peer; 2]) -> Vec<Barrier> {
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

use lnet_socklnd::{NiConfig, SockConfig};

/// What one NI has otherwise than the others of its node; `None` is as the node has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NiTunables {
    pub(crate) credits: Option<u32>,
    pub(crate) peer_credits: Option<u32>,
    pub(crate) conns_per_peer: Option<u8>,
    pub(crate) timeout_s: Option<u32>,
    /// -1 leaves it to the system.
    pub(crate) tos: Option<i16>,
}

impl NiTunables {
    /// The names that `lnetctl` has under `tunables`.
    pub(crate) const LNET: &[&str] = &["peer_timeout", "peer_credits", "peer_buffer_credits", "credits"];
    /// Those under `lnd tunables`.
    pub(crate) const LND: &[&str] = &["conns_per_peer", "timeout", "tos"];
    /// All of them.
    pub(crate) const NAMES: [&str; 7] = [
        "peer_timeout",
        "peer_credits",
        "peer_buffer_credits",
        "credits",
        "conns_per_peer",
        "timeout",
        "tos",
    ];

    /// Sets one by its name to a number that is in its range.
    pub(crate) fn set(&mut self, name: &str, number: i64) {
        match name {
            "credits" => self.credits = Some(number as u32),
            "peer_credits" => self.peer_credits = Some(number as u32),
            "conns_per_peer" => self.conns_per_peer = Some(number as u8),
            "timeout" => self.timeout_s = Some(number as u32),
            "tos" => self.tos = Some(number as i16),
            _ => {}
        }
    }

    /// The value of one; `None` if it follows the node or has no effect.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        match name {
            "credits" => self.credits.map(|value| value.to_string()),
            "peer_credits" => self.peer_credits.map(|value| value.to_string()),
            "conns_per_peer" => self.conns_per_peer.map(|value| value.to_string()),
            "timeout" => self.timeout_s.map(|value| value.to_string()),
            "tos" => self.tos.map(|value| value.to_string()),
            _ => None,
        }
    }

    /// The values in force, on a node with these.
    pub(crate) fn or(&self, node: &SockConfig) -> NiTunables {
        NiTunables {
            credits: self.credits.or(Some(node.credits)),
            peer_credits: Some(self.peer_credits(node)),
            conns_per_peer: self.conns_per_peer.or(Some(node.conns_per_peer)),
            timeout_s: self.timeout_s.or(Some(node.timeout_s)),
            tos: self.tos.or(Some(node.tos.map_or(-1, i16::from))),
        }
    }

    /// Its own, else the node's as far as they give way to its credits.
    fn peer_credits(&self, node: &SockConfig) -> u32 {
        let most = self.credits.unwrap_or(node.credits);
        self.peer_credits.unwrap_or_else(|| peer_credits_within(most, node))
    }

    /// What the LND is told of the NI, on a node with these; its link asks for `automatic` connections to each peer.
    pub(crate) fn config(&self, node: &SockConfig, automatic: u8) -> NiConfig {
        let conns_per_peer = self.conns_per_peer.unwrap_or(node.conns_per_peer);
        NiConfig {
            credits: self.credits.unwrap_or(node.credits),
            peer_credits: self.peer_credits(node),
            conns_per_peer: if conns_per_peer == 0 { automatic } else { conns_per_peer },
            timeout_s: self.timeout_s.unwrap_or(node.timeout_s),
            tos: self.tos.map_or(node.tos, |tos| u8::try_from(tos).ok()),
        }
    }
}

/// The node's `peer_credits` under so many `credits`. The default, which nobody may have chosen, gives way to them; another value
/// does not, and the two are refused as a contradiction.
pub(crate) fn peer_credits_within(credits: u32, node: &SockConfig) -> u32 {
    let default = node.peer_credits == SockConfig::default().peer_credits;
    if default { node.peer_credits.min(credits) } else { node.peer_credits }
}

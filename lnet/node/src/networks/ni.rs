//! The tunables of one NI, which take precedence over those of the node.

use lnet_nid::NetType;
use lnet_socklnd::{NiConfig, SockConfig};

use crate::{NodeConfig, O2ibNiConfig};

/// The tunables in which one NI differs from the node's; `None` uses the node's value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NiTunables {
    pub(crate) credits: Option<u32>,
    pub(crate) peer_credits: Option<u32>,
    pub(crate) conns_per_peer: Option<u8>,
    pub(crate) timeout_s: Option<u32>,
    /// The type of service; -1 keeps the system's default.
    pub(crate) tos: Option<i16>,
    pub(crate) peer_credits_hiw: Option<u32>,
    pub(crate) concurrent_sends: Option<u32>,
}

/// A tunable of an NI: its name in `lnetctl`, and its name in the LND's module.
pub(crate) type TunableNames = (&'static str, &'static str);

const fn same(name: &'static str) -> TunableNames {
    (name, name)
}

impl NiTunables {
    /// The names under `tunables` of `lnetctl`.
    pub(crate) const LNET: [TunableNames; 4] =
        [same("peer_timeout"), same("peer_credits"), same("peer_buffer_credits"), same("credits")];
    const TCP: [TunableNames; 3] = [same("conns_per_peer"), ("timeout", "sock_timeout"), same("tos")];
    const O2IB: [TunableNames; 10] = [
        ("peercredits_hiw", "peer_credits_hiw"),
        same("map_on_demand"),
        same("concurrent_sends"),
        same("fmr_pool_size"),
        same("fmr_flush_trigger"),
        same("fmr_cache"),
        same("ntx"),
        same("conns_per_peer"),
        same("timeout"),
        same("tos"),
    ];

    /// Returns the names under `lnd tunables` for networks of this type.
    pub(crate) fn lnd(net_type: NetType) -> &'static [TunableNames] {
        if net_type == NetType::O2IB { &NiTunables::O2IB } else { &NiTunables::TCP }
    }

    /// Returns all names for an NI of this type.
    pub(crate) fn names(net_type: NetType) -> impl Iterator<Item = &'static TunableNames> {
        NiTunables::LNET.iter().chain(NiTunables::lnd(net_type))
    }

    /// Sets a tunable by its name to a number that is in its range.
    pub(crate) fn set(&mut self, name: &str, number: i64) {
        match name {
            "credits" => self.credits = Some(number as u32),
            "peer_credits" => self.peer_credits = Some(number as u32),
            "conns_per_peer" => self.conns_per_peer = Some(number as u8),
            "timeout" => self.timeout_s = Some(number as u32),
            "tos" => self.tos = Some(number as i16),
            "peercredits_hiw" => self.peer_credits_hiw = Some(number as u32),
            "concurrent_sends" => self.concurrent_sends = Some(number as u32),
            _ => {}
        }
    }

    /// Returns the value of a tunable; `None` if it follows the node or has no effect.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        match name {
            "credits" => self.credits.map(|value| value.to_string()),
            "peer_credits" => self.peer_credits.map(|value| value.to_string()),
            "conns_per_peer" => self.conns_per_peer.map(|value| value.to_string()),
            "timeout" => self.timeout_s.map(|value| value.to_string()),
            "tos" => self.tos.map(|value| value.to_string()),
            "peercredits_hiw" => self.peer_credits_hiw.map(|value| value.to_string()),
            "concurrent_sends" => self.concurrent_sends.map(|value| value.to_string()),
            _ => None,
        }
    }

    /// Returns the values in force for an NI of this type, on a node with this configuration.
    pub(crate) fn or(&self, net_type: NetType, config: &NodeConfig) -> NiTunables {
        if net_type == NetType::O2IB {
            return self.o2ib(&config.o2ib).into();
        }
        let node = &config.tcp;
        NiTunables {
            credits: self.credits.or(Some(node.credits)),
            peer_credits: Some(self.peer_credits(node)),
            conns_per_peer: self.conns_per_peer.or(Some(node.conns_per_peer)),
            timeout_s: self.timeout_s.or(Some(node.timeout_s)),
            tos: self.tos.or(Some(node.tos.map_or(-1, i16::from))),
            ..NiTunables::default()
        }
    }

    /// Returns the NI's own value, otherwise the node's limited by the NI's credits.
    fn peer_credits(&self, node: &SockConfig) -> u32 {
        let most = self.credits.unwrap_or(node.credits);
        self.peer_credits.unwrap_or_else(|| peer_credits_within(most, node))
    }

    /// Returns the TCP LND's configuration of the NI, on a node with these tunables; `automatic` is
    /// the number of connections for its link's speed.
    pub(crate) fn tcp(&self, node: &SockConfig, automatic: u8) -> NiConfig {
        let conns_per_peer = self.conns_per_peer.unwrap_or(node.conns_per_peer);
        NiConfig {
            credits: self.credits.unwrap_or(node.credits),
            peer_credits: self.peer_credits(node),
            conns_per_peer: if conns_per_peer == 0 { automatic } else { conns_per_peer },
            timeout_s: self.timeout_s.unwrap_or(node.timeout_s),
            tos: self.tos.map_or(node.tos, |tos| u8::try_from(tos).ok()),
        }
    }

    /// Returns the verbs LND's configuration of the NI, on a node with these tunables.
    pub(crate) fn o2ib(&self, node: &lnet_o2iblnd::O2ibConfig) -> O2ibNiConfig {
        O2ibNiConfig {
            credits: self.credits.unwrap_or(node.credits),
            peer_credits: self.peer_credits.unwrap_or(node.peer_credits),
            peer_credits_hiw: self.peer_credits_hiw.unwrap_or(node.peer_credits_hiw),
            concurrent_sends: self.concurrent_sends.unwrap_or(node.concurrent_sends),
            conns_per_peer: self.conns_per_peer.unwrap_or(node.conns_per_peer),
            timeout_s: self.timeout_s.unwrap_or(node.timeout_s),
            tos: self.tos.map_or(node.tos, |tos| u8::try_from(tos).ok()),
        }
    }
}

impl From<O2ibNiConfig> for NiTunables {
    fn from(ni: O2ibNiConfig) -> NiTunables {
        NiTunables {
            credits: Some(ni.credits),
            peer_credits: Some(ni.peer_credits),
            conns_per_peer: Some(ni.conns_per_peer),
            timeout_s: Some(ni.timeout_s),
            tos: Some(ni.tos.map_or(-1, i16::from)),
            peer_credits_hiw: Some(ni.peer_credits_hiw),
            concurrent_sends: Some(ni.concurrent_sends),
        }
    }
}

/// Returns the node's `peer_credits` for an NI with `credits`. The default is limited to `credits`.
/// A configured value is not limited: if it is larger, the configuration is refused.
pub(crate) fn peer_credits_within(credits: u32, node: &SockConfig) -> u32 {
    let default = node.peer_credits == SockConfig::default().peer_credits;
    if default { node.peer_credits.min(credits) } else { node.peer_credits }
}

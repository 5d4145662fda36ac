//! The adjustment of tunables to their permitted ranges (lnet-semantics 31).

use std::fmt;

use crate::O2ibConfig;

use super::release::{GLOBAL_REGION_PIVOT, KernelMapping, Release};
use super::{SizesError, Tunables};

/// The smallest `peer_credits` (lnet-semantics 31): the depth that every node has granted since the
/// first version.
pub const PEER_CREDITS_MIN: u32 = 8;

/// The largest `peer_credits`, because credits are returned in one byte (lnet-wire 32).
pub const PEER_CREDITS_MAX: u32 = 255;

/// The maximum number of connections to a peer (lnet-semantics 29).
pub const CONNS_PER_PEER_MAX: u32 = 127;

/// The least number of fragments that a node with `map_on_demand` requests (lnet-wire 34).
pub const MAP_ON_DEMAND_MIN: u32 = 2;

/// The maximum number of pieces of memory in a work request of nlx, on every device: the pieces of
/// one call are kept on the stack.
pub const PIECES_MAX: u32 = 64;

/// One side of a connection, as it is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Side {
    /// The release whose arithmetic applies.
    pub release: Release,
    /// The build number of the side's kernel: before [`GLOBAL_REGION_PIVOT`] there is a global
    /// memory region. Not used for nlx.
    pub kernel_build: u32,
    /// The means by which the side's device maps memory. Not used for nlx.
    pub mapping: KernelMapping,
    /// The configured tunables.
    pub tunables: Tunables,
}

/// Tunables in effect: values outside of their range have been moved into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjusted {
    /// The release whose arithmetic applies.
    pub release: Release,
    /// The way in which memory gets its key.
    pub registration: KeyMethod,
    /// Messages in flight over an NI.
    pub credits: u32,
    /// The queue depth that the side requests, which is also the largest that it grants: 1 to
    /// [`PEER_CREDITS_MAX`].
    pub peer_credits: u16,
    /// The number of owed credits at which they are returned, for a connection of that depth.
    pub high_water: u16,
    /// Sends posted at a time.
    pub concurrent_sends: u16,
    /// The number of fragments that the side requests, which is also the largest that it grants.
    pub fragments: u16,
    /// Connections to a peer.
    pub conns_per_peer: u32,
    /// Number of transmit descriptors.
    pub ntx: u32,
    /// Size of a pool of registrations.
    pub fmr_pool_size: u32,
    /// The number of used registrations at which a pool is flushed.
    pub fmr_flush_trigger: u32,
    /// Pieces of memory per work request.
    pub pieces: u32,
    /// True if buffers with gaps are mapped.
    pub gaps: bool,
    /// The changes made, in the order of the rules.
    pub changes: Vec<Change>,
}

/// The way in which memory gets a key that the other side can use in writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyMethod {
    /// Memory is registered once, not for each transfer: nlx.
    Once,
    /// Memory is mapped for each transfer.
    Mapped(KernelMapping),
    /// All memory is covered by a global key, with one fragment for each page; buffers of more than
    /// `up_to` fragments are mapped.
    Global {
        /// `map_on_demand`, if it is set.
        up_to: Option<u16>,
        /// The mapping of larger buffers.
        mapping: KernelMapping,
    },
}

/// A tunable whose configured value is outside of its range and was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The name of the tunable.
    pub tunable: &'static str,
    /// The configured value.
    pub from: u32,
    /// The value in effect.
    pub to: u32,
    /// The rule that changed it.
    pub rule: AdjustRule,
}

/// The rules by which tunables are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdjustRule {
    /// `credits` of 0 would send nothing.
    CreditsMin,
    /// `peer_credits` below 8.
    PeerCreditsMin,
    /// `peer_credits` above 255.
    PeerCreditsMax,
    /// `peer_credits` above `credits`.
    PeerCreditsOverCredits,
    /// `map_on_demand` of 1 where it is a number of fragments.
    MapOnDemandMin,
    /// `map_on_demand` where it is a flag, and always set.
    MapOnDemandFlag,
    /// `peer_credits_hiw` of 0.
    HighWaterUnset,
    /// `peer_credits_hiw` below half of `peer_credits`.
    HighWaterMin,
    /// `peer_credits_hiw` not below `peer_credits`.
    HighWaterMax,
    /// `peer_credits_hiw` above half of `peer_credits`, in nlx.
    HighWaterHalf,
    /// `concurrent_sends` of 0.
    ConcurrentSendsUnset,
    /// `concurrent_sends` above twice `peer_credits`.
    ConcurrentSendsMax,
    /// `concurrent_sends` below half of `peer_credits`.
    ConcurrentSendsMin,
    /// `conns_per_peer` of 0.
    ConnsPerPeerMin,
    /// `conns_per_peer` above 127.
    ConnsPerPeerMax,
    /// `wrq_sge` above 64, in nlx.
    PiecesMax,
}

impl AdjustRule {
    /// Returns the reason for the rule, as text for the operator.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            AdjustRule::CreditsMin => "without credits no message is ever sent",
            AdjustRule::PeerCreditsMin => "8 is the minimum: every node has always granted this depth",
            AdjustRule::PeerCreditsMax => "255 is the maximum: a message returns credits in one byte",
            AdjustRule::PeerCreditsOverCredits => {
                "a message needs a credit of the NI too: a peer cannot use more than the NI has"
            }
            AdjustRule::MapOnDemandMin => "2 is the minimum that nodes with this tunable ask for",
            AdjustRule::MapOnDemandFlag => {
                "from 2.12 on it is a flag that is always set: fragments are negotiated down from the maximum"
            }
            AdjustRule::HighWaterUnset => "0 means half of peer_credits",
            AdjustRule::HighWaterMin => {
                "half of peer_credits is the minimum: returning credits earlier costs a message each"
            }
            AdjustRule::HighWaterMax => {
                "it must be below peer_credits: a peer whose credits are all owed could never send again"
            }
            AdjustRule::HighWaterHalf => "nlx owes no more than half, which is the minimum as well",
            AdjustRule::ConcurrentSendsUnset => "0 means peer_credits",
            AdjustRule::ConcurrentSendsMax => {
                "twice peer_credits is the maximum: a queue entry has one request and one answer under way"
            }
            AdjustRule::ConcurrentSendsMin => {
                "half of peer_credits is the minimum, or credits would be unused"
            }
            AdjustRule::ConnsPerPeerMin => "a peer without a connection cannot be reached",
            AdjustRule::ConnsPerPeerMax => "127 is the maximum",
            AdjustRule::PiecesMax => {
                "64 is the maximum: nlx puts no more pieces of memory into a work request"
            }
        }
    }

    /// Returns whether the rule only supplies the default of an unset tunable.
    #[must_use]
    pub const fn fills_in(self) -> bool {
        matches!(self, AdjustRule::HighWaterUnset | AdjustRule::ConcurrentSendsUnset)
    }

    /// Returns the document that has the rule, for instance a chapter of a specification.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            AdjustRule::CreditsMin | AdjustRule::ConnsPerPeerMin => "nlx: nothing else would work",
            AdjustRule::HighWaterHalf | AdjustRule::PiecesMax => "nlx",
            AdjustRule::PeerCreditsMin | AdjustRule::PeerCreditsMax | AdjustRule::PeerCreditsOverCredits => {
                "lnet-semantics 31, 1"
            }
            AdjustRule::MapOnDemandMin => "lnet-wire 34",
            AdjustRule::MapOnDemandFlag => "lnet-semantics 31, 2; S-502",
            AdjustRule::HighWaterUnset | AdjustRule::HighWaterMin | AdjustRule::HighWaterMax => {
                "lnet-semantics 31, 3"
            }
            AdjustRule::ConcurrentSendsUnset
            | AdjustRule::ConcurrentSendsMax
            | AdjustRule::ConcurrentSendsMin => "lnet-semantics 31, 4",
            AdjustRule::ConnsPerPeerMax => "lnet-semantics 29",
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change { tunable, from, to, rule } = self;
        write!(f, "{tunable} {from} is {to}: {}", rule.why())
    }
}

/// Adjusts the tunables of nlx.
#[must_use]
pub fn adjust(config: &O2ibConfig) -> Adjusted {
    adjusted(Release::Nlx, KeyMethod::Once, &Tunables::from(config))
}

impl Side {
    /// Returns the configuration of this release on a current kernel and device, without tuning.
    #[must_use]
    pub fn of(release: Release) -> Side {
        let tunables = Tunables::of(release);
        Side { release, kernel_build: GLOBAL_REGION_PIVOT, mapping: KernelMapping::FastReg, tunables }
    }

    /// Adjusts the side's tunables.
    ///
    /// # Errors
    /// [`SizesError::Range`] for a value that no parameter can have; [`SizesError::FmrPool`] if the
    /// NI does not start.
    pub fn adjust(&self) -> Result<Adjusted, SizesError> {
        let tunables = &self.tunables;
        tunables.check()?;
        let Tunables { fmr_pool_size: value, ntx, .. } = *tunables;
        if self.release != Release::Nlx && value < ntx / 4 {
            return Err(SizesError::FmrPool { value, least: ntx / 4, ntx });
        }
        Ok(adjusted(self.release, self.registration(), tunables))
    }

    fn registration(&self) -> KeyMethod {
        let mapping = self.mapping;
        if self.release == Release::Nlx {
            return KeyMethod::Once;
        }
        if self.kernel_build >= GLOBAL_REGION_PIVOT {
            return KeyMethod::Mapped(mapping);
        }
        // From 2.12 on the threshold is that of a node which has none configured (seed 004).
        let set = self.release.map_on_demand_is_fragments() && self.tunables.map_on_demand != 0;
        let up_to = set.then(|| narrow(self.tunables.map_on_demand.max(MAP_ON_DEMAND_MIN)));
        KeyMethod::Global { up_to, mapping }
    }
}

/// The changes made so far.
struct Changes(Vec<Change>);

impl Changes {
    fn moving(&mut self, tunable: &'static str, value: u32) -> Moving<'_> {
        Moving { tunable, value, changes: &mut self.0 }
    }
}

/// A tunable's value while rules are applied to it.
struct Moving<'a> {
    tunable: &'static str,
    value: u32,
    changes: &'a mut Vec<Change>,
}

impl Moving<'_> {
    fn to(mut self, when: bool, to: u32, rule: AdjustRule) -> Self {
        if when && self.value != to {
            self.changes.push(Change { tunable: self.tunable, from: self.value, to, rule });
            self.value = to;
        }
        self
    }

    fn at_least(self, least: u32, rule: AdjustRule) -> Self {
        let when = self.value < least;
        self.to(when, least, rule)
    }

    fn at_most(self, most: u32, rule: AdjustRule) -> Self {
        let when = self.value > most;
        self.to(when, most, rule)
    }
}

fn adjusted(release: Release, registration: KeyMethod, tunables: &Tunables) -> Adjusted {
    let mut all = Changes(Vec::new());
    let credits = all.moving("credits", tunables.credits).at_least(1, AdjustRule::CreditsMin).value;
    let peer_credits = all
        .moving("peer_credits", tunables.peer_credits)
        .at_least(PEER_CREDITS_MIN, AdjustRule::PeerCreditsMin)
        .at_most(PEER_CREDITS_MAX, AdjustRule::PeerCreditsMax)
        .at_most(credits, AdjustRule::PeerCreditsOverCredits)
        .value;
    let fragments = match tunables.map_on_demand {
        _ if release == Release::Nlx => release.fragments_max(),
        0 if release.map_on_demand_is_fragments() => release.fragments_max(),
        set if release.map_on_demand_is_fragments() => {
            let set = all
                .moving("map_on_demand", set)
                .at_least(MAP_ON_DEMAND_MIN, AdjustRule::MapOnDemandMin)
                .value;
            narrow(set).min(release.fragments_max())
        }
        set => {
            let _always = all.moving("map_on_demand", set).to(true, 1, AdjustRule::MapOnDemandFlag);
            release.fragments_max()
        }
    };
    let half = peer_credits / 2;
    let high_water = all.moving("peer_credits_hiw", tunables.peer_credits_hiw);
    let unset = high_water.value == 0;
    let high_water =
        high_water.to(unset, half, AdjustRule::HighWaterUnset).at_least(half, AdjustRule::HighWaterMin);
    let high_water = match release {
        Release::Nlx => high_water.at_most(half, AdjustRule::HighWaterHalf).value,
        _ => high_water.at_most(peer_credits - 1, AdjustRule::HighWaterMax).value,
    };
    let sends = all.moving("concurrent_sends", tunables.concurrent_sends);
    let unset = sends.value == 0;
    let concurrent_sends = sends
        .to(unset, peer_credits, AdjustRule::ConcurrentSendsUnset)
        .at_most(2 * peer_credits, AdjustRule::ConcurrentSendsMax)
        .at_least(half, AdjustRule::ConcurrentSendsMin)
        .value;
    let conns_per_peer = all
        .moving("conns_per_peer", tunables.conns_per_peer)
        .at_least(1, AdjustRule::ConnsPerPeerMin)
        .at_most(CONNS_PER_PEER_MAX, AdjustRule::ConnsPerPeerMax)
        .value;
    let pieces = all.moving("wrq_sge", tunables.wrq_sge.max(1));
    let pieces = match release {
        Release::Nlx => pieces.at_most(PIECES_MAX, AdjustRule::PiecesMax).value,
        _ if release.has_pieces() => pieces.value,
        _ => 1,
    };
    Adjusted {
        release,
        registration,
        credits,
        peer_credits: narrow(peer_credits),
        high_water: narrow(high_water),
        concurrent_sends: narrow(concurrent_sends),
        fragments,
        conns_per_peer,
        ntx: tunables.ntx,
        fmr_pool_size: tunables.fmr_pool_size,
        fmr_flush_trigger: tunables.fmr_flush_trigger,
        pieces,
        gaps: tunables.use_fastreg_gaps != 0,
        changes: all.0,
    }
}

/// Returns a value that has been clamped below 2^16 as a `u16`.
fn narrow(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

impl Adjusted {
    /// Returns the work requests that one entry of the queue may need (m of lnet-semantics 32): a
    /// write for each fragment, the DONE behind them, and two more with fast registration.
    #[must_use]
    pub const fn per_entry(&self, fragments: u16) -> u32 {
        let registration = match self.registration {
            // The releases 2.8 and 2.10 did not count them.
            KeyMethod::Mapped(KernelMapping::FastReg) if !self.release.map_on_demand_is_fragments() => 2,
            _ => 0,
        };
        1 + fragments as u32 + registration
    }

    /// Returns the number of owed credits at which they are returned, on a connection of this depth
    /// (lnet-semantics 32). For nlx it is at least 1.
    #[must_use]
    pub fn high_water_of(&self, depth: u16) -> u16 {
        let scaled = u32::from(depth) * u32::from(self.high_water) / u32::from(self.peer_credits.max(1));
        let least = u16::from(self.release == Release::Nlx);
        narrow(scaled).max(least)
    }
}

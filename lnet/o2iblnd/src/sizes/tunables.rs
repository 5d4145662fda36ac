//! The tunables that the sizes depend on.

use crate::O2ibConfig;
use lnet_lnd::BadTunable;

use super::{Release, SizesError};

/// The configured tunables that the sizes depend on (lnet-semantics 29). nlx has neither transmit
/// descriptors nor registration pools, so that `ntx`, the three of the pools and `map_on_demand`
/// apply only to kernel nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Messages in flight to one peer: the queue depth (`peer_credits`).
    pub peer_credits: u32,
    /// The number of owed credits at which they are returned (`peer_credits_hiw`); 0 means half of
    /// `peer_credits`.
    pub peer_credits_hiw: u32,
    /// Messages in flight over an NI (`credits`).
    pub credits: u32,
    /// Sends that may be posted at a time (`concurrent_sends`); 0 means `peer_credits`.
    pub concurrent_sends: u32,
    /// Before 2.12 the maximum number of fragments, where 0 means the default; since then only a
    /// flag (`map_on_demand`).
    pub map_on_demand: u32,
    /// Transmit descriptors (`ntx`).
    pub ntx: u32,
    /// Registrations (`fmr_pool_size`).
    pub fmr_pool_size: u32,
    /// The number of used registrations at which a pool is flushed (`fmr_flush_trigger`).
    pub fmr_flush_trigger: u32,
    /// Connections to a peer (`conns_per_peer`).
    pub conns_per_peer: u32,
    /// Pieces of memory per work request (`wrq_sge`).
    pub wrq_sge: u32,
    /// 1 if buffers with gaps are mapped where the device supports it, otherwise 0
    /// (`use_fastreg_gaps`).
    pub use_fastreg_gaps: u32,
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables {
            peer_credits: 8,
            peer_credits_hiw: 0,
            credits: 256,
            concurrent_sends: 0,
            map_on_demand: 0,
            ntx: 512,
            fmr_pool_size: 512,
            fmr_flush_trigger: 384,
            conns_per_peer: 1,
            wrq_sge: 2,
            use_fastreg_gaps: 0,
        }
    }
}

impl From<&O2ibConfig> for Tunables {
    fn from(config: &O2ibConfig) -> Tunables {
        Tunables {
            peer_credits: config.peer_credits,
            peer_credits_hiw: config.peer_credits_hiw,
            credits: config.credits,
            concurrent_sends: config.concurrent_sends,
            conns_per_peer: config.conns_per_peer.into(),
            wrq_sge: config.wrq_sge,
            ..Tunables::default()
        }
    }
}

/// One tunable: its name, its range, and its field.
#[derive(Debug, Clone, Copy)]
pub struct SizeTunable {
    /// The name of the module's parameter.
    pub name: &'static str,
    /// The smallest value that may be configured. The adjustment may still change a value within
    /// the range.
    pub least: u32,
    /// The largest value that may be configured.
    pub most: u32,
    /// The unit of the value, for output.
    pub unit: &'static str,
    field: fn(&mut Tunables) -> &mut u32,
}

/// The largest value of any tunable. A larger one is a mistake: a million transmit descriptors take
/// 40 GB.
pub const VALUE_MAX: u32 = 1 << 20;

const fn row(
    name: &'static str,
    (least, most): (u32, u32),
    unit: &'static str,
    field: fn(&mut Tunables) -> &mut u32,
) -> SizeTunable {
    SizeTunable { name, least, most, unit, field }
}

/// All tunables, in display order.
pub const TUNABLES: [SizeTunable; 11] = [
    row("peer_credits", (0, VALUE_MAX), "messages", |all| &mut all.peer_credits),
    row("peer_credits_hiw", (0, VALUE_MAX), "messages", |all| &mut all.peer_credits_hiw),
    row("credits", (1, VALUE_MAX), "messages", |all| &mut all.credits),
    row("concurrent_sends", (0, VALUE_MAX), "work requests", |all| &mut all.concurrent_sends),
    row("map_on_demand", (0, 256), "fragments", |all| &mut all.map_on_demand),
    row("ntx", (1, VALUE_MAX), "descriptors", |all| &mut all.ntx),
    row("fmr_pool_size", (1, VALUE_MAX), "registrations", |all| &mut all.fmr_pool_size),
    row("fmr_flush_trigger", (1, VALUE_MAX), "registrations", |all| &mut all.fmr_flush_trigger),
    row("conns_per_peer", (0, 255), "connections", |all| &mut all.conns_per_peer),
    row("wrq_sge", (1, 255), "pieces", |all| &mut all.wrq_sge),
    row("use_fastreg_gaps", (0, 1), "flag", |all| &mut all.use_fastreg_gaps),
];

impl Tunables {
    /// Returns the defaults of a release.
    #[must_use]
    pub fn of(release: Release) -> Tunables {
        let map_on_demand = u32::from(!release.map_on_demand_is_fragments() && release != Release::Nlx);
        Tunables { map_on_demand, ..Tunables::default() }
    }

    /// Returns the field that the tunable names.
    #[must_use]
    pub fn value(&self, tunable: &SizeTunable) -> u32 {
        let mut all = *self;
        *(tunable.field)(&mut all)
    }

    /// Sets a tunable by its name.
    ///
    /// # Errors
    /// [`SizesError::Unknown`], [`SizesError::Range`].
    pub fn set(&mut self, name: &str, value: u32) -> Result<(), SizesError> {
        let tunable = SizeTunable::named(name)?;
        tunable.check(value)?;
        *(tunable.field)(self) = value;
        Ok(())
    }

    /// Checks the range of each tunable.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn check(&self) -> Result<(), BadTunable> {
        TUNABLES.iter().try_for_each(|tunable| tunable.check(self.value(tunable)))
    }
}

impl SizeTunable {
    /// Returns the tunable of this name.
    ///
    /// # Errors
    /// [`SizesError::Unknown`], which lists all names.
    pub fn named(name: &str) -> Result<&'static SizeTunable, SizesError> {
        TUNABLES.iter().find(|tunable| tunable.name == name).ok_or_else(|| SizesError::Unknown {
            name: name.to_string(),
            known: TUNABLES.map(|tunable| tunable.name).join(", "),
        })
    }

    /// Checks that a value is in the tunable's range.
    ///
    /// # Errors
    /// Names the tunable and its range.
    pub fn check(&self, value: u32) -> Result<(), BadTunable> {
        if (self.least..=self.most).contains(&value) {
            return Ok(());
        }
        Err(BadTunable::new(self.name, value, format_args!("from {} to {}", self.least, self.most)))
    }
}

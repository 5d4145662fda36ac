//! The arguments of `nlx o2iblnd-calc`.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::whole;

/// Largest number of peers and of partitions: more than any machine has.
pub(crate) const COUNT_MAX: u32 = 1 << 20;

#[derive(Debug, ClapArgs)]
pub(crate) struct CalcArgs {
    /// The first side, for instance 'release=2.12,peer_credits=16'. Keys: release (nlx),
    /// kernel_build (693), mapping (fastreg or fmr), cpts (1), max_wr (32768), max_cqe and max_sge
    /// of its device, and the tunables with their names.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub a: Vec<String>,
    /// The second side; its release is 2.15 by default.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub b: Vec<String>,
    /// A file (YAML or TOML) with a table 'a' and a table 'b' of the same keys. Options override
    /// the file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Peers that each side is connected to.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=COUNT_MAX as u64), allow_negative_numbers = true)]
    pub peers: u32,
    /// Fragments (pages) of the buffer whose transfer is counted: 256 are 1 MiB.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = whole::<u16>(1..=257), allow_negative_numbers = true)]
    pub fragments: u16,
    /// The buffer has gaps: fragments that start or end inside a page.
    #[arg(long)]
    pub gaps: bool,
    /// Explain how each number is computed, by which rule, and where the rule is documented.
    #[arg(long, conflicts_with_all = ["json", "sweep"])]
    pub explain: bool,
    /// Compute for a range of values of a tunable, of both sides or of one, and draw the results:
    /// 'peer_credits=8..256', 'a.peer_credits=8..256:8' with a step.
    #[arg(long, value_name = "NAME=FROM..TO[:STEP]")]
    pub sweep: Option<String>,
    /// Write the drawing of the sweep to an HTML page.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub html: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

//! The CPU partitions of a node: a table, or the tunables from which one is created.

use std::sync::Arc;

use lnet_cpt::{CptConfig, CptError, CptTable, Topology};

use crate::NodeError;

/// The source of a node's CPU partitions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Partitions {
    /// The tunables from which a table is created when the node starts, for the CPUs that this
    /// process may use (S-315). Unused if there is a table.
    tunables: CptConfig,
    /// The table that the program set which embeds the node.
    table: Option<Arc<CptTable>>,
}

impl From<CptConfig> for Partitions {
    fn from(tunables: CptConfig) -> Partitions {
        Partitions { tunables, table: None }
    }
}

impl From<Arc<CptTable>> for Partitions {
    fn from(table: Arc<CptTable>) -> Partitions {
        Partitions { tunables: CptConfig::default(), table: Some(table) }
    }
}

impl Partitions {
    /// Returns the tunables, unless there is a table.
    pub(crate) fn tunables(&self) -> Option<&CptConfig> {
        self.table.is_none().then_some(&self.tunables)
    }

    /// Returns the tunables, for changes; they replace a table set before.
    pub(crate) fn tunables_mut(&mut self) -> &mut CptConfig {
        self.table = None;
        &mut self.tunables
    }

    pub(crate) fn table(&self) -> Result<Arc<CptTable>, NodeError> {
        if let Some(table) = &self.table {
            return Ok(table.clone());
        }
        let make = || self.tunables.create(Topology::machine()?);
        make().map(Arc::new).map_err(|source| self.refuse(source))
    }

    /// Logs warnings about unusual tunables on this machine.
    pub(crate) fn warn(&self) {
        if let Ok(topology) = Topology::machine() {
            self.unusual(&topology).iter().for_each(|warning| tracing::warn!("{warning}"));
        }
    }

    /// Returns warnings about settings that are possible, but probably not intended.
    fn unusual(&self, topology: &Topology) -> Vec<String> {
        let Some(config) = self.tunables() else { return Vec::new() };
        let excess = config.is_excessive(topology).then_some("far more than the CPUs suggest".to_string());
        let absent = config.pattern.as_ref().and_then(|pattern| pattern.absent(topology));
        let absent =
            absent.map(|which| format!("this process has no {which}: the partitions are without them"));
        excess.into_iter().chain(absent).map(|odd| format!("{}: {odd}", tunables_text(config))).collect()
    }

    /// Returns the error of a table that cannot be created or used.
    pub(crate) fn refuse(&self, source: CptError) -> NodeError {
        let tunables = match self.tunables() {
            None => "CPU partitions of the program".to_string(),
            Some(tunables) => tunables_text(tunables),
        };
        NodeError::Partitions { tunables, source }
    }
}

/// Returns the tunables as a user writes them.
fn tunables_text(config: &CptConfig) -> String {
    let number = (config.npartitions > 0).then(|| format!("cpu_npartitions={}", config.npartitions));
    let pattern = config.pattern.as_ref().map(|pattern| format!("cpu_pattern=\"{pattern}\""));
    let words: Vec<String> = number.into_iter().chain(pattern).collect();
    if words.is_empty() { "CPU partitions by default".to_string() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use lnet_api::Errno;
    use lnet_cpt::MAX_CPUS;

    use super::*;

    fn table(tunables: &str) -> Result<Arc<CptTable>, NodeError> {
        Partitions::from(tunables.parse::<CptConfig>().unwrap()).table()
    }

    /// Tunables determine the table; a pattern overrides the number, and 1 switches affinity off.
    // Covers: S-303, S-315
    #[test]
    fn tunables_make_the_table_of_this_machine() {
        let cpus = Topology::machine().unwrap().cpus().clone();
        let first = cpus.first().unwrap();
        assert!(!table("cpu_npartitions=1").unwrap().has_affinity());
        assert_eq!(table(&format!("cpu_npartitions={}", cpus.len())).unwrap().partitions(), cpus.len());
        let one = table(&format!(r#"cpu_npartitions=7 cpu_pattern="0[{first}]""#)).unwrap();
        assert_eq!((one.partitions(), one.cpumask(0).to_string()), (1, first.to_string()));
        let by_default = table("").unwrap();
        let estimate = CptConfig::default().estimate.partitions(&Topology::machine().unwrap());
        assert_eq!(by_default.partitions(), estimate);
        assert_eq!(*by_default.cpumask(None), cpus);
    }

    /// Settings that this machine allows but that are probably not intended cause warnings.
    // Covers: S-302, S-315
    #[test]
    fn suspicious_tunables_are_reported() {
        let topology = Topology::flat(&"0-1".parse().unwrap()).unwrap();
        let odd = |text: &str| Partitions::from(text.parse::<CptConfig>().unwrap()).unusual(&topology);
        let text = r#"cpu_pattern="0[0-99]": this process has no CPUs 2-99: the partitions are without them"#;
        assert_eq!(odd(r#"cpu_pattern="0[0-99]""#), [text]);
        assert_eq!(odd("cpu_npartitions=200"), ["cpu_npartitions=200: far more than the CPUs suggest"]);
        assert!(odd(r#"cpu_pattern="0[0] 1[1]""#).is_empty() && odd("").is_empty());
    }

    /// Settings that the machine does not allow fail with their errno and the tunable's name.
    // Covers: S-301, S-315
    #[test]
    fn tunables_that_do_not_fit_the_machine_are_named() {
        let cpus = Topology::machine().unwrap().cpus().len();
        let many = format!("cpu_npartitions={}", cpus + 1);
        if cpus < lnet_cpt::MAX_PARTITIONS {
            let error = table(&many).unwrap_err();
            assert_eq!(error.errno(), Errno::EINVAL);
            assert!(error.to_string().starts_with(&many), "{error}");
        }
        let absent = MAX_CPUS - 1;
        let error = table(&format!(r#"cpu_pattern="0[{absent}]""#)).unwrap_err();
        assert_eq!(error.errno(), Errno::ENODEV);
        assert!(error.to_string().starts_with(&format!(r#"cpu_pattern="0[{absent}]": "#)), "{error}");
    }
}

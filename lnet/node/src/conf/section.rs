//! The table of a configuration file that configures the program around the node.

use std::path::{Path, PathBuf};

use super::doc::{LineError, LocatedValue, MapEntry, Value};
use super::{Form, SourceLine};
use crate::NodeError;

/// A table of a TOML file that belongs to the program around the node, for example `[helper]` of
/// `nlxd` ([`NodeConfig::helper`](crate::NodeConfig::helper)).
///
/// ```
/// let config = lnet_node::NodeConfig::from_toml("[helper]\nthreads = 2\n")?;
/// let helper = config.helper().expect("it is there");
/// let threads = helper.settings().next().expect("so is this");
/// assert_eq!((threads.key(), threads.text()?), ("threads", "2"));
/// assert_eq!(threads.refuse("too many").to_string(), "line 2: 'threads': too many");
/// # Ok::<(), lnet_node::NodeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    file: Option<PathBuf>,
    entries: Vec<MapEntry>,
}

/// A key of a [`Section`] with its value.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    file: Option<&'a Path>,
    entry: &'a MapEntry,
}

impl Section {
    pub(super) fn new(file: Option<&Path>, entry: &MapEntry) -> Result<Section, LineError> {
        Ok(Section { file: file.map(Path::to_path_buf), entries: entry.map()?.to_vec() })
    }

    /// Reads a whole file in YAML or TOML, which the name or the first line determines: for a
    /// program that keeps its own settings in such a file.
    ///
    /// # Errors
    /// [`NodeError::File`] unless it is a readable file of at most 1 MiB; [`NodeError::Config`]
    /// with the line.
    pub fn load(path: impl AsRef<Path>) -> Result<Section, NodeError> {
        let path = path.as_ref();
        let text = super::read_file(path)?;
        let whole = match Form::of(path, &text) {
            Form::Toml => super::toml::read(&text),
            Form::Yaml => super::yaml::read(&text),
            Form::Modprobe => Err(LineError::new(1, "form", "YAML or TOML is read here")),
        };
        let entries = whole.and_then(|item| {
            let entries = item.map().map(<[MapEntry]>::to_vec);
            entries.ok_or_else(|| LineError::new(item.line, "form", "expected 'name: value' lines"))
        });
        let entries = entries.map_err(|fault| fault.of(Some(path)))?;
        Ok(Section { file: Some(path.to_path_buf()), entries })
    }

    /// Returns the settings of the table, in the order of the text. Keys are unique.
    pub fn settings(&self) -> impl Iterator<Item = Setting<'_>> {
        self.entries.iter().map(|entry| Setting { file: self.file.as_deref(), entry })
    }
}

impl<'a> Setting<'a> {
    /// Returns the name before the colon.
    #[must_use]
    pub fn key(&self) -> &'a str {
        &self.entry.key
    }

    /// Returns the value as written, including numbers and switches.
    ///
    /// # Errors
    /// [`NodeError::Config`] if there are several values, or none.
    pub fn text(&self) -> Result<&'a str, NodeError> {
        self.entry.text().map_err(|fault| fault.of(self.file))
    }

    /// Returns the values of a list; a single value is a list of one.
    ///
    /// # Errors
    /// [`NodeError::Config`] if one of them is a list or a table.
    pub fn words(&self) -> Result<Vec<&'a str>, NodeError> {
        let words = self.entry.words().map_err(|fault| fault.of(self.file))?;
        Ok(words.into_iter().map(|(_, word)| word).collect())
    }

    /// Returns the tables of a list `[[…]]`; a single table is a list of one.
    ///
    /// # Errors
    /// [`NodeError::Config`] for anything else.
    pub fn tables(&self) -> Result<Vec<Section>, NodeError> {
        let no_table = |item: &LocatedValue| {
            let reason = "expected a table";
            LineError::new(item.line, self.key(), reason).of(self.file)
        };
        let table = |item: &LocatedValue| match &item.value {
            Value::Map(entries) => {
                Ok(Section { file: self.file.map(Path::to_path_buf), entries: entries.clone() })
            }
            _ => Err(no_table(item)),
        };
        self.entry.items().iter().map(table).collect()
    }

    /// Returns the error for an invalid value, with file, line and key.
    #[must_use]
    pub fn refuse(&self, reason: impl Into<String>) -> NodeError {
        self.entry.fault(reason).of(self.file)
    }

    /// Returns a whole number within these bounds.
    ///
    /// # Errors
    /// [`NodeError::Config`] with the bounds.
    pub fn number(&self, min: u64, max: u64) -> Result<u64, NodeError> {
        let text = self.text()?;
        let digits = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        let number =
            u64::from_str_radix(digits.0, digits.1).ok().filter(|number| (min..=max).contains(number));
        let refuse = || self.refuse(format!("expected a whole number from {min} to {max}, not '{text}'"));
        number.ok_or_else(refuse)
    }

    /// Returns a switch: `true` or `false`.
    ///
    /// # Errors
    /// [`NodeError::Config`] for anything else.
    pub fn switch(&self) -> Result<bool, NodeError> {
        let text = self.text()?;
        text.parse().map_err(|_| self.refuse(format!("expected true or false, not '{text}'")))
    }

    /// Returns the file and the line on which the setting begins.
    #[must_use]
    pub fn line(&self) -> SourceLine {
        SourceLine { file: self.file.map(Path::to_path_buf), line: self.entry.line }
    }

    /// Returns the error for an unknown name; `known` are the valid names.
    #[must_use]
    pub fn unknown(&self, known: &[&str]) -> NodeError {
        self.refuse(format!("no such setting; there are: {}", known.join(", ")))
    }
}

/// The table of the helper process.
pub(super) const HELPER: &str = "helper";

//! Configurations as texts: three forms with the same result.
//!
//! | form | module | known from |
//! | --- | --- | --- |
//! | YAML | `yaml`, `lnetctl` | `lnetctl export`, `/etc/lnet.conf` |
//! | `options lnet …` | `modprobe` | `/etc/modprobe.d/lustre.conf` |
//! | TOML | `toml`, `own` | nlx's own, with the names of the other two |
//!
//! Other users may write the files. So their length and depth are limited, ambiguous texts are
//! errors (duplicate keys, unknown names, aliases), and every error has its line.

mod doc;
mod ip2nets;
mod lnetctl;
mod modprobe;
mod own;
mod section;
mod toml;
mod tunables;
mod write;
mod yaml;

use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lnet_api::Errno;
use lnet_nid::printable;
use nix::fcntl::OFlag;

use crate::error::{errno_text, printable_path};
use crate::{NodeConfig, NodeError};
use doc::{LineError, MAX_CONFIG_BYTES, MAX_WORD_CHARS, MapEntry, line_of, shorten};
pub use section::{Section, Setting};
pub use tunables::Tunable;
use tunables::TunableRefusal;

/// A line of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The file; `None` for a text that is not from a file.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: usize,
}

/// `lnet.conf, line 3`
impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{}, line {}", printable_path(file), self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// A known setting without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigWarning {
    /// The line of the setting; `None` if it is not from a text.
    pub at: Option<SourceLine>,
    /// The name of the setting.
    pub name: String,
    /// The reason why the setting has no effect.
    pub reason: String,
}

/// `lnet.conf, line 3: 'routes' has no effect: nlx uses no routers`
impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.at {
            write!(f, "{at}: ")?;
        }
        write!(f, "'{}' has no effect: {}", printable(&self.name), printable(&self.reason))
    }
}

/// The forms of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Yaml,
    Toml,
    Modprobe,
}

impl Form {
    /// Returns the form: determined by the file's name, otherwise by the text's first line.
    fn of(path: &Path, text: &str) -> Form {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => Form::Yaml,
            Some("toml") => Form::Toml,
            _ => Form::of_text(text),
        }
    }

    fn of_text(text: &str) -> Form {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let first = lines.next().unwrap_or_default();
        let word = first.split_whitespace().next().unwrap_or_default();
        match word {
            word if modprobe::COMMANDS.contains(&word) => Form::Modprobe,
            word if word.starts_with('[') => Form::Toml,
            _ => Form::Yaml,
        }
    }
}

impl NodeConfig {
    /// Reads a configuration file: `lnet.conf` (YAML), `lustre.conf` (the lines of modprobe), or
    /// nlx's TOML; see `docs/configuration.md`. The file name determines the form (`.yaml`, `.yml`,
    /// `.toml`), otherwise the first line.
    ///
    /// Later calls on the result override the file, for example for flags of a command line.
    /// Settings in the file without effect in nlx are in [`NodeConfig::warnings`].
    ///
    /// # Errors
    /// [`NodeError::File`] unless it is a readable file of at most 1 MiB; [`NodeError::Config`]
    /// with the line and the key.
    pub fn load(path: impl AsRef<Path>) -> Result<NodeConfig, NodeError> {
        NodeConfig::new().and_load(path)
    }

    /// Reads another file in addition, as `lnet.conf` after `lustre.conf`: networks add up, other
    /// settings replace earlier ones.
    ///
    /// # Errors
    /// The errors of [`NodeConfig::load`].
    pub fn and_load(self, path: impl AsRef<Path>) -> Result<NodeConfig, NodeError> {
        let path = path.as_ref();
        let text = read_file(path)?;
        self.read(&text, Form::of(path, &text), Some(path))
    }

    /// Reads a configuration in any of the forms, which the first line determines.
    ///
    /// # Errors
    /// [`NodeError::Config`] with the line and the key.
    pub fn from_text(text: &str) -> Result<NodeConfig, NodeError> {
        NodeConfig::new().read(text, Form::of_text(text), None)
    }

    /// Reads a configuration in the form of `lnetctl export`.
    ///
    /// ```
    /// let config = lnet_node::NodeConfig::from_yaml(r#"
    /// net:
    ///     - net type: tcp
    ///       local NI(s):
    ///         - nid: 127.0.0.13@tcp
    ///           tunables:
    ///               peer_credits: 16
    ///           CPT: "[0]"
    /// "#)?;
    /// assert_eq!(config.nids()?[0].to_string(), "127.0.0.13@tcp");
    /// # Ok::<(), lnet_node::NodeError>(())
    /// ```
    ///
    /// # Errors
    /// [`NodeError::Config`] with the line and the key.
    pub fn from_yaml(text: &str) -> Result<NodeConfig, NodeError> {
        NodeConfig::new().read(text, Form::Yaml, None)
    }

    /// Reads a configuration in TOML.
    ///
    /// ```
    /// let config = lnet_node::NodeConfig::from_toml(r#"
    /// [[net]]
    /// name = "tcp1"
    /// interfaces = ["127.0.0.14"]
    /// peer_credits = 16
    ///
    /// [lnet]
    /// accept_port = 9988
    /// "#)?;
    /// assert_eq!(config.nids()?[0].to_string(), "127.0.0.14@tcp1");
    /// # Ok::<(), lnet_node::NodeError>(())
    /// ```
    ///
    /// # Errors
    /// [`NodeError::Config`] with the line and the key.
    pub fn from_toml(text: &str) -> Result<NodeConfig, NodeError> {
        NodeConfig::new().read(text, Form::Toml, None)
    }

    /// Reads a configuration written as options of kernel modules.
    ///
    /// ```
    /// let text = r#"options lnet networks="tcp(127.0.0.15)" accept=all"#;
    /// let config = lnet_node::NodeConfig::from_modprobe(text)?;
    /// assert_eq!(config.nids()?[0].to_string(), "127.0.0.15@tcp");
    /// # Ok::<(), lnet_node::NodeError>(())
    /// ```
    ///
    /// # Errors
    /// [`NodeError::Config`] with the line and the key.
    pub fn from_modprobe(text: &str) -> Result<NodeConfig, NodeError> {
        NodeConfig::new().read(text, Form::Modprobe, None)
    }

    /// Sets a tunable by its module and name, for example `set("ksocklnd", "conns_per_peer", "4")`;
    /// see [`Tunable`].
    ///
    /// # Errors
    /// [`NodeError::Tunable`] for an unknown name or an invalid value. Nothing changes in this
    /// case.
    pub fn set(&mut self, module: &str, name: &str, value: &str) -> Result<(), NodeError> {
        let wrong = |TunableRefusal { reason, errno }| {
            let name = format!("{module} {name}");
            NodeError::Tunable { name, value: value.into(), reason, errno }
        };
        let tunable = Tunable::find(module, name).ok_or_else(|| wrong(unknown(module).into()))?;
        if !tunable.set(self, value).map_err(wrong)? {
            let (name, reason) = (name.to_string(), tunable.meaning().to_string());
            self.warnings.push(ConfigWarning { at: None, name, reason });
        }
        Ok(())
    }

    /// Returns the settings without effect, in the order in which they were configured.
    #[must_use]
    pub fn warnings(&self) -> &[ConfigWarning] {
        &self.warnings
    }

    /// Returns the table `[helper]` of a TOML file, if there was one. It belongs to the helper
    /// process, and is not checked here. That of a second file replaces it.
    #[must_use]
    pub fn helper(&self) -> Option<&Section> {
        self.helper.as_ref()
    }

    /// Returns the configuration in the form of `lnetctl export`: networks, and the value of every
    /// tunable with an effect. Reading it configures the same node. Settings without a place in
    /// `lnet.conf` are under `options`. Timeouts are in whole seconds; a partition table created by
    /// a program is not part of it.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        write::yaml(self)
    }

    fn read(mut self, text: &str, form: Form, file: Option<&Path>) -> Result<NodeConfig, NodeError> {
        let mut reading = Reading { config: &mut self, file };
        let outcome = match form {
            Form::Yaml => yaml::read(text).and_then(|whole| lnetctl::apply(&mut reading, &whole)),
            Form::Toml => toml::read(text).and_then(|whole| own::apply(&mut reading, &whole)),
            Form::Modprobe => modprobe::read(text).and_then(|all| reading.assign(all)),
        };
        outcome.map_err(|fault| fault.of(file))?;
        Ok(self)
    }
}

/// Returns the error text for an unknown module or tunable.
fn unknown(module: &str) -> String {
    let near: Vec<&str> =
        Tunable::all().filter(|tunable| tunable.module() == module).map(Tunable::name).collect();
    match near.is_empty() {
        true => format!("no such module: '{module}'; there are lnet, ksocklnd, nlx"),
        false => format!("no such tunable; {module} has: {}", near.join(", ")),
    }
}

fn read_file(path: &Path) -> Result<String, NodeError> {
    let refuse_line =
        |line, reason: String, errno| NodeError::File { file: path.into(), line, reason, errno };
    let refuse = |reason, errno| refuse_line(None, reason, errno);
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        refuse(format!("it cannot be read: {}", errno_text(errno)), errno)
    };
    // Non-blocking, because opening a pipe or a terminal would otherwise block.
    let flags = OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(refuse("it is no regular file".into(), Errno::EINVAL));
    }
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > MAX_CONFIG_BYTES {
        let reason = format!("it is longer than {MAX_CONFIG_BYTES} bytes");
        return Err(refuse(reason, Errno::EFBIG));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = line_of(&String::from_utf8_lossy(&error.as_bytes()[..valid]), valid);
        refuse_line(Some(line), "it is not UTF-8".into(), Errno::EILSEQ)
    })
}

/// A configuration while a text is read into it.
struct Reading<'a> {
    config: &'a mut NodeConfig,
    file: Option<&'a Path>,
}

impl Reading<'_> {
    /// Records that a key has no effect.
    fn warn(&mut self, line: usize, name: &str, reason: &str) {
        let at = Some(SourceLine { file: self.file.map(Path::to_path_buf), line });
        let (name, reason) = (shorten(name.to_string(), MAX_WORD_CHARS), reason.to_string());
        self.config.warnings.push(ConfigWarning { at, name, reason });
    }

    fn tunable(&mut self, module: &str, entry: &MapEntry) -> Result<(), LineError> {
        self.set(module, &entry.key, entry.text()?, entry.line)
    }

    fn set(&mut self, module: &str, name: &str, value: &str, line: usize) -> Result<(), LineError> {
        let tunable =
            Tunable::find(module, name).ok_or_else(|| LineError::new(line, name, unknown(module)))?;
        let acts =
            tunable.set(self.config, value).map_err(|refusal| LineError::refused(line, name, refusal))?;
        if !acts {
            self.warn(line, name, tunable.meaning());
        }
        Ok(())
    }

    /// Applies the tunables of a module, one per entry.
    fn module(&mut self, module: &MapEntry) -> Result<(), LineError> {
        if !Tunable::all().any(|tunable| tunable.module() == module.key) {
            return Err(module.fault(unknown(&module.key)));
        }
        module.map()?.iter().try_for_each(|entry| self.tunable(&module.key, entry))
    }

    /// Applies the lines of modprobe. The last value of a name counts, as for a kernel module.
    fn assign(&mut self, all: Vec<modprobe::Assignment>) -> Result<(), LineError> {
        for modprobe::Assignment { line, module, name, value } in all {
            let is_known =
                module == tunables::LIBCFS || Tunable::all().any(|tunable| tunable.module() == module);
            if is_known {
                self.set(&module, &name, &value, line)?;
            } else {
                self.warn(line, &format!("{module} {name}"), "the module is no part of LNet");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

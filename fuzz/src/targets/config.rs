//! A node's configuration: files from other programs or people.

use lnet_node::{NodeConfig, NodeError};

use super::{Outcome, same};

/// Length of the longest text: several times that of an exported configuration of eight networks.
pub(super) const TEXT_MAX: usize = 8192;

pub(super) fn yaml(bytes: &[u8]) -> Outcome {
    read(bytes, NodeConfig::from_yaml)
}

pub(super) fn toml(bytes: &[u8]) -> Outcome {
    read(bytes, NodeConfig::from_toml)
}

pub(super) fn modprobe(bytes: &[u8]) -> Outcome {
    read(bytes, NodeConfig::from_modprobe)
}

/// Reads a text. Checks that it is refused with a line number within it, or gives a configuration
/// that reads back from its printed form.
fn read(bytes: &[u8], read: fn(&str) -> Result<NodeConfig, NodeError>) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    match read(&text) {
        Ok(config) => {
            let printed = config.to_yaml();
            let again = NodeConfig::from_yaml(&printed).map(|again| again.to_yaml());
            same(again.as_ref(), Ok(&printed), "what is printed");
            let names: Vec<&str> =
                config.warnings().iter().map(|warning| warning.name.as_str()).take(4).collect();
            Outcome::of((config.nets().len().min(4), names))
        }
        Err(NodeError::Config { at, reason, .. }) => {
            let lines = 1 + text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
            assert!((1..=lines + 1).contains(&at.line), "line {} of {lines}", at.line);
            assert!(!reason.is_empty());
            // Reasons repeat words of the text; the part before them does not.
            Outcome::of(reason.split(['\'', ':']).next())
        }
        Err(error) => panic!("a text alone gives no such error: {error}"),
    }
}

pub(super) fn yaml_seeds() -> Vec<Vec<u8>> {
    let exported = include_bytes!("../../../lnet/node/src/conf/tests/exported.yaml").to_vec();
    vec![exported, NodeConfig::new().to_yaml().into_bytes(), documented("yaml")]
}

pub(super) fn toml_seeds() -> Vec<Vec<u8>> {
    vec![
        documented("toml"),
        b"lnet.accept_port = 9988\n[ksocklnd]\nnagle = true\nmin_bulk = 0x800\n".to_vec(),
    ]
}

pub(super) fn modprobe_seeds() -> Vec<Vec<u8>> {
    vec![
        documented("modprobe"),
        b"options libcfs \"cpu_pattern=0[0-1] 1[2,3]\"\nsoftdep lnet pre: x\n".to_vec(),
    ]
}

/// Returns the documentation's example in a language.
fn documented(language: &str) -> Vec<u8> {
    let page = include_str!("../../../docs/configuration.md");
    let opening = format!("```{language}\n");
    let rest = page.split(&opening).nth(1).expect("the page has an example of each");
    rest.split("```").next().unwrap_or_default().as_bytes().to_vec()
}

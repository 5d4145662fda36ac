//! The options of all nodes of a process.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lnet_cpt::CptTable;
use lnet_node::{AcceptPolicy, NodeConfig};

#[derive(Clone)]
pub(crate) struct Options {
    /// The network of each node.
    pub(crate) nodes: Vec<String>,
    /// Descriptors that the process may open once its nodes have started.
    pub(crate) descriptors: Option<u64>,
    config: NodeConfig,
}

impl Options {
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options { nodes: Vec::new(), descriptors: None, config: NodeConfig::new() };
        for arg in args {
            let (key, value) = arg.split_once('=').ok_or_else(|| format!("{arg:?} is no key=value"))?;
            options = options.set(key, value)?;
        }
        Ok(options)
    }

    fn set(mut self, key: &str, value: &str) -> Result<Options, String> {
        let config = &mut self.config;
        match key {
            "node" => self.nodes.push(value.to_string()),
            "descriptors" => self.descriptors = Some(number(key, value)?),
            "port" => self.config = self.config.accept_port(number(key, value)?),
            "accept" => self.config = self.config.accept(policy(value)?),
            "partitions" => {
                let table =
                    CptTable::virtual_parts(number(key, value)?).map_err(|error| error.to_string())?;
                self.config = self.config.partitions(Arc::new(table));
            }
            "transaction_timeout" => {
                self.config = self.config.transaction_timeout(Duration::from_secs(number(key, value)?));
            }
            "sock_timeout" => config.tcp().timeout_s = number(key, value)?,
            "accept_timeout" => config.tcp().accept_timeout_s = number(key, value)?,
            "min_reconnectms" => config.tcp().min_reconnect_ms = number(key, value)?,
            "max_reconnectms" => config.tcp().max_reconnect_ms = number(key, value)?,
            "keepalive" => config.tcp().keepalive_s = number(key, value)?,
            "keepalive_idle" => config.tcp().keepalive_idle_s = number(key, value)?,
            "keepalive_intvl" => config.tcp().keepalive_intvl_s = number(key, value)?,
            "keepalive_count" => config.tcp().keepalive_count = number(key, value)?,
            "conns_per_peer" => config.tcp().conns_per_peer = number(key, value)?,
            "peer_credits" => config.tcp().peer_credits = number(key, value)?,
            "tx_buffer_size" => config.tcp().tx_buffer_size = number(key, value)?,
            _ => return Err(format!("there is no option {key}")),
        }
        Ok(self)
    }

    /// Returns the configuration of one of the nodes.
    pub(crate) fn config(&self, node: usize) -> Result<NodeConfig, String> {
        self.config.clone().net(&self.nodes[node]).map_err(|error| error.to_string())
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: not a number"))
}

fn policy(value: &str) -> Result<AcceptPolicy, String> {
    match value {
        "secure" => Ok(AcceptPolicy::Secure),
        "all" => Ok(AcceptPolicy::All),
        "none" => Ok(AcceptPolicy::None),
        "hello" => Ok(AcceptPolicy::Hello),
        _ => Err(format!("accept={value}: no such policy")),
    }
}

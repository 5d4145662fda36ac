//! A running `nlxd`.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A running `nlxd`, which is killed when the test ends.
pub struct Helper {
    child: Child,
    pub socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Helper {
    /// Starts a helper with this network and port, and waits until it serves.
    pub fn start(net: &str, port: u16) -> Helper {
        Helper::start_on(&["--net", net, "--accept-port", &port.to_string()])
    }

    /// Starts a helper with any options.
    pub fn start_on(options: &[&str]) -> Helper {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nlxd.sock");
        let mut command = Command::new(env!("CARGO_BIN_EXE_nlxd"));
        command.args(options).arg("--socket").arg(&socket);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving "), "{line:?}");
        Helper { child, socket, _folder: folder }
    }

    /// Returns whether the helper has no clients and no leftovers of departed clients, by the
    /// output of `nlx status --json`.
    pub fn is_idle(&self, status: &Value) -> bool {
        let own = &self.node(status)["helper"];
        let counts = ["clients", "tms", "buffers", "bytes", "operations"].map(|count| &own[count]);
        let left = own["leftovers"].as_object().unwrap_or_else(|| panic!("{own}"));
        assert!(!left.is_empty() && own["totals"].is_object(), "{own}");
        counts
            .into_iter()
            .chain(left.values())
            .all(|count| count.as_u64().unwrap_or_else(|| panic!("{own}")) == 0)
    }

    /// Returns the helper's node from the output of `nlx status --json`.
    pub fn node<'a>(&self, status: &'a Value) -> &'a Value {
        let nodes = status["nodes"].as_array().unwrap_or_else(|| panic!("{status}"));
        let own = nodes.iter().find(|node| node["helper"]["socket"].as_str() == self.socket.to_str());
        own.unwrap_or_else(|| panic!("it is not shown: {status}"))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! A helper process: a node whose clients are other processes.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use lnet_node::Node;
use nix::fcntl::AT_FDCWD;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::Pid;
use nlx::Domain;
use nlx_helper::service::{self, ServiceConfig, ServingThreads};
use nlx_helper::{Host, HostConfig};

use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::ours::nodes::Nodes;
use crate::server::{self, Server};

pub(crate) const NAME: &str = "helper";

/// A running helper, on the core of a measurement's server.
pub(crate) struct Helper {
    server: Server,
    path: PathBuf,
    own: Ipv4Addr,
}

impl Helper {
    /// Starts a helper with the node at this address.
    pub(crate) fn start(cores: Cores, nodes: Nodes, own: Ipv4Addr) -> Result<Helper> {
        let path = std::env::temp_dir().join(format!("nlx-bench-{}-{own}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let server = Server::start(NAME, cores, &nodes.args(&[&own, &path.display()]))?;
        Ok(Helper { server, path, own })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the address of its node.
    pub(crate) fn address(&self) -> String {
        self.own.to_string()
    }

    pub(crate) fn pid(&self) -> Pid {
        self.server.pid()
    }

    /// Opens a domain as a client of this helper.
    pub(crate) fn domain(&self) -> Result<Domain> {
        through(&self.path)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens a domain as a client of the helper at this path.
pub(crate) fn through(path: &Path) -> Result<Domain> {
    Domain::helper_at(path).map_err(BenchError::nlx("attach to a helper"))
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let (nodes, rest) = Nodes::parse(args)?;
    let parsed =
        rest.split_first_chunk().and_then(|([own, path], _)| Some((own.parse().ok()?, Path::new(path))));
    let (own, path) = parsed.ok_or_else(|| BenchError::Server {
        name: NAME.to_string(),
        problem: format!("was given '{}', not an address and a path", rest.join(" ")),
    })?;
    many_descriptors();
    // As in `nlxd`: the serving threads unmap nothing.
    lnet_region::closer::install().map_err(BenchError::nlx("start the thread that closes memory"))?;
    let node = Node::start(&nodes.config(own)?).map_err(BenchError::nlx("start a node"))?;
    let host = Host::new(node.lnet(), node.drive(), HostConfig::default());
    // Clients of every user may connect.
    let everybody =
        || fchmodat(AT_FDCWD, path, Mode::from_bits_truncate(0o666), FchmodatFlags::FollowSymlink);
    let listener = service::bind_with(path, everybody).map_err(BenchError::system("listen for clients"))?;
    let _service = ServingThreads::start(host, listener, ServiceConfig::default())
        .map_err(BenchError::system("serve clients"))?;
    server::ready("")?;
    // The process ends with its client.
    loop {
        std::thread::park();
    }
}

/// Raises the limit of descriptors to its maximum: each client uses some.
pub(super) fn many_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

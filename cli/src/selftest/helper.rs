//! The helpers of a test: processes that run the network for its nodes.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use nlx::Domain;

use super::process::{self, Peer};
use crate::args::{CpuArgs, HelperArgs, SpinArg};
use crate::failure::{Context, Failure};

/// The helper of a node: started by the test, and ended when this is dropped, or one that runs
/// already.
pub(super) struct Helper {
    socket: PathBuf,
    /// The spin limit of its clients.
    spin: SpinArg,
    own: Option<OwnProcess>,
}

/// A process started by the test, and the folder of its socket.
struct OwnProcess {
    child: Child,
    folder: PathBuf,
}

impl Helper {
    /// Uses a helper that runs already.
    pub(super) fn running(socket: &Path, spin: SpinArg) -> Helper {
        Helper { socket: socket.to_path_buf(), spin, own: None }
    }

    /// Starts a helper with this network.
    pub(super) fn start(net: &str, port: Option<u16>, cpus: &CpuArgs) -> Result<Helper, Failure> {
        let folder = nix::unistd::mkdtemp(&std::env::temp_dir().join("nlx-selftest-XXXXXX"))
            .context("cannot make a folder for a helper's socket")?;
        let socket = folder.join("nlxd.sock");
        let started = spawn(&socket, net, port, cpus);
        let (child, output) = started.inspect_err(|_| drop(std::fs::remove_dir(&folder)))?;
        let helper = Helper { socket, spin: cpus.spin, own: Some(OwnProcess { child, folder }) };
        process::first_line(output, "the helper")?;
        Ok(helper)
    }

    /// Starts a server process behind this helper.
    pub(super) fn peer(&self) -> Result<Peer, Failure> {
        Peer::behind(&self.socket, self.spin)
    }

    /// Opens a domain on the helper's network.
    pub(super) fn domain(&self) -> Result<Domain, Failure> {
        domain(&self.socket, self.spin)
    }

    /// Fails if the process has ended, which it never does by itself.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        match &mut self.own {
            Some(own) => process::check(&mut own.child, "a helper"),
            None => Ok(()),
        }
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // The helper's clients are gone, so it has nothing to save. An error means that it has
        // ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The folder contains at most its socket.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Opens a domain on the network of the helper with this socket.
pub(super) fn domain(socket: &Path, spin: SpinArg) -> Result<Domain, Failure> {
    let mut options = nlx::HelperOptions::at(socket).name("nlx selftest");
    if let Some(time) = spin.time() {
        options = options.spin(time);
    }
    Domain::through(&options).map_err(|error| {
        Failure::at("helper", error.errno(), format!("{}: {error}", socket.display()))
            .hint("is nlxd running, with that socket, and does it admit this user? 'nlx status' shows it")
    })
}

/// Starts the helper program beside this one, through a process of this program that ties itself to
/// its parent and then executes the helper.
fn spawn(
    socket: &Path,
    net: &str,
    port: Option<u16>,
    cpus: &CpuArgs,
) -> Result<(Child, ChildStdout), Failure> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut command = Command::new(&program);
    command.arg("selftest-helper").arg("--program").arg(program.with_file_name("nlxd"));
    command.arg("--socket").arg(socket).args(["--net", net]).args(cpus.to_args());
    command.args(port.into_iter().flat_map(|port| ["--accept-port".to_owned(), port.to_string()]));
    // A terminal's Ctrl-C is for the console, which ends this process when it is done.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let mut child = command.spawn().context("cannot start a helper")?;
    let output = child.stdout.take().ok_or_else(|| Failure::new("the helper has no output"))?;
    Ok((child, output))
}

/// Executes the helper. It is killed when the console ends in any way.
pub(crate) fn run_helper(args: &HelperArgs) -> Result<(), Failure> {
    process::tie_to_parent()?;
    let mut command = Command::new(&args.program);
    command.arg("--socket").arg(&args.socket).args(["--net", &args.net]);
    if let Some(port) = args.accept_port {
        // The network uses one of the two.
        command.args(["--accept-port", &port.to_string(), "--service", &port.to_string()]);
    }
    let error = command.args(args.cpus.to_args()).exec();
    Err(Failure::new(format!("cannot run {}: {error}", args.program.display()))
        .hint("nlxd is installed beside nlx: 'cargo build -p nlx-cli' builds both"))
}

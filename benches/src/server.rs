//! The other process of a measurement: another process of this program, which runs a server.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use crate::cores::{self, Cores};
use crate::error::{BenchError, Result};
use crate::{anchors, ours};

/// A server: called with the cores and its arguments, it calls [`ready`] and serves until its
/// client ends.
pub(crate) type Serve = fn(Cores, &[String]) -> Result<()>;

/// Timeout of any single step of a measurement.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Prefix of the line that a server reports to its client.
const READY: &str = "ready ";

/// A running server. It is killed when this is dropped, and ends when this process does, because it
/// watches its standard input. Must be created after the objects that communicate with it, and so
/// dropped before: a server is killed, not left behind with broken connections.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    // Closed by the system if this process dies, which ends the server.
    _stdin: Option<ChildStdin>,
    name: String,
    reported: String,
}

impl Server {
    /// Starts this program as the server `name`, and waits until it is ready.
    pub(crate) fn start<A: ToString>(name: &str, cores: Cores, args: &[A]) -> Result<Server> {
        let program = std::env::current_exe().map_err(BenchError::system("find this program"))?;
        let mut child = Command::new(program)
            .args(["serve", name, &cores.to_string()])
            .args(args.iter().map(A::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(BenchError::system("start a server"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(BenchError::system("read from a server"))?;
        }
        // Created before the line is checked, so that a server with an unexpected line is killed
        // too.
        let mut server =
            Server { _stdin: child.stdin.take(), child, name: name.to_string(), reported: String::new() };
        match line.trim_end().strip_prefix(READY.trim_end()) {
            Some(reported) => server.reported = reported.trim_start().to_string(),
            None if line.is_empty() => return Err(wrong(name, "ended before it was ready")),
            None => return Err(wrong(name, &format!("said '{}', not '{READY}…'", line.trim_end()))),
        }
        Ok(server)
    }

    /// Returns the text that it reported when it was ready, for instance its address.
    pub(crate) fn reported(&self) -> &str {
        &self.reported
    }

    /// Waits until the server has done all its work and ended by itself.
    pub(crate) fn finish(mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < STEP_TIMEOUT {
            match self.child.try_wait().map_err(BenchError::system("wait for a server"))? {
                None => std::thread::sleep(Duration::from_millis(1)),
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(wrong(&self.name, &format!("has failed: {status}"))),
            }
        }
        Err(BenchError::TimedOut { event: "the end of a server", seconds: STEP_TIMEOUT.as_secs() })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already, when its client did.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wrong(name: &str, problem: &str) -> BenchError {
    BenchError::Server { name: name.to_string(), problem: problem.to_string() }
}

/// Runs a server: implements `nlx-bench serve`.
pub(crate) fn serve(name: &str, cores: Cores, args: &[String]) -> Result<()> {
    let all = anchors::SERVERS.iter().chain(ours::SERVERS);
    let (_, serve) = all
        .clone()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| BenchError::UnknownServer { name: name.to_string() })?;
    end_with_the_client();
    cores::pin(cores.server)?;
    serve(cores, args)
}

/// Reports to the client that the server is ready, and how to reach it.
pub(crate) fn ready(reported: impl std::fmt::Display) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}{reported}")
        .and_then(|()| stdout.flush())
        .map_err(BenchError::system("report to the client"))
}

/// Ends this process when its standard input ends, which the client holds open while it runs.
fn end_with_the_client() {
    std::thread::spawn(|| {
        let mut line = String::new();
        while matches!(std::io::stdin().read_line(&mut line), Ok(1..)) {
            line.clear();
        }
        std::process::exit(0);
    });
}

//! A helper, and honest clients that work while it is attacked.

#![allow(dead_code, reason = "each test program has its own copy of this module and uses a part of it")]

use std::collections::HashSet;
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nlx_tests::client::Client;
use nlx_tests::client::pair::Pair;
use nlx_tests::client::points::Points;
use nlx_tests::client::wire;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::peer::{HUNG, PORT, address, hung_unless};

/// The lock of the machine: a test that measures takes it for writing, so that no other test runs.
static MACHINE: RwLock<()> = RwLock::new(());

pub(crate) fn machine_to_itself() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Builds the workspace's programs, and returns the path of one.
pub(crate) fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // The guest has no cargo: the programs are built before it starts.
        if std::env::var_os("NLX_GUEST").is_none() {
            // Does nothing when the tests of the whole workspace are run.
            let args = "build --profile test --locked --offline --package nlx-cli --bins";
            let cargo = Command::new(env!("CARGO")).args(args.split(' ')).output().unwrap();
            assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
        }
        // This program is in `deps`.
        std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf()
    });
    built.join(name)
}

/// The socket of the packaged unit.
const UNIT_SOCKET: &str = "/run/nlx/nlxd.sock";

/// Shell commands that pass a process its standard input as systemd passes a listening socket
/// (sd_listen_fds(3)).
const HANDED_OVER: &str = "exec 3<&0 0</dev/null && export LISTEN_PID=$$ LISTEN_FDS=1 && ";

/// The parameters of a helper.
#[derive(Debug, Clone)]
pub(crate) struct HelperStart {
    /// Further lines of its configuration file.
    pub(crate) config: String,
    /// Shell commands that set its limits.
    pub(crate) limits: String,
    /// Further arguments.
    pub(crate) args: Vec<String>,
    /// The user that it runs as: this process's user if `None`; only root can start it as another
    /// one.
    pub(crate) uid: Option<u32>,
    /// Set if the helper is the packaged unit of the systemd that `tests/systemd/run` has started,
    /// with that unit's user, limits and sandbox.
    pub(crate) unit: bool,
    /// The listening socket that it is passed, as systemd does it, and its path.
    pub(crate) listener: Option<(Arc<OwnedFd>, PathBuf)>,
    /// The network type of its NID, `tcp` or `o2ib`.
    pub(crate) net: &'static str,
    pub(crate) address: Ipv4Addr,
}

impl HelperStart {
    /// Creates a helper with the defaults, at an unused address.
    pub(crate) fn new() -> HelperStart {
        HelperStart {
            config: String::new(),
            limits: "true".to_string(),
            args: Vec::new(),
            uid: None,
            unit: false,
            listener: None,
            net: "tcp",
            address: address(),
        }
    }

    /// Returns the command of the process; its socket and configuration are in `dir`.
    fn command(&self, dir: &Path) -> Command {
        let program = match self.uid {
            Some(_) => dir.join("nlxd"),
            None => program("nlxd"),
        };
        let mut command = if self.unit {
            let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/systemd/unit"));
            command.arg(dir.join("log")).arg(program);
            command
        } else {
            let mut command = Command::new("sh");
            let handed = self.listener.as_ref().map_or("", |_| HANDED_OVER);
            command.args(["-c", &format!("{handed}{} && exec \"$0\" \"$@\"", self.limits)]).arg(program);
            command.arg("--socket").arg(self.socket(dir));
            if let Some(uid) = self.uid {
                // This also drops root's supplementary groups.
                command.uid(uid).gid(uid).current_dir(dir).env_remove("XDG_RUNTIME_DIR");
            }
            command
        };
        command.arg("--config").arg(dir.join("nlxd.toml"));
        command.args(["--net", &format!("{}({})", self.net, self.address)]);
        // Ordinary users may not use ports below 1024.
        let port = if self.net == "o2ib" { "--service" } else { "--accept-port" };
        command.args([port, &PORT.to_string()]).args(&self.args);
        command
    }

    fn socket(&self, dir: &Path) -> PathBuf {
        match &self.listener {
            Some((_, path)) => path.clone(),
            None if self.unit => UNIT_SOCKET.into(),
            None => dir.join("nlxd.sock"),
        }
    }

    /// Makes a folder for the socket, the configuration and the log, owned by the helper's user.
    /// That user and the clients' users may not be able to access cargo's target folder, so the
    /// program is copied.
    fn new_dir(&self) -> Arc<TempDir> {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("nlxd.toml"), &self.config).unwrap();
        if let Some(uid) = self.uid {
            install(&program("nlxd"), dir.path());
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(uid)).unwrap();
        }
        Arc::new(dir)
    }
}

/// Puts a program that every user can run into a folder, and returns its path there.
pub(crate) fn install(program: &Path, folder: &Path) -> PathBuf {
    let path = folder.join(program.file_name().unwrap());
    std::fs::hard_link(program, &path).or_else(|_| std::fs::copy(program, &path).map(drop)).unwrap();
    path
}

/// A running `nlxd`; it is killed when the test ends.
pub(crate) struct Helper {
    /// The helper, or the process that waits for its unit.
    child: Child,
    pid: u32,
    dir: Arc<TempDir>,
    launch: HelperStart,
    pub(crate) address: Ipv4Addr,
    /// The lock that excludes tests that measure.
    _machine: Option<RwLockReadGuard<'static, ()>>,
}

impl Helper {
    /// Starts a helper with the defaults.
    pub(crate) fn start() -> Helper {
        Helper::configured("")
    }

    /// Starts a helper with further lines in its configuration.
    pub(crate) fn configured(more: &str) -> Helper {
        Helper::launch(HelperStart { config: more.to_string(), ..HelperStart::new() }, Some(machine()))
    }

    /// Starts a helper that is passed the listening socket at this path.
    pub(crate) fn at(listener: OwnedFd, path: PathBuf) -> Helper {
        let listener = Some((Arc::new(listener), path));
        Helper::launch(HelperStart { listener, ..HelperStart::new() }, Some(machine()))
    }

    /// Starts a helper from a shell that executes these commands first.
    pub(crate) fn limited(limits: &str) -> Helper {
        Helper::launch(HelperStart { limits: limits.to_string(), ..HelperStart::new() }, Some(machine()))
    }

    /// Starts a helper from a shell that executes these commands first, with further lines in its
    /// configuration.
    pub(crate) fn limited_with(limits: &str, more: &str) -> Helper {
        let (limits, config) = (limits.to_string(), more.to_string());
        Helper::launch(HelperStart { limits, config, ..HelperStart::new() }, Some(machine()))
    }

    /// Lets other users access the socket, as far as its mode permits.
    pub(crate) fn let_others_in(&self) {
        std::fs::set_permissions(self.dir.path(), Permissions::from_mode(0o755)).unwrap();
    }

    /// Starts a helper for a test that has the machine to itself.
    pub(crate) fn start_alone(_: &RwLockWriteGuard<'static, ()>) -> Helper {
        Helper::launch(HelperStart::new(), None)
    }

    /// Starts a second helper, which acts as one on another host.
    pub(crate) fn another(&self) -> Helper {
        Helper::launch(HelperStart::new(), None)
    }

    /// Starts a second helper, as [`another`](Helper::another) does, with the configuration of this
    /// one.
    pub(crate) fn another_alike(&self) -> Helper {
        Helper::launch(HelperStart { config: self.launch.config.clone(), ..HelperStart::new() }, None)
    }

    /// Starts any helper; `machine` excludes tests that measure.
    pub(crate) fn launch(launch: HelperStart, machine: Option<RwLockReadGuard<'static, ()>>) -> Helper {
        Helper::launch_in(launch.new_dir(), launch, machine)
    }

    fn launch_in(
        dir: Arc<TempDir>,
        launch: HelperStart,
        machine: Option<RwLockReadGuard<'static, ()>>,
    ) -> Helper {
        let log = std::fs::File::options().append(true).create(true).open(dir.path().join("log")).unwrap();
        let mut command = launch.command(dir.path());
        let listener = launch.listener.as_ref().map(|(listener, _)| listener.try_clone().unwrap());
        let input = listener.map_or_else(Stdio::null, Stdio::from);
        let child = command.stdin(input).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let (pid, address) = (child.id(), launch.address);
        let mut helper = Helper { child, pid, dir, address, launch, _machine: machine };
        hung_unless("the helper listens", || {
            assert!(helper.child.try_wait().unwrap().is_none(), "nlxd has ended: {}", helper.log());
            Client::connect(&helper.socket(), "is it there?").is_ok()
        });
        if helper.launch.unit {
            helper.pid = systemctl("show -P MainPID nlxd.service").trim().parse().unwrap();
        }
        // There may be clients that have connected before.
        if helper.launch.listener.is_none() {
            helper.is_clean();
        }
        helper
    }

    /// Starts another helper in the place of this one, which has ended or is about to.
    pub(crate) fn restart(mut self) -> Helper {
        let _ = self.child.wait();
        let machine = self._machine.take();
        Helper::launch_in(self.dir.clone(), self.launch.clone(), machine)
    }

    /// Returns the output of another helper started at the same socket.
    pub(crate) fn rival(&self) -> Output {
        HelperStart::new().command(self.dir.path()).output().unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.launch.socket(self.dir.path())
    }

    pub(crate) fn nid(&self) -> [u8; 20] {
        wire::nid_on(self.launch.net, self.address)
    }

    /// Returns the helper's NID in the form that the test programs use.
    pub(crate) fn nid_text(&self) -> String {
        format!("{}@{}", self.address, self.launch.net)
    }

    /// Returns the folder with its socket.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).unwrap();
    }

    /// Waits until the helper ends; returns whether it succeeded.
    pub(crate) fn ends(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Connects a client without further requests.
    pub(crate) fn client(&self, name: &str) -> Client {
        Client::connect(&self.socket(), name).unwrap()
    }

    /// Returns the helper's status as the operator sees it.
    pub(crate) fn status(&self) -> Value {
        self.node_status()["helper"].take()
    }

    /// Returns the status of its node, including the network.
    fn node_status(&self) -> Value {
        let mut command = Command::new(program("nlx"));
        // On a busy machine the answer may take long.
        let args = ["status", "--json", "--timeout", "60", &self.pid().to_string()];
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["nodes"][0].take()
    }

    /// Returns a number of its node's status.
    #[track_caller]
    pub(crate) fn node_number(&self, pointer: &str) -> u64 {
        let status = self.node_status();
        let value = status.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no number at {pointer} in {status:#}"))
    }

    /// Returns a number of its status.
    #[track_caller]
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        let status = self.status();
        let value = status.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no number at {pointer} in {status:#}"))
    }

    /// Returns the process of its porter: its child that has not ended.
    pub(crate) fn porter(&self) -> Pid {
        let helper = self.pid();
        let children =
            std::fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).unwrap_or_default();
        let lives = |pid: &&str| {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
        };
        let all = std::fs::read_dir(format!("/proc/{helper}/task")).unwrap().filter_map(|task| {
            let task = task.ok()?.path().join("children");
            std::fs::read_to_string(task).ok()
        });
        let all: String = std::iter::once(children).chain(all).collect::<Vec<_>>().join(" ");
        let porter = all.split_whitespace().find(lives).expect("the helper has a porter");
        Pid::from_raw(porter.parse().unwrap())
    }

    /// Counts its resources for clients, as the kernel shows them: sockets, shared memory,
    /// doorbells. Connections to other nodes belong to the network, and change at any time.
    pub(crate) fn holdings(&self) -> Holdings {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        let unix = std::fs::read_to_string(format!("/proc/{}/net/unix", self.pid())).unwrap();
        let local: HashSet<&str> = unix.lines().filter_map(|line| line.split_whitespace().nth(6)).collect();
        let descriptors = targets.filter(|target| {
            let target = target.to_string_lossy();
            let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            inode.is_none_or(|inode| local.contains(inode))
        });
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        Holdings {
            descriptors: descriptors.count(),
            mappings: maps
                .lines()
                .filter(|line| line.contains("memfd:") || line.contains("hugepage"))
                .count(),
        }
    }

    /// Waits until it has no more resources than before. It may have fewer: a separate thread
    /// closes sockets of departed clients, some time after they have left the status, so `before`
    /// may include them.
    #[track_caller]
    pub(crate) fn holds_again(&self, before: Holdings) {
        let begun = Instant::now();
        let more = |now: Holdings| now.descriptors > before.descriptors || now.mappings > before.mappings;
        while more(self.holdings()) {
            assert!(begun.elapsed() < HUNG, "{:?}, not {before:?} as before", self.holdings());
        }
    }

    /// Returns the resident memory of the helper in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// Waits until no client is connected and no resource of any is left.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        self.is_clean_but_for(0);
    }

    /// Checks what [`is_clean`](Helper::is_clean) checks, with `clients` connected clients.
    #[track_caller]
    pub(crate) fn is_clean_but_for(&self, clients: u64) {
        let begun = Instant::now();
        loop {
            let status = self.status();
            let left = ["tms", "eqs", "arenas", "bytes"].map(|name| {
                let number = status.pointer(&format!("/leftovers/{name}")).and_then(Value::as_u64);
                number.unwrap_or_else(|| panic!("no leftovers in {status:#}"))
            });
            let connected = status.pointer("/clients").and_then(Value::as_u64);
            if left == [0; 4] && connected == Some(clients) {
                return;
            }
            assert!(begun.elapsed() < HUNG, "something is left: {status:#}\n{}", self.log());
        }
    }
}

fn machine() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs systemctl; returns its output.
fn systemctl(args: &str) -> String {
    let output = Command::new("systemctl").args(args.split(' ')).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        if self.launch.unit {
            systemctl("kill -s KILL nlxd.service");
            systemctl("stop nlxd.socket nlxd.service");
        }
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("nlxd said:\n{}", self.log());
        }
    }
}

/// The open descriptors and mappings of a helper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    pub(crate) mappings: usize,
}

/// Two honest clients that work for each other all the time, with each byte checked.
pub(crate) struct Work {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Work {
    /// Starts two clients of one helper.
    pub(crate) fn start(helper: &Helper) -> Work {
        Work::between([helper; 2])
    }

    /// Starts a client of one helper and one of another.
    pub(crate) fn between(helpers: [&Helper; 2]) -> Work {
        let paths = helpers.map(Helper::socket);
        let nids = helpers.map(Helper::nid);
        let pair = Pair::connect(paths.each_ref().map(PathBuf::as_path), nids, "honest", Points::harmless());
        let mut pair = pair.unwrap();
        let (over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count) = (over.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            while !until.load(Relaxed) {
                pair.round()?;
                count.fetch_add(1, Relaxed);
            }
            pair.end().map(drop)
        });
        let work = Work { over, rounds, thread: Some(thread) };
        work.advance(1);
        work
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    /// Waits until `rounds` further rounds have succeeded.
    #[track_caller]
    pub(crate) fn advance(&self, rounds: u64) {
        let goal = self.rounds() + rounds;
        let begun = Instant::now();
        while self.rounds() < goal {
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "honest work has failed");
            assert!(begun.elapsed() < HUNG, "honest work makes no progress");
            std::thread::yield_now();
        }
    }

    /// Ends the work; all of it must have succeeded.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.over.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if let Some(Ok(Err(words))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("honest work: {words}");
        }
    }
}

/// A node that accepts connections and sends nothing.
pub(crate) struct Silence {
    _listener: TcpListener,
    pub(crate) address: Ipv4Addr,
}

impl Silence {
    pub(crate) fn new() -> Silence {
        let address = address();
        Silence { _listener: TcpListener::bind((address, PORT)).unwrap(), address }
    }
}

/// A client in a separate process; it is killed when the test ends.
pub(crate) struct Other {
    child: Child,
    lines: Receiver<String>,
}

impl Other {
    /// Starts the client, and waits until it is ready.
    pub(crate) fn start(role: &str, helper: &Helper, more: &[&str]) -> Other {
        Other::spawn(Command::new(env!("CARGO_BIN_EXE_helper-client")), role, helper, more)
    }

    /// Starts the client through `program`, and waits until it is ready.
    pub(crate) fn spawn(mut program: Command, role: &str, helper: &Helper, more: &[&str]) -> Other {
        program.arg(role).arg(helper.socket()).arg(helper.address.to_string()).args(more);
        let mut child = program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let output = child.stdout.take().unwrap();
        Other::listen(child, output)
    }

    /// Starts a client that writes to standard error, because its test harness uses standard
    /// output.
    pub(crate) fn spawn_in_harness(mut program: Command) -> Other {
        let mut child =
            program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.stderr.take().unwrap();
        Other::listen(child, output)
    }

    /// Starts any program that prints `ready`, and returns the pipe to its input.
    pub(crate) fn converse(mut program: Command) -> (Other, ChildStdin) {
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        (Other::listen(child, output), input)
    }

    fn listen(child: Child, output: impl Read + Send + 'static) -> Other {
        let output = BufReader::new(output);
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let other = Other { child, lines };
        assert_eq!(other.line(), "ready");
        other
    }

    /// Waits for the client's next line of output, and returns it.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(HUNG).unwrap_or_else(|error| panic!("no line from the client: {error}"))
    }

    /// Returns the rest of the client's output, until it ends.
    pub(crate) fn last_words(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Fails the test if the client has ended, which it does only after it has found a fault.
    #[track_caller]
    pub(crate) fn lives(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            panic!("the client has ended: {:?}", self.lines.try_iter().collect::<Vec<_>>());
        }
    }

    /// Kills the client, which must still be running.
    #[track_caller]
    pub(crate) fn kill(mut self) {
        self.lives();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills it, unless it has ended.
    pub(crate) fn kill_if_alive(mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }

    /// Waits until a signal has ended it, and returns the signal.
    pub(crate) fn died_of(mut self) -> Option<i32> {
        use std::os::unix::process::ExitStatusExt;
        self.child.wait().unwrap().signal()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a socket's path exists: a killed helper leaves it.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

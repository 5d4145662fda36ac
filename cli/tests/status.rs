//! `nlx status`: nodes of other processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use nlx::{Domain, NodeConfig, Op, TmOptions};
use serde_json::Value;
use support::{Server, ask, complaint, free_port, nlx};
use tempfile::TempDir;

/// A user's folder for sockets, with nodes in it. Root sees the nodes of other tests as well, so
/// each test queries nodes by their process.
struct Host(TempDir);

impl Host {
    fn new() -> Host {
        Host(tempfile::tempdir().unwrap())
    }

    fn within(&self, mut command: Command) -> Command {
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command
    }

    fn serve(&self, address: Ipv4Addr, port: u16, more: &[&str]) -> Server {
        let (net, port) = (format!("tcp({address})"), port.to_string());
        let args = [&["serve", "--net", &net, "--accept-port", &port], more].concat();
        Server::start(self.within(nlx(&args)))
    }

    fn status(&self, args: &[&str]) -> Output {
        self.within(nlx(&[&["status"], args].concat())).output().unwrap()
    }

    /// Returns the nodes that answer, as JSON.
    fn all(&self) -> Vec<Value> {
        let output = self.status(&["--all", "--json", "--timeout", "60"]);
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all["nodes"].as_array().unwrap().clone()
    }

    fn sockets(&self) -> usize {
        let folder = fs::read_dir(self.0.path().join("nlx"));
        folder.map_or(0, Iterator::count)
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_node_is_shown_while_it_runs_and_no_longer() {
    let host = Host::new();
    let [here, there] = [1, 2].map(|last| Ipv4Addr::new(127, 6, 1, last));
    let port = free_port(there);
    let server = host.serve(there, port, &[]);
    let pid = server.pid().to_string();
    assert!(ask("ping", there, here, port, &["--count", "3", "--interval", "0.01"]).status.success());
    let shown = host.status(&[&pid]);
    assert!(shown.status.success(), "{}", complaint(&shown));
    for words in [&format!("nlx, process {pid}: up "), "127.6.1.2@tcp", "│ received          3 ", "memory "]
    {
        assert!(text(&shown).contains(words), "{words} is not in\n{}", text(&shown));
    }
    let shown = host.status(&[&pid, "--json", "--timeout", "60"]);
    let node = &serde_json::from_slice::<Value>(&shown.stdout).unwrap()["nodes"][0];
    assert_eq!(
        (&node["version"], &node["pid"], &node["program"]),
        (&1.into(), &server.pid().into(), &"nlx".into())
    );
    assert_eq!((&node["nids"][0], &node["accept_port"]), (&"127.6.1.2@tcp".into(), &port.into()));
    let counters = &node["counters"];
    assert_eq!((&counters["received"]["messages"], &counters["sent"]["messages"]), (&3.into(), &3.into()));
    assert_eq!(node["nis"][1]["received"]["get"], 3);
    assert!(
        node["tcp"]["accepts"].as_u64().unwrap() >= 1 && node["memory"]["resident_bytes"].as_u64() > Some(0)
    );
    server.signal(Signal::SIGTERM);
    server.end();
    assert_eq!(host.sockets(), 0, "it has removed its socket");
    let shown = host.status(&[&pid]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(complaint(&shown).contains("has no node") && complaint(&shown).contains("try: "));
}

/// A connected peer is shown with its credits, and its connections by type.
#[test]
fn peers_and_connections_are_shown() {
    let host = Host::new();
    let [first, second] = [1, 2].map(|last| Ipv4Addr::new(127, 6, 2, last));
    let port = free_port(first);
    let watched = host.serve(first, port, &[]);
    let mut asking =
        nlx(&["ping", &format!("{first}@tcp"), "--from", &format!("{second}@tcp"), "--count", "0"]);
    asking
        .args(["--interval", "0.01", "--accept-port", &port.to_string()])
        .stdout(std::process::Stdio::null());
    let mut asking = asking.spawn().unwrap();
    let node = loop {
        let mut nodes = host.all();
        nodes.retain(|node| node["pid"] == watched.pid());
        let node = nodes.remove(0);
        if node["connections"]["control"].as_u64() > Some(0) && node["peers"]["known"] == 1 {
            break node;
        }
    };
    asking.kill().unwrap();
    asking.wait().unwrap();
    let peer = &node["peers"]["list"][0];
    assert_eq!((&peer["nid"], &peer["waiting"]), (&"127.6.2.2@tcp".into(), &0.into()));
    assert!(peer["credits"].as_i64() > Some(0) && peer["received"]["get"].as_u64() > Some(0), "{peer}");
    let tcp = &peer["tcp"];
    assert!(tcp["connections"].as_u64() > Some(0) && tcp["mss"].as_u64() > Some(500), "{peer}");
    assert!(tcp["rtt_us"].is_u64() && tcp["retransmissions"] == 0 && tcp["unacked_bytes"].is_u64(), "{peer}");
    let connections = &node["connections"];
    let sum: u64 = ["any", "control", "bulk_in", "bulk_out"]
        .map(|kind| connections[kind].as_u64().unwrap())
        .iter()
        .sum();
    assert_eq!((connections["all"].as_u64(), &connections["peers"]), (Some(sum), &1.into()));
}

/// A stopped process is given up after its timeout; a killed one is not shown, and its socket is
/// removed.
#[test]
fn silent_and_dead_processes_delay_no_other_process() {
    let host = Host::new();
    let [first, second] = [1, 2].map(|last| Ipv4Addr::new(127, 6, 3, last));
    let stopped = host.serve(first, free_port(first), &[]);
    let killed = host.serve(second, free_port(second), &[]);
    let (pid, dead) = (stopped.pid().to_string(), killed.pid().to_string());
    stopped.signal(Signal::SIGSTOP);
    let shown = host.status(&[&pid, "--timeout", "0.1"]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(complaint(&shown).contains("did not answer in 0.1 s"), "{}", complaint(&shown));
    let shown = host.status(&[&pid, "--timeout", "0.1", "--json"]);
    let json: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(json["errors"][0]["errno"], "ETIMEDOUT");
    stopped.signal(Signal::SIGCONT);
    assert!(host.status(&[&pid, "--timeout", "60"]).status.success());
    killed.signal(Signal::SIGKILL);
    killed.end();
    assert_eq!(host.sockets(), 2);
    assert_eq!(host.status(&[&dead]).status.code(), Some(1));
    assert_eq!(host.sockets(), 1, "what it left behind is gone");
}

/// The configuration file overrides the default.
#[test]
fn a_node_can_be_hidden_from_status() {
    let host = Host::new();
    let there = Ipv4Addr::new(127, 6, 4, 2);
    let config = host.0.path().join("node.toml");
    fs::write(&config, "[nlx]\nstatus = 0\n").unwrap();
    let server = host.serve(there, free_port(there), &["--config", config.to_str().unwrap()]);
    assert_eq!(host.status(&[&server.pid().to_string()]).status.code(), Some(1));
    assert_eq!(host.sockets(), 0);
}

/// No socket is created in a folder that others could replace; the node runs without it, and logs
/// why it is not shown.
#[test]
fn a_folder_that_others_can_enter_is_not_used() {
    let host = Host::new();
    let folder = host.0.path().join("nlx");
    fs::create_dir(&folder).unwrap();
    make_open(&folder);
    let there = Ipv4Addr::new(127, 6, 5, 2);
    // There is another folder below /tmp, which is the user's: the node is found there.
    let server = host.serve(there, free_port(there), &[]);
    assert_eq!(host.sockets(), 0);
    assert!(host.status(&[&server.pid().to_string(), "--timeout", "60"]).status.success());
}

fn make_open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
}

/// A message for which a node has no buffer is shown, in the status and in the log at debug level;
/// with two NIs in one network the status shows which one sends.
#[test]
fn dropped_messages_are_named_and_unused_rails_too() {
    let host = Host::new();
    let there = Ipv4Addr::new(127, 6, 6, 2);
    let (port, log) = (free_port(there), host.0.path().join("log"));
    let args =
        ["serve", "--net", "tcp(127.6.6.2)", "--net", "tcp(127.6.6.3)", "--accept-port", &port.to_string()]
            .map(str::to_string);
    let mut command = host.within(nlx(&args.each_ref().map(String::as_str)));
    command.env("NLX_LOG", "debug").stderr(fs::File::create(&log).unwrap());
    let server = Server::start(command);
    let config = NodeConfig::new().net("tcp(127.6.6.1)").unwrap().accept_port(port);
    let domain = Domain::in_process(&config).unwrap();
    let tm = domain.transfer_machine("127.6.6.1@tcp:12345:31:*", TmOptions::default()).unwrap();
    let target = tm.end_point("127.6.6.2@tcp:12345:31:5").unwrap();
    tm.start(Op::send(domain.buffer_of(b"hello").unwrap(), &target)).unwrap();
    tm.wait(None).unwrap().expect("it has left").status.unwrap();
    let mut node = Value::Null;
    support::until("the message is dropped", || {
        node = host.all().into_iter().find(|node| node["pid"] == server.pid()).unwrap();
        node["last_drops"].as_array().is_some_and(|drops| !drops.is_empty())
    });
    let drop = &node["last_drops"][0];
    let bits = drop["match_bits"].as_str().unwrap();
    assert_eq!(
        (&drop["kind"], &drop["source"], &drop["target"], &drop["portal"]),
        (&"PUT".into(), &"12345-127.6.6.1@tcp".into(), &"127.6.6.2@tcp".into(), &31.into())
    );
    assert_eq!(
        (&drop["reason"], &drop["length"], &drop["count"]),
        (&"no entry matches".into(), &5.into(), &1.into())
    );
    let shown = text(&host.status(&[&server.pid().to_string()]));
    let row = shown.lines().find(|line| line.starts_with("│ PUT")).expect(&shown);
    assert!(
        row.contains(bits) && row.contains("12345-127.6.6.1@tcp") && row.contains("no entry matches"),
        "{row}"
    );
    let rails =
        "rails        tcp has 2 NIs; messages to a peer use the NI of the first message to or from it";
    assert!(shown.contains(rails), "{shown}");
    let log = fs::read_to_string(&log).unwrap();
    let line = log.lines().find(|line| line.contains("a message is dropped")).expect(&log);
    for words in ["DEBUG", "12345-127.6.6.1@tcp", "portal=31", bits, "no entry matches"] {
        assert!(line.contains(words), "{words} is not in {line}");
    }
}

/// Other users' folders, which root reads.
mod of_others {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use nix::unistd::{Uid, setfsgid, setfsuid};

    use super::*;

    /// Number of runs of `nlx status` while the folder is exchanged.
    const LOOKS: usize = 200;

    /// A user of one test, without other processes.
    struct User {
        uid: u32,
        folder: PathBuf,
    }

    impl User {
        fn new(uid: u32) -> Option<User> {
            if !Uid::effective().is_root() {
                nlx_skip::skipped("nlx status of root", "needs root, who looks into the folders of others");
                return None;
            }
            let user = User { uid, folder: format!("/tmp/nlx-{uid}").into() };
            user.clear();
            Some(user)
        }

        fn clear(&self) {
            let _ = fs::remove_dir_all(&self.folder);
            let _ = fs::remove_file(&self.folder);
            let _ = fs::remove_file(self.link());
            let _ = fs::remove_dir_all(self.link());
        }

        fn link(&self) -> PathBuf {
            format!("/tmp/nlx-test-link-{}", self.uid).into()
        }

        fn make_folder(&self) {
            fs::create_dir(&self.folder).unwrap();
            fs::set_permissions(&self.folder, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&self.folder, Some(self.uid), Some(self.uid)).unwrap();
        }

        /// Returns a socket in the user's folder that this process, which is root's, has created
        /// and serves.
        fn socket(&self, name: &str) -> UnixListener {
            let path = self.folder.join(name);
            let listener = UnixListener::bind(&path).unwrap();
            chown(&path, Some(self.uid), Some(self.uid)).unwrap();
            listener
        }
    }

    impl Drop for User {
        fn drop(&mut self) {
            self.clear();
        }
    }

    /// Copies `nlx` to a place where any user may run it.
    fn shared_nlx(folder: &TempDir) -> PathBuf {
        let path = folder.path().join("nlx");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // Copied by another process: a child that another test forks at this moment would inherit the
        // descriptor that is open for writing, and the file could not be executed.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_nlx")).arg(&path).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn root_sees_their_nodes_and_leaves_their_sockets() {
        let Some(user) = User::new(65_431) else { return };
        let host = Host::new();
        let home = tempfile::tempdir().unwrap();
        let nlx = shared_nlx(&home);
        let as_user = |args: &[&str]| {
            let mut command = Command::new(&nlx);
            command.args(args).uid(user.uid).gid(user.uid).env_remove("XDG_RUNTIME_DIR");
            command
        };
        let address = Ipv4Addr::new(127, 6, 5, 1);
        let (net, port) = (format!("tcp({address})"), free_port(address).to_string());
        let server = Server::start(as_user(&["serve", "--net", &net, "--accept-port", &port]));
        let pid = server.pid().to_string();
        // The second as before Linux 6.16.
        let options: [&[&str]; 2] = [&[], &["--accept-descriptors"]];
        for options in options {
            let shown = host.status(&[&[pid.as_str(), "--timeout", "60"], options].concat());
            assert!(text(&shown).contains(&format!("process {pid}: up")), "{}", complaint(&shown));
        }
        server.signal(Signal::SIGKILL);
        server.end();
        assert_eq!(host.status(&[&pid, "--accept-descriptors"]).status.code(), Some(1));
        let sockets = || fs::read_dir(&user.folder).unwrap().count();
        assert_eq!(
            (host.status(&[&pid]).status.code(), sockets()),
            (Some(1), 1),
            "root removes nothing there"
        );
        assert_eq!(as_user(&["status"]).output().unwrap().status.code(), Some(1));
        assert_eq!(sockets(), 0, "its owner does");
    }

    /// A user's folder becomes a link to a private folder of root's while root reads it, and a
    /// folder again.
    #[test]
    fn a_folder_that_becomes_a_link_makes_root_delete_nothing() {
        let Some(user) = User::new(65_432) else { return };
        let host = Host::new();
        user.make_folder();
        drop(user.socket("1-2-3.sock"));
        let private = tempfile::tempdir().unwrap();
        fs::write(private.path().join("1-2-3.sock"), "precious").unwrap();
        drop(UnixListener::bind(private.path().join("4-5-6.sock")).unwrap());
        symlink(private.path(), user.link()).unwrap();
        nix::unistd::fchownat(
            AT_FDCWD,
            &user.link(),
            Some(user.uid.into()),
            None,
            nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW,
        )
        .unwrap();
        let (ending, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ended, counted) = (ending.clone(), swaps.clone());
        let (uid, one, other) = (user.uid, user.folder.clone(), user.link());
        // The system checks files by the user of the thread.
        let swapper = thread::spawn(move || {
            setfsgid(uid.into());
            setfsuid(uid.into());
            while !ended.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut looks = 0;
        while looks < LOOKS || swaps.load(Ordering::Relaxed) < LOOKS {
            // The requested process has no node; the others are searched in any case.
            assert_eq!(host.status(&[&std::process::id().to_string()]).status.code(), Some(1));
            looks += 1;
        }
        ending.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        for name in ["1-2-3.sock", "4-5-6.sock"] {
            assert!(private.path().join(name).exists(), "{name}");
        }
    }

    /// A user mounts an unresponsive file system of theirs where root searches: root does not
    /// access it.
    #[test]
    fn a_file_system_that_does_not_answer_delays_no_other_client() {
        const SCRIPT: &str = r#"
            mount -t tmpfs none /run/user && chmod 755 /run/user || exit 99
            for user in 65435 65436; do mkdir -m 700 /run/user/$user; chown $user:$user /run/user/$user; done
            mkdir -m 700 /run/user/65436/nlx && chown 65436:65436 /run/user/65436/nlx
            exec 8<>/dev/fuse 9<>/dev/fuse || exit 99
            options=rootmode=40000,user_id=65435,group_id=65435,allow_other
            mount -i -t fuse -o fd=8,$options none /run/user/65435 || exit 99
            mount -i -t fuse -o fd=9,$options none /run/user/65436/nlx || exit 99
            timeout -s KILL 60 "$0" status 1
            outcome=$?
            umount -l /run/user/65435 /run/user/65436/nlx
            exit $outcome"#;
        if !Uid::effective().is_root() {
            return nlx_skip::skipped("a file system that does not answer", "needs root, who can mount one");
        }
        let mut command = Command::new("unshare");
        let output = command.args(["-m", "bash", "-c", SCRIPT, env!("CARGO_BIN_EXE_nlx")]).output().unwrap();
        match output.status.code() {
            Some(99) => nlx_skip::skipped("a file system that does not answer", &complaint(&output)),
            // Process 1 has no node: it has read all folders.
            code => assert_eq!(code, Some(1), "{}", complaint(&output)),
        }
    }

    /// Sockets in the name of others, and a user's own socket that another user's process serves,
    /// are refused by name.
    #[test]
    fn a_claim_of_another_process_is_refused() {
        let Some(user) = User::new(65_433) else { return };
        let host = Host::new();
        user.make_folder();
        let own = std::process::id();
        let _listener = user.socket(&format!("{own}-1-1.sock"));
        let options: [&[&str]; 2] = [&[], &["--accept-descriptors"]];
        for options in options {
            let shown = host.status(&[&[&own.to_string(), "--json", "--timeout", "60"], options].concat());
            let all: Value = serde_json::from_slice(&shown.stdout).unwrap();
            let error = &all["errors"][0];
            assert_eq!(error["errno"], "EPERM");
            let why = format!("process {own} of user 0 serves this socket");
            assert!(error["message"].as_str().unwrap().ends_with(&why), "{error}");
        }
    }
}

/// Answers every request in this user's folder with this text, then closes.
fn answer_with(host: &Host, text: String) -> std::thread::JoinHandle<()> {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    let folder = host.0.path().join("nlx");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.join(format!("{}-1-1.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(text.as_bytes()).unwrap();
    })
}

/// A status whose texts contain terminal commands, not all of which JSON must escape.
#[test]
fn what_commands_a_terminal_is_escaped() {
    let node = nlx::Domain::in_process(&NodeConfig::new()).unwrap().node().unwrap().status();
    let strange = node.replacen(r#""program":""#, "\r\"program\":\"\u{9b}2J\u{202e}\u{7f}", 1);
    assert_ne!(node, strange);
    let pid = std::process::id().to_string();
    for args in [&[&pid, "--json", "--timeout", "60"][..], &[&pid, "--timeout", "60"]] {
        let host = Host::new();
        let answering = answer_with(&host, strange.clone());
        let shown = host.status(args);
        answering.join().unwrap();
        assert!(shown.status.success(), "{}", complaint(&shown));
        let text = text(&shown);
        assert!(text.chars().all(|letter| letter == '\n' || lnet_nid::is_printable(letter)), "{text:?}");
        assert!(text.contains(r"\u009b2J\u202e\u007f") || text.contains(r"\u{9b}2J\u{202e}\u{7f}"), "{text}");
    }
}

/// An answer in the name of another process is refused.
#[test]
fn an_answer_that_names_another_process_is_refused() {
    let host = Host::new();
    let node = nlx::Domain::in_process(&NodeConfig::new()).unwrap().node().unwrap().status();
    let pid = std::process::id().to_string();
    let other = node.replacen(&format!(r#""pid":{pid}"#), r#""pid":1"#, 1);
    let answering = answer_with(&host, other);
    let shown = host.status(&[&pid, "--timeout", "60"]);
    answering.join().unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(complaint(&shown).contains("it claims to be process 1"), "{}", complaint(&shown));
}

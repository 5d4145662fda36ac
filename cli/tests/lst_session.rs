//! The commands of lst as separate processes, in a session that `LST_SESSION` names.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Pid;
use nlx_testkit::addresses::unused;
use nlx_testkit::until;
use support::lst::{Node, on};
use support::{complaint, free_port, json_lines, nlx};
use tempfile::TempDir;

/// A shell with `LST_SESSION`, on an address of its own.
struct Shell {
    folder: TempDir,
    key: &'static str,
    options: Vec<String>,
}

impl Shell {
    fn new(key: &'static str, port: u16) -> Shell {
        let options = on(unused(), port).into_iter().filter(|option| option != "--json").collect();
        Shell { folder: tempfile::tempdir().unwrap(), key, options }
    }

    fn command(&self, words: &[&str]) -> Command {
        let options = self.options.iter().map(String::as_str);
        let mut command = nlx(&options.chain(words.iter().copied()).collect::<Vec<_>>());
        command.env("LST_SESSION", self.key).env("XDG_RUNTIME_DIR", self.folder.path());
        command
    }

    fn try_run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command that succeeds; returns its output.
    fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        assert!(output.status.success(), "{words:?}: {}", complaint(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that fails, and returns its error message.
    fn refused(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        assert_eq!(output.status.code(), Some(255), "{words:?}: {}", complaint(&output));
        complaint(&output)
    }

    /// Returns the process with the console of the session.
    fn console(&self) -> Pid {
        let stream = UnixStream::connect(self.socket()).unwrap();
        Pid::from_raw(getsockopt(&stream, PeerCredentials).unwrap().pid())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join(format!("nlx/lst-{}", self.key))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.command(&["end_session"]).output();
    }
}

/// A site's commands, one process each, from `new_session` to `end_session`.
// Covers: S-313
#[test]
fn commands_of_a_shell_share_a_session() {
    let port = free_port(unused());
    let (mut client, server) = (Node::start(port), Node::start(port));
    let shell = Shell::new("4711", port);
    for _ in 0..2 {
        assert!(shell.run(&["new_session", "demo"]).starts_with("SESSION: demo FEATURES: 1 TIMEOUT: 300"));
        let folder = shell.socket().parent().unwrap().metadata().unwrap();
        assert_eq!(folder.permissions().mode() & 0o777, 0o700);
        assert!(shell.run(&["show_session"]).contains("KEY: 4711 "));
        assert_eq!(
            shell.run(&["add_group", "c", &client.nid]),
            format!("{} are added to session\n", client.nid)
        );
        assert_eq!(client.line()["session"], "demo");
        shell.run(&["add_group", "s", &server.nid]);
        assert_eq!(shell.run(&["list_group"]), "1) c\n2) s\nTotal 2 groups\n");
        let added =
            shell.run(&["add_test", "--from", "c", "--to", "s", "brw", "write", "size=64k", "check=full"]);
        assert_eq!(added, "Test was added successfully\n");
        assert_eq!(shell.run(&["run", "batch"]), "batch is running now\n");
        assert!(shell.run(&["stat", "c", "--count", "2", "--delay", "1"]).contains("[LNet Rates of c]"));
        assert_eq!(shell.run(&["query", "batch"]), "batch [0] is running\n");
        // What the console refuses leaves the session as it is.
        assert!(shell.refused(&["new_session", "other"]).contains("session demo is open"));
        assert!(shell.refused(&["add_group", "c", &server.nid]).contains("group already exists"));
        assert!(shell.run(&["stop", "batch"]).ends_with("Batch is stopped\n"));
        let json = shell.try_run(&["--json", "show_error", "c", "s"]);
        let results = json_lines(&json.stdout);
        assert_eq!((&results[0]["command"], &results[0]["code"]), (&"show_error c s".into(), &0.into()));
        // Other shells have other sessions.
        let other = shell.command(&["show_session"]).env("LST_SESSION", "4712").output().unwrap();
        assert_eq!(other.status.code(), Some(255));
        assert!(complaint(&other).contains("show_session: LST_SESSION=4712 has no session"));
        assert_eq!(shell.run(&["end_session"]), "");
        assert!(client.line()["latencies"].is_array(), "those of its test client");
        assert!(client.line()["session"].is_null());
        assert!(!shell.socket().exists());
        // As with the kernel's lst.
        assert_eq!(shell.run(&["end_session"]), "");
    }
}

/// Without a session an error names the variable and the command.
// Covers: S-313
#[test]
fn without_a_session_the_variable_and_the_command_are_named() {
    let shell = Shell::new("17", free_port(unused()));
    let refused = shell.refused(&["add_group", "c", "10.0.0.1@tcp"]);
    assert!(refused.contains("add_group: LST_SESSION=17 has no session") && refused.contains("new_session"));
    for given in [None, Some("shell"), Some("0"), Some("-1"), Some("../17"), Some("4294967296")] {
        for words in [&["new_session"][..], &["stat", "c"], &["end_session"]] {
            let mut command = shell.command(words);
            match given {
                Some(given) => command.env("LST_SESSION", given),
                None => command.env_remove("LST_SESSION"),
            };
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(255), "{given:?}: {}", complaint(&output));
            assert!(
                complaint(&output).contains(&format!("{}: LST_SESSION", words[0])),
                "{}",
                complaint(&output)
            );
        }
    }
    // A console that cannot start says why, and leaves nothing.
    let unknown = shell.command(&["new_session"]).arg("--timeout").arg("0").output().unwrap();
    assert_eq!(unknown.status.code(), Some(255), "{}", complaint(&unknown));
    assert!(complaint(&unknown).contains("timeout") && !shell.socket().exists(), "{}", complaint(&unknown));
    let mut elsewhere = nlx(&["lst", "--net", "tcp(192.0.2.1)", "--accept-port", "9988", "new_session"]);
    let elsewhere =
        elsewhere.env("LST_SESSION", "17").env("XDG_RUNTIME_DIR", shell.folder.path()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(
        complaint(&elsewhere).contains("192.0.2.1") && !shell.socket().exists(),
        "{}",
        complaint(&elsewhere)
    );
}

/// A session without commands expires, and its console ends; only the next command reports it.
// Covers: S-313
#[test]
fn a_console_ends_with_its_session() {
    let port = free_port(unused());
    let (mut client, server) = (Node::start(port), Node::start(port));
    let shell = Shell::new("5", port);
    shell.run(&["new_session", "--timeout", "1", "short"]);
    shell.run(&["add_group", "c", &client.nid]);
    shell.run(&["add_group", "s", &server.nid]);
    shell.run(&["add_test", "--from", "c", "--to", "s", "ping"]);
    shell.run(&["run", "batch"]);
    assert_eq!(client.line()["session"], "short");
    until("the console has ended", || !shell.socket().exists());
    assert!(client.line()["session"].is_null());
    let told = shell.refused(&["stat", "c"]);
    assert!(
        told.contains("stat: LST_SESSION=5 has no session: session short has expired after 1 s"),
        "{told}"
    );
    assert!(told.contains("rmmod lnet_selftest may hang"), "{told}");
    assert!(!shell.refused(&["stat", "c"]).contains("expired"));
    assert!(
        fs::read_dir(shell.folder.path().join("nlx"))
            .unwrap()
            .all(|name| { !name.unwrap().file_name().to_string_lossy().starts_with("lst-") })
    );
}

/// A console that is stopped ends its session, and the next command reports it.
// Covers: S-313
#[test]
fn a_console_that_is_stopped_ends_its_session() {
    let port = free_port(unused());
    let mut node = Node::start(port);
    let shell = Shell::new("8", port);
    shell.run(&["new_session", "stopped"]);
    shell.run(&["add_group", "c", &node.nid]);
    assert_eq!(node.line()["session"], "stopped");
    kill(shell.console(), Signal::SIGTERM).unwrap();
    assert!(node.line()["session"].is_null());
    until("the console is gone", || !shell.socket().exists());
    assert!(shell.refused(&["list_group"]).contains("has no session: its console was stopped by a signal"));
}

/// A command that is interrupted is cancelled; a console that is killed leaves nothing that hinders the
/// next one.
// Covers: S-313
#[test]
fn interrupted_commands_and_killed_consoles_hinder_no_other() {
    let port = free_port(unused());
    let node = Node::start(port);
    let shell = Shell::new("6", port);
    shell.run(&["new_session", "first"]);
    shell.run(&["add_group", "c", &node.nid]);
    let mut endless = shell.command(&["stat", "c", "--delay", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(endless.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "[LNet Rates of c]\n");
    kill(Pid::from_raw(endless.id() as i32), Signal::SIGINT).unwrap();
    endless.wait().unwrap();
    assert!(shell.run(&["list_group"]).starts_with("1) c\n"));
    kill(shell.console(), Signal::SIGKILL).unwrap();
    until("the console is gone", || UnixStream::connect(shell.socket()).is_err());
    assert!(shell.refused(&["list_group"]).contains("has no session"));
    let refused = shell.try_run(&["new_session", "second"]);
    assert!(refused.status.success(), "{}", complaint(&refused));
    assert_eq!(shell.try_run(&["add_group", "c", &node.nid]).status.code(), Some(253), "the node is busy");
    shell.run(&["end_session"]);
    shell.run(&["new_session", "--force", "third"]);
    shell.run(&["add_group", "c", &node.nid]);
}

//! The object store example, as processes over TCP: a server, and clients that work at the same
//! time, and die.
//!
//! `cargo test -p nlx` builds the example; to run only this test, run
//! `cargo build -p nlx --example object_store` first.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nlx_testkit::buffers::pattern;

/// A test that takes longer is considered hung.
const HUNG: Duration = Duration::from_secs(60);

fn program() -> PathBuf {
    // Test programs are in `deps`, examples beside it.
    let folder = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples");
    let program = folder.join("object_store");
    assert!(program.exists(), "not built: cargo build -p nlx --example object_store");
    program
}

/// A server on a separate NID. Killed when dropped.
struct Store {
    child: Child,
    folder: tempfile::TempDir,
    /// N in the network 127.62.N.0; the server is host 1, on a separate port.
    network: u8,
}

impl Store {
    fn start(network: u8) -> Store {
        let folder = tempfile::tempdir().unwrap();
        let mut command = node(network, 1);
        command.arg("serve").arg(folder.path().join("store")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("serving "), "{line}");
        Store { child, folder, network }
    }

    /// Returns the path of a file beside the store.
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn objects(&self) -> Vec<String> {
        let entries = fs::read_dir(self.file("store")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Returns a client's command, on the NID with this last number.
    fn client(&self, host: u8, arguments: &[&str]) -> Command {
        let mut command = node(self.network, host);
        command.args(arguments);
        command
    }

    #[track_caller]
    fn succeeds(&self, host: u8, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.client(host, arguments).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, host: u8, arguments: &[&str]) -> String {
        let Output { status, stderr, .. } = self.client(host, arguments).output().unwrap();
        assert!(!status.success(), "{arguments:?}");
        String::from_utf8(stderr).unwrap()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn node(network: u8, host: u8) -> Command {
    let mut command = Command::new(program());
    command.arg(format!("--net=tcp(127.62.{network}.{host})"));
    command.arg(format!("--server=127.62.{network}.1@tcp:12345:41:1"));
    command.arg(format!("--port={}", 21_770 + u16::from(network)));
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn clients_store_and_fetch_objects_of_all_sizes_at_once() {
    let store = Store::start(1);
    let lengths = [0, 5, 1 << 20, (17 << 20) + 3];
    std::thread::scope(|scope| {
        for client in 0..3 {
            let store = &store;
            scope.spawn(move || {
                for length in lengths {
                    let name = format!("object-{client}-{length}");
                    let (file, copy) = (store.file(&name), store.file(&format!("{name}.copy")));
                    fs::write(&file, pattern(client, length)).unwrap();
                    store.succeeds(10 + client as u8, &["put", text(&file), &name]);
                    store.succeeds(10 + client as u8, &["get", &name, text(&copy)]);
                    assert!(fs::read(&copy).unwrap() == pattern(client, length), "{name} came back changed");
                }
            });
        }
    });
    let mut expected: Vec<_> = (0..3)
        .flat_map(|client| lengths.map(|length| format!("{length} object-{client}-{length}")))
        .collect();
    let listed = store.succeeds(10, &["list"]);
    let mut listed: Vec<_> = listed.lines().map(|line| line.trim().to_owned()).collect();
    expected.sort();
    listed.sort();
    assert_eq!(listed, expected);
    assert_eq!(store.objects().len(), expected.len(), "nothing else is left on the disk");
}

#[test]
fn objects_are_replaced_and_deleted_and_nothing_else_is_reached() {
    let store = Store::start(2);
    let (file, copy) = (store.file("file"), store.file("copy"));
    for seed in [1, 2] {
        fs::write(&file, pattern(seed, 2_000_000 * seed as usize)).unwrap();
        store.succeeds(10, &["put", text(&file), "name"]);
    }
    store.succeeds(11, &["get", "name", text(&copy)]);
    assert!(fs::read(&copy).unwrap() == pattern(2, 4_000_000), "the second one has replaced the first");
    fs::remove_file(&copy).unwrap();

    store.succeeds(10, &["delete", "name"]);
    for arguments in [["get", "name", text(&copy)].as_slice(), &["delete", "name"]] {
        let stderr = store.fails(10, arguments);
        assert!(stderr.contains("name: No such file or directory"), "{stderr}");
    }
    assert!(!copy.exists(), "nothing is left of what could not be fetched");
    for name in ["../file", "/etc/passwd", ".upload-1", "a/b", "", "a\n"] {
        let stderr = store.fails(10, &["put", text(&file), name]);
        assert!(stderr.contains("names no object"), "{stderr}");
    }
    assert_eq!(store.objects(), Vec::<String>::new());
}

// A client that is killed in the middle of a bulk transfer disturbs no other, and leaves no object.
#[test]
fn a_client_that_dies_leaves_nothing() {
    let store = Store::start(3);
    let file = store.file("endless");
    // A sparse file, so large that the transfer does not end.
    fs::File::create(&file).unwrap().set_len(1 << 36).unwrap();
    let mut dying = store.client(10, &["put", text(&file), "endless"]).spawn().unwrap();
    let began = Instant::now();
    let written = || fs::metadata(store.file("store/.upload-1")).is_ok_and(|data| data.len() > 0);
    while !written() {
        assert!(began.elapsed() < HUNG, "nothing is uploaded");
        std::thread::yield_now();
    }
    dying.kill().unwrap();
    dying.wait().unwrap();

    let (file, copy) = (store.file("file"), store.file("copy"));
    fs::write(&file, pattern(3, 20_000_000)).unwrap();
    store.succeeds(11, &["put", text(&file), "other"]);
    store.succeeds(12, &["get", "other", text(&copy)]);
    assert!(fs::read(&copy).unwrap() == pattern(3, 20_000_000), "it came back changed");
    assert_eq!(store.succeeds(12, &["list"]).trim(), "20000000 other");
}

#[test]
fn a_client_without_a_server_says_so() {
    let store = Store::start(4);
    let server = format!("--server=127.62.{}.9@tcp:12345:41:1", store.network);
    let mut command = Command::new(program());
    command.args(["--net=tcp(127.62.4.10)", "--port=21774", &server, "list"]);
    let Output { status, stderr, .. } = command.output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && stderr.contains("127.62.4.9@tcp:12345:41:1"), "{stderr}");
}

//! The object store of `nlx`'s examples, through one helper: a server and its clients are programs of `nlxd`.
//!
//! `cargo test --workspace` builds the example; where only this test is asked for, `cargo build -p nlx --example object_store`
//! has to come first.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::helper::Helper;
use support::run;

/// Whatever takes longer hangs.
const HUNG: Duration = Duration::from_secs(60);

/// The example, run through a helper.
fn store(helper: &Helper, arguments: &[&str]) -> Command {
    // Programs lie in the folder above.
    let program = Path::new(env!("CARGO_BIN_EXE_nlx")).with_file_name("examples").join("object_store");
    assert!(program.exists(), "not built: cargo build -p nlx --example object_store");
    let mut command = Command::new(program);
    command.arg(format!("--helper={}", helper.socket.display())).args(arguments);
    command
}

#[track_caller]
fn succeeds(helper: &Helper, arguments: &[&str]) -> String {
    let output = store(helper, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < HUNG, "it hangs: {what}");
        std::thread::yield_now();
    }
}

/// S-3, S-6: a server and three clients share a helper; one client is killed in the middle of its bulk, and nobody else
/// notices. When all are gone, nothing is left of them.
#[test]
fn clients_of_one_helper_work_while_one_of_them_is_killed() {
    let helper = Helper::start("tcp(127.71.2.1)", 21_712);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let directory = path("store");
    let mut serving = store(&helper, &["serve", &text(&directory)]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(serving.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Running(serving);
    assert!(line.contains("127.71.2.1@tcp:12345:41:1"), "{line}");

    // A file without content, so large that nobody is done with it.
    let endless = path("endless");
    fs::File::create(&endless).unwrap().set_len(1 << 36).unwrap();
    let dying = Running(store(&helper, &["put", &text(&endless), "endless"]).spawn().unwrap());
    until("nothing is uploaded", || {
        fs::metadata(directory.join(".upload-1")).is_ok_and(|data| data.len() > 0)
    });
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (helper, path) = (&helper, &path);
            scope.spawn(move || {
                for length in [0, 5, 1 << 20, (17 << 20) + 3] {
                    let name = format!("object-{client}-{length}");
                    let (file, copy) = (path(&name), path(&format!("{name}.copy")));
                    fs::write(&file, content(client, length)).unwrap();
                    succeeds(helper, &["put", file.to_str().unwrap(), &name]);
                    succeeds(helper, &["get", &name, copy.to_str().unwrap()]);
                    assert!(fs::read(&copy).unwrap() == content(client, length), "{name} came back changed");
                }
            });
        }
        // By SIGKILL.
        scope.spawn(|| drop(dying));
    });
    let listed = succeeds(&helper, &["list"]);
    assert_eq!(listed.lines().count(), 8, "{listed}");
    let output = store(&helper, &["get", "nothing", &text(&path("copy"))]).output().unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("nothing: No such file or directory"), "{why}");

    drop(server);
    until("something is left over", || {
        let output = run(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        helper.is_idle(&status)
    });
}

//! Nodes of other users that root's `nlx status` asks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::people::{Attacker, User, can_be_others};
use crate::scene::{install, machine_to_itself, program};
use crate::support::peer::hung_unless;

/// Of whom nothing else runs.
const USER: User = User::Attacker(77);

/// The user's folder for sockets.
struct Folder(PathBuf);

impl Folder {
    fn of(user: User) -> Folder {
        let folder = Folder(format!("/tmp/nlx-{}", user.uid()).into());
        let _ = fs::remove_dir_all(&folder.0);
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An answer with TCP sockets that have a linger time of an hour and unsent data: the kernel refuses them. (That it does is seen
/// by `lnet/node/src/status/tests.rs::descriptors_cannot_come_with_an_answer`.)
#[test]
#[ignore = "./test attack"]
fn an_answer_with_sockets_that_linger() {
    let Some((attacker, _folder)) = beside_sockets_that_linger(&[]) else { return };
    attacker.did();
    attacker.kill();
}

/// The same where the kernel lets them pass: they end in a process that is left behind.
#[test]
#[ignore = "./test attack"]
fn an_answer_with_sockets_that_linger_read_by_a_process_of_its_own() {
    let Some((attacker, _folder)) = beside_sockets_that_linger(&["--by-process"]) else { return };
    // Others on this host may have looked, too.
    while attacker.did() != "sent" {}
    attacker.kill();
}

/// `nlx status` ends at its deadline, and says who has not answered.
fn beside_sockets_that_linger(options: &[&str]) -> Option<(Attacker, Folder)> {
    let _machine = machine_to_itself();
    if !can_be_others() {
        nlx_skip::skipped("an answer with sockets that linger", "only root asks the nodes of other users");
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = Folder::of(USER);
    let attacker = install(env!("CARGO_BIN_EXE_nlx-attacker").as_ref(), home.path());
    let mut attacker = Attacker::start_at(&attacker, USER, &folder.0, "127.0.0.1", &["status"]);
    attacker.wait();
    let output = home.path().join("output");
    let mut status = Command::new(program("nlx"));
    status.args(["status", "--timeout", "3", "--json", &attacker.words]).args(options);
    status.env("XDG_RUNTIME_DIR", home.path()).stdin(Stdio::null());
    let mut status = status.stdout(fs::File::create(&output).unwrap()).spawn().unwrap();
    hung_unless("nlx status ends", || {
        std::thread::yield_now();
        status.try_wait().unwrap().is_some()
    });
    let all: Value = serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
    let error = &all["errors"][0];
    assert_eq!(error["errno"], "ETIMEDOUT", "{all}");
    let named = format!("process {}: its node did not answer", attacker.words);
    assert!(error["message"].as_str().unwrap().starts_with(&named), "{error}");
    Some((attacker, folder))
}

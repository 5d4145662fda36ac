//! Attacks on root's `nlx status`, which queries nodes of other users.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::fuse::Fuse;
use crate::people::{Attacker, User, can_be_others};
use crate::scene::{install, machine_to_itself, program};
use crate::support::peer::{PORT, address, hung_unless};

/// A user without other processes.
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

/// An answer with TCP sockets that have a linger time of an hour and unsent data: the kernel
/// refuses them. (`lnet/node/src/status/tests.rs::descriptors_cannot_come_with_an_answer` checks
/// that it does.)
#[test]
#[ignore = "./test attack"]
fn an_answer_with_sockets_that_linger() {
    let Some((attacker, _folder)) = beside_sockets_that_linger(&[]) else { return };
    attacker.did();
    attacker.kill();
}

/// If the kernel delivers the sockets, a separate process receives them, and `nlx status` leaves it
/// behind.
#[test]
#[ignore = "./test attack"]
fn an_answer_with_sockets_that_linger_read_by_a_process_of_its_own() {
    let Some((attacker, _folder)) = beside_sockets_that_linger(&["--accept-descriptors"]) else { return };
    // Other processes on this host may have queried it, too.
    while attacker.did() != "sent" {}
    attacker.kill();
}

/// Runs the attack, and checks that `nlx status` ends at its deadline, and names the node that has
/// not answered.
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
    let all = status(home.path(), &[&[attacker.words.as_str()], options].concat());
    let error = &all["errors"][0];
    assert_eq!(error["errno"], "ETIMEDOUT", "{all}");
    let named = format!("process {}: its node did not answer", attacker.words);
    assert!(error["message"].as_str().unwrap().starts_with(&named), "{error}");
    Some((attacker, folder))
}

/// A user's folder that cannot be listed: its lock is held while a page of the user's FUSE file
/// does not arrive, and another process of the user waits for it. `nlx status` ends at its
/// deadline, names the folder, and shows other users' nodes.
#[test]
#[ignore = "./test attack"]
fn a_folder_that_cannot_be_listed() {
    const NAME: &str = "a folder that cannot be listed";
    let _machine = machine_to_itself();
    if !can_be_others() {
        return nlx_skip::skipped(NAME, "only root asks the nodes of other users");
    }
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let fuse = match Fuse::within(home.path()) {
        Ok(fuse) => fuse,
        Err(reason) => return nlx_skip::skipped(NAME, &reason),
    };
    let (folder, honest) = (Folder::of(USER), Folder::of(User::Honest));
    let node = Node::start(&honest, home.path());
    let attacker = install(env!("CARGO_BIN_EXE_nlx-attacker").as_ref(), home.path());
    let args = fuse.args("fuse-folder", &[]);
    let mut attacker = Attacker::start_at(&attacker, USER, &folder.0, "127.0.0.1", &args);
    attacker.wait();
    let all = status(home.path(), &[]);
    let of_folder = |error: &&Value| {
        let path = folder.0.to_str().unwrap();
        error["message"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{path}: its nodes are not shown: it did not answer"))
    };
    let error = all["errors"].as_array().unwrap().iter().find(of_folder);
    assert_eq!(error.unwrap_or_else(|| panic!("{all}"))["errno"], "ETIMEDOUT");
    let nodes = all["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|found| found["pid"] == node.0.id()), "{all}");
    attacker.kill();
}

/// A node of the honest user.
struct Node(Child);

impl Node {
    /// Starts the node, and waits until it answers queries.
    fn start(folder: &Folder, home: &Path) -> Node {
        let mut command = User::Honest.command(&install(&program("nlx"), home));
        command.args(["serve", "--net", &format!("tcp({})", address()), "--accept-port", &PORT.to_string()]);
        let node = Node(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        hung_unless("the node can be asked", || {
            std::thread::yield_now();
            let mut files = fs::read_dir(&folder.0).into_iter().flatten();
            files.any(|file| !file.unwrap().file_name().as_encoded_bytes().starts_with(b"."))
        });
        node
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the output of `nlx status`, whose user has no folder.
fn status(home: &Path, args: &[&str]) -> Value {
    let output = home.join("output");
    let mut status = Command::new(program("nlx"));
    status.args(["status", "--timeout", "3", "--json"]).args(args);
    status.env("XDG_RUNTIME_DIR", home).stdin(Stdio::null());
    let mut status = status.stdout(fs::File::create(&output).unwrap()).spawn().unwrap();
    hung_unless("nlx status ends", || {
        std::thread::yield_now();
        status.try_wait().unwrap().is_some()
    });
    serde_json::from_slice(&fs::read(&output).unwrap()).unwrap()
}

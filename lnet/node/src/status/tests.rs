//! A node that is looked at, by those who mean well and by others.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::socket::{Backlog, listen};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::Uid;
use tempfile::TempDir;

use super::find::within;
use super::{RunningNode, Server};
use crate::{Node, NodeConfig};

/// Long enough for a machine that has much else to do.
const SOON: Duration = Duration::from_secs(60);

/// A node that answers in a folder of the test's own.
struct Watched {
    folder: TempDir,
    server: Option<Server>,
    node: Node,
}

impl Watched {
    fn new() -> Watched {
        let node = Node::start(&NodeConfig::new()).unwrap();
        let folder = own_folder();
        let server = Some(Server::within(folder.path(), node.view().clone()).unwrap());
        Watched { folder, server, node }
    }

    fn nodes(&self) -> Vec<RunningNode> {
        within(self.folder.path(), Uid::effective())
    }

    fn sockets(&self) -> Vec<PathBuf> {
        fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn read(&self) -> String {
        self.nodes().remove(0).read(Instant::now() + SOON).unwrap()
    }
}

/// A folder that is its owner's alone.
fn own_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_node_tells_what_it_counts() {
    let watched = Watched::new();
    let before = watched.read();
    assert!(before.contains(r#""received":{"messages":0,"bytes":0}"#), "{before}");
    watched.node.ping("0@lo".parse().unwrap(), None, SOON).unwrap();
    let after = watched.read();
    // A GET and its REPLY.
    assert!(after.contains(r#""received":{"messages":2,"#), "{after}");
    let found = watched.nodes();
    assert_eq!((found[0].pid(), found[0].user()), (std::process::id(), Uid::effective().as_raw()));
}

#[test]
fn a_socket_goes_with_its_node() {
    let mut watched = Watched::new();
    assert_eq!(watched.sockets().len(), 1);
    watched.server = None;
    assert!(watched.sockets().is_empty() && watched.nodes().is_empty());
    let node = Node::start(&NodeConfig::new().status(true)).unwrap();
    let path = node.status_socket().unwrap();
    assert!(path.exists());
    node.shutdown(Duration::ZERO);
    assert!(!path.exists() && node.status_socket().is_none());
}

#[test]
fn a_node_that_was_not_told_to_has_no_socket() {
    assert!(Node::start(&NodeConfig::new()).unwrap().status_socket().is_none());
}

/// What a process that was killed has left behind is removed, what is no socket of ours stays.
#[test]
fn stale_sockets_are_removed() {
    let watched = Watched::new();
    let place = |name: &str| watched.folder.path().join(name);
    let (stale, unfinished, forgotten) = (place("1-2-3.sock"), place(".1-2-4"), place(".1-2-5"));
    let leave = |path| drop(UnixListener::bind(path).unwrap());
    [&stale, &unfinished, &forgotten].into_iter().for_each(leave);
    make_old(&forgotten);
    fs::write(place("note.txt"), "").unwrap();
    fs::write(place("x-y.sock"), "").unwrap();
    assert_eq!(watched.nodes().len(), 1);
    assert!(!stale.exists() && !forgotten.exists());
    assert!(unfinished.exists(), "it may be about to listen");
    leave(&stale);
    let _other = Server::within(watched.folder.path(), watched.node.view().clone()).unwrap();
    assert!(!stale.exists(), "the next node removes them too");
    assert!(place("note.txt").exists() && place("x-y.sock").exists());
}

fn make_old(path: &Path) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let then = TimeSpec::from(now - Duration::from_secs(3600));
    utimensat(nix::fcntl::AT_FDCWD, path, &then, &then, UtimensatFlags::FollowSymlink).unwrap();
}

/// Readers that send without end, read nothing, or come in crowds hold up nobody, and cost no descriptor for long.
#[test]
fn readers_that_mean_harm_hold_up_nobody() {
    const CROWD: usize = 50;
    let watched = Watched::new();
    let path = watched.sockets().remove(0);
    watched.read();
    let mut crowd: Vec<UnixStream> = (0..CROWD).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for reader in &mut crowd {
        // It is not read; once its connection is closed, that fails.
        let _ = reader.write(&[b'x'; 4096]);
    }
    let told = watched.read();
    assert!(told.ends_with('}'), "{told}");
    // Each has been answered before: first come, first served.
    for reader in &mut crowd {
        reader.set_read_timeout(Some(SOON)).unwrap();
        let mut text = String::new();
        // What was sent to it and not read makes the end a reset.
        let _ = reader.read_to_string(&mut text);
        assert!(text.starts_with('{'), "{text}");
    }
}

#[test]
fn no_descriptor_is_left_behind() {
    // Others of this process's tests open and close some; a leak of one for each look would stand out.
    const LOOKS: usize = 300;
    let watched = Watched::new();
    let before = descriptors();
    for _ in 0..LOOKS {
        watched.read();
    }
    assert!(descriptors() < before + LOOKS, "{before} before, {} now", descriptors());
}

/// A process that is stopped takes connections, as many as may wait, and does not answer.
#[test]
fn a_process_that_does_not_answer_is_given_up() {
    let folder = own_folder();
    let path = folder.path().join("7-8-9.sock");
    let listener = UnixListener::bind(&path).unwrap();
    // Few are let wait, so that the test needs few descriptors.
    listen(&listener, Backlog::new(2).unwrap()).unwrap();
    let nodes = || within(folder.path(), Uid::effective());
    let given_up = |node: RunningNode| {
        let error = node.read(Instant::now() + Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    };
    given_up(nodes().remove(0));
    let mut waiting = Vec::new();
    loop {
        let node = nodes().remove(0);
        if node.is_refused() {
            break given_up(node);
        }
        waiting.push(node);
    }
}

/// What answers but is no node.
#[test]
fn what_no_node_says_is_refused() {
    let folder = own_folder();
    let listener = UnixListener::bind(folder.path().join("7-8-9.sock")).unwrap();
    let read = |bytes: Vec<u8>| {
        let node = within(folder.path(), Uid::effective()).remove(0);
        let mut stream = listener.accept().unwrap().0;
        // The reader may have heard enough.
        let writer = std::thread::spawn(move || drop(stream.write_all(&bytes)));
        let outcome = node.read(Instant::now() + SOON);
        writer.join().unwrap();
        outcome
    };
    assert_eq!(read(b"{}".to_vec()).unwrap(), "{}");
    assert_eq!(read(vec![0xff]).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(read(vec![b'x'; 2 << 20]).unwrap_err().kind(), std::io::ErrorKind::FileTooLarge);
}

#[test]
fn a_program_adds_members_and_replaces_its_own() {
    let watched = Watched::new();
    watched.node.add_status("helper", || r#"{"clients":1}"#.to_string());
    watched.node.add_status("helper", || r#"{"clients":2}"#.to_string());
    let told = watched.read();
    assert!(told.ends_with(r#","helper":{"clients":2}}"#), "{told}");
}

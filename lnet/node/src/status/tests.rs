//! The status of a node, with benign and hostile readers.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::Uid;
use tempfile::TempDir;

use super::find::{self, Descriptors};
use super::folder::Folder;
use super::{RunningNode, StatusServer};
use crate::{Node, NodeConfig};

/// Time limit of the tests' reads: long enough for a machine under heavy load.
const SOON: Duration = Duration::from_secs(60);

/// A node that answers in a folder of the test.
struct Watched {
    folder: TempDir,
    server: Option<StatusServer>,
    node: Node,
}

impl Watched {
    fn new() -> Watched {
        let node = Node::start(&NodeConfig::new()).unwrap();
        let folder = own_folder();
        let server = Some(StatusServer::within(opened(folder.path()), node.view().clone()).unwrap());
        Watched { folder, server, node }
    }

    fn nodes(&self) -> Vec<RunningNode> {
        within(self.folder.path())
    }

    fn sockets(&self) -> Vec<PathBuf> {
        fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn read(&self) -> String {
        self.nodes().remove(0).read(Instant::now() + SOON).unwrap()
    }
}

/// Returns a folder that only its owner can access.
fn own_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

fn opened(path: &Path) -> Folder {
    Folder::open(path, Uid::effective()).unwrap()
}

/// Queries the sockets in a folder of this user.
fn within(path: &Path) -> Vec<RunningNode> {
    find::query_nodes(&[opened(path)], Descriptors::Refused)
}

/// Returns a name for a socket that this process serves.
fn own_name() -> String {
    format!("{}-8-9.sock", std::process::id())
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
    // The messages are a GET and its REPLY.
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
fn a_node_without_the_option_has_no_socket() {
    assert!(Node::start(&NodeConfig::new()).unwrap().status_socket().is_none());
}

/// Sockets left by a killed process are removed, other files stay.
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
    fs::write(place("3-4-5.sock"), "").unwrap();
    assert_eq!(watched.nodes().len(), 1);
    assert!(!stale.exists() && !forgotten.exists());
    assert!(unfinished.exists(), "it may be about to listen");
    leave(&stale);
    let _other = StatusServer::within(opened(watched.folder.path()), watched.node.view().clone()).unwrap();
    assert!(!stale.exists(), "the next node removes them too");
    for kept in ["note.txt", "x-y.sock", "3-4-5.sock"] {
        assert!(place(kept).exists(), "{kept} is no socket");
    }
}

fn make_old(path: &Path) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let then = TimeSpec::from(now - Duration::from_secs(3600));
    utimensat(nix::fcntl::AT_FDCWD, path, &then, &then, UtimensatFlags::FollowSymlink).unwrap();
}

/// Readers that send without end, read nothing, or connect in large numbers delay no other reader,
/// and occupy no descriptor for long.
#[test]
fn hostile_readers_delay_no_other_reader() {
    const CROWD: usize = 50;
    let watched = Watched::new();
    let path = watched.sockets().remove(0);
    watched.read();
    let mut crowd: Vec<UnixStream> = (0..CROWD).map(|_| UnixStream::connect(&path).unwrap()).collect();
    for reader in &mut crowd {
        // The node does not read the bytes; after it has closed the connection, the write fails.
        let _ = reader.write(&[b'x'; 4096]);
    }
    let text = watched.read();
    assert!(text.ends_with('}'), "{text}");
    // Each reader has its answer already, because the node answers in order.
    for reader in &mut crowd {
        reader.set_read_timeout(Some(SOON)).unwrap();
        let mut text = String::new();
        // Bytes that the node has not read turn the end of the connection into a reset.
        let _ = reader.read_to_string(&mut text);
        assert!(text.starts_with('{'), "{text}");
    }
}

#[test]
fn no_descriptor_is_left_behind() {
    // Other tests of this process open and close some descriptors; a leak of one per search would
    // be visible.
    const LOOKS: usize = 300;
    let watched = Watched::new();
    let before = descriptors();
    for _ in 0..LOOKS {
        watched.read();
    }
    assert!(descriptors() < before + LOOKS, "{before} before, {} now", descriptors());
}

/// A stopped process has connections in its listen queue, and does not answer.
#[test]
fn a_process_that_does_not_answer_is_given_up() {
    let folder = own_folder();
    let path = folder.path().join(own_name());
    let listener = UnixListener::bind(&path).unwrap();
    // The queue is short, so that the test needs few descriptors.
    listen(&listener, Backlog::new(2).unwrap()).unwrap();
    let nodes = || within(folder.path());
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

/// A program that answers but is not a node.
#[test]
fn what_no_node_says_is_refused() {
    let folder = own_folder();
    let listener = UnixListener::bind(folder.path().join(own_name())).unwrap();
    let read = |bytes: Vec<u8>| {
        let node = within(folder.path()).remove(0);
        let mut stream = listener.accept().unwrap().0;
        // An error is ignored: the reader may have closed already.
        let writer = std::thread::spawn(move || drop(stream.write_all(&bytes)));
        let outcome = node.read(Instant::now() + SOON);
        writer.join().unwrap();
        outcome
    };
    assert_eq!(read(b"{}".to_vec()).unwrap(), "{}");
    assert_eq!(read(vec![0xff]).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(read(vec![b'x'; 2 << 20]).unwrap_err().kind(), std::io::ErrorKind::FileTooLarge);
}

/// Writes to the next reader until the reader closes; the thread returns the number of bytes
/// written.
fn write_on(listener: UnixListener, bytes: &'static [u8]) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        std::iter::from_fn(|| stream.write_all(bytes).ok()).count()
    })
}

#[test]
fn an_answer_without_an_end_is_given_up() {
    let folder = own_folder();
    let writer = write_on(UnixListener::bind(folder.path().join(own_name())).unwrap(), &[b'x'; 4096]);
    let error = within(folder.path()).remove(0).read(Instant::now() + SOON).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    writer.join().unwrap();
}

/// The deadline applies to the whole answer: one that comes byte by byte gets no more time.
#[test]
fn an_answer_that_trickles_is_given_up() {
    let folder = own_folder();
    let writer = write_on(UnixListener::bind(folder.path().join(own_name())).unwrap(), b"x");
    let error = within(folder.path()).remove(0).read(Instant::now()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    let written = writer.join().unwrap();
    assert!(written < 1 << 20, "{written} bytes, far less than an answer may have");
}

/// Data that arrived in time is read after the deadline: another node may have used up the time.
#[test]
fn an_answer_that_is_there_is_read_after_the_deadline() {
    let watched = Watched::new();
    let mut nodes = watched.nodes();
    // The thread answers in order, so the second answer comes after the first one.
    let again = watched.nodes().remove(0);
    assert!(again.read(Instant::now() + SOON).unwrap().ends_with('}'));
    assert!(nodes.remove(0).read(Instant::now()).unwrap().ends_with('}'));
}

/// The sender of descriptors can delay their closing without limit.
#[test]
fn descriptors_cannot_come_with_an_answer() {
    use nix::errno::Errno;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::fd::AsRawFd;

    if !find::refuse_descriptors(&find::unconnected().unwrap()) {
        return nlx_skip::skipped("descriptors that come with a status", "the kernel knows no SO_PASSRIGHTS");
    }
    let folder = own_folder();
    let listener = UnixListener::bind(folder.path().join(own_name())).unwrap();
    let node = within(folder.path()).remove(0);
    let mut stream = listener.accept().unwrap().0;
    let rights = [stream.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&rights)];
    let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(b"{")], &control, MsgFlags::empty(), None);
    assert_eq!(sent, Err(Errno::EPERM));
    stream.write_all(b"{}").unwrap();
    drop(stream);
    assert_eq!(node.read(Instant::now() + SOON).unwrap(), "{}");
}

#[test]
fn a_socket_that_names_another_process_is_refused() {
    let folder = own_folder();
    let _listener = UnixListener::bind(folder.path().join("1-8-9.sock")).unwrap();
    let node = within(folder.path()).remove(0);
    assert_eq!((node.pid(), node.is_refused()), (1, true));
    let error = node.read(Instant::now() + SOON).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let reason = format!("process {} of user {} serves this socket", std::process::id(), Uid::effective());
    assert!(error.to_string().ends_with(&reason), "{error}");
}

/// A folder with many sockets does not hide those of other folders, because the folders take turns.
#[test]
fn many_sockets_of_one_folder_hide_no_others() {
    const MANY: usize = 600;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let (crowded, watched) = (own_folder(), Watched::new());
    let first = crowded.path().join(own_name());
    let _listener = UnixListener::bind(&first).unwrap();
    for count in 1..MANY {
        fs::hard_link(&first, crowded.path().join(format!("{}-{count}-0.sock", std::process::id()))).unwrap();
    }
    let nodes =
        find::query_nodes(&[opened(crowded.path()), opened(watched.folder.path())], Descriptors::Refused);
    assert_eq!(nodes.len(), 512);
    let answers =
        nodes.into_iter().filter_map(|node| node.read(Instant::now() + Duration::from_millis(1)).ok());
    assert_eq!(answers.count(), 1, "the node of the other folder is among those that are asked");
}

/// The answers of one user, of any number and the maximum length, are cut at the folder's share of
/// the total limit; the other folder's node is still read.
#[test]
fn long_answers_of_one_folder_leave_others_theirs() {
    const LONG: usize = 1_000_000;
    const MANY: usize = 20;
    let (crowded, watched) = (own_folder(), Watched::new());
    let first = crowded.path().join(own_name());
    let listener = UnixListener::bind(&first).unwrap();
    for count in 1..MANY {
        fs::hard_link(&first, crowded.path().join(format!("{}-{count}-0.sock", std::process::id()))).unwrap();
    }
    let read = |folders: &[Folder]| {
        let nodes = find::query_nodes(folders, Descriptors::Refused);
        let crowd = nodes.len().min(MANY);
        let listener = listener.try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            // An error is ignored: the reader may have closed already.
            (0..crowd).for_each(|_| drop(listener.accept().unwrap().0.write_all(&[b'x'; LONG])));
        });
        let answers: Vec<_> = nodes.into_iter().map(|node| node.read(Instant::now() + SOON)).collect();
        writer.join().unwrap();
        answers
    };
    let lengths = |answers: &[std::io::Result<String>]| {
        answers.iter().flatten().map(String::len).filter(|length| *length == LONG).count()
    };
    let alone = read(&[opened(crowded.path())]);
    assert_eq!((alone.len(), lengths(&alone)), (MANY, find::ANSWERS_MAX / LONG));
    let both = read(&[opened(crowded.path()), opened(watched.folder.path())]);
    assert_eq!((both.len(), lengths(&both)), (MANY + 1, find::ANSWERS_MAX / 2 / LONG));
    assert!(both.iter().flatten().any(|answer| answer.ends_with('}')), "the other folder's node is heard");
    for error in both.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("more than 8388608 bytes together"), "{error}");
    }
}

/// Root reads the folders of others, and changes nothing there.
mod of_others {
    use std::os::unix::fs::{chown, symlink};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use nix::unistd::{setfsgid, setfsuid};

    use super::*;

    const USER: u32 = 65_432;

    fn is_root(what: &str) -> bool {
        let root = Uid::effective().is_root();
        if !root {
            nlx_skip::skipped(what, "only root looks into the folders of others");
        }
        root
    }

    /// Runs `work` as another user, in a separate thread: the system checks files by the user of
    /// the thread.
    fn as_user<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
        thread::spawn(move || {
            setfsgid(USER.into());
            setfsuid(USER.into());
            work()
        })
    }

    /// Returns a folder of the user, below one in which that user may rename it.
    fn home_of_user() -> TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        chown(home.path(), Some(USER), Some(USER)).unwrap();
        let folder = home.path().join("nlx");
        as_user(move || fs::create_dir(&folder).unwrap()).join().unwrap();
        fs::set_permissions(home.path().join("nlx"), fs::Permissions::from_mode(0o700)).unwrap();
        home
    }

    fn open(path: &Path) -> Result<Folder, nix::errno::Errno> {
        Folder::open(path, USER.into())
    }

    #[test]
    fn their_dead_sockets_stay_and_those_that_root_serves_are_not_theirs() {
        if !is_root("status sockets of other users") {
            return;
        }
        let home = home_of_user();
        let folder = home.path().join("nlx");
        let place = |name: &str| folder.join(name);
        let bind = |name: &str| {
            let path = place(name);
            let listener = UnixListener::bind(&path).unwrap();
            chown(&path, Some(USER), Some(USER)).unwrap();
            listener
        };
        drop(bind("1-2-3.sock"));
        drop(bind(".1-2-4"));
        make_old(&place(".1-2-4"));
        let _listener = bind(&own_name());
        // The socket belongs to root, and lies in a folder of another user.
        let _other = UnixListener::bind(place(&format!("{}-0-0.sock", std::process::id()))).unwrap();
        let nodes = find::query_nodes(&[open(&folder).unwrap()], Descriptors::Refused);
        assert_eq!(nodes.len(), 1);
        assert!(nodes[0].is_refused(), "the folder is the user's, and the process is root's");
        assert!(place("1-2-3.sock").exists() && place(".1-2-4").exists());
    }

    /// Another user replaces the folder by a link to a private folder, and back, while root
    /// searches.
    #[test]
    fn a_folder_that_becomes_a_link_leads_nowhere() {
        const LOOKS: usize = 500;
        if !is_root("a folder that another user replaces by a link") {
            return;
        }
        let home = home_of_user();
        let (folder, link) = (home.path().join("nlx"), home.path().join("link"));
        let private = own_folder();
        let names = ["1-2-3.sock", ".1-2-4"];
        for name in names {
            for folder in [&folder, private.path()] {
                drop(UnixListener::bind(folder.join(name)).unwrap());
                make_old(&folder.join(name));
            }
            chown(folder.join(name), Some(USER), Some(USER)).unwrap();
        }
        let target = private.path().to_path_buf();
        let (swaps, ending) =
            (std::sync::Arc::new(AtomicUsize::new(0)), std::sync::Arc::new(AtomicBool::new(false)));
        let (counted, ended) = (swaps.clone(), ending.clone());
        let (one, other) = (folder.clone(), link.clone());
        let swapper = as_user(move || {
            symlink(target, &other).unwrap();
            while !ended.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (mut entered, mut refused) = (0, 0);
        while entered < LOOKS || refused < LOOKS || swaps.load(Ordering::Relaxed) < LOOKS {
            match open(&folder) {
                Ok(folder) => {
                    assert!(find::query_nodes(&[folder], Descriptors::Refused).is_empty());
                    entered += 1;
                }
                Err(_) => refused += 1,
            }
        }
        ending.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        let theirs = if fs::symlink_metadata(&folder).unwrap().is_dir() { folder } else { link };
        for name in names {
            assert!(private.path().join(name).exists() && theirs.join(name).exists(), "{name}");
        }
    }
}

#[test]
fn a_program_adds_members_and_replaces_its_own() {
    let watched = Watched::new();
    watched.node.add_status("helper", || r#"{"clients":1}"#.to_string());
    watched.node.add_status("helper", || r#"{"clients":2}"#.to_string());
    let text = watched.read();
    assert!(text.ends_with(r#","helper":{"clients":2}}"#), "{text}");
}

//! `nlxd`, as a process: its socket, who may connect, start and end, its notifications of systemd.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use lnet_cpt::{CptTable, CpuSet, Topology};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, recv, send, sendmsg, socket,
};
use nix::unistd::Uid;
use nlx_driver_proto::{Header, Hello, Reason, Reply, Request};
use serde_json::Value;
use support::{Server, complaint, free_port, nlx, until};
use tempfile::TempDir;

/// A folder of the test with a socket, and the status sockets beside it.
struct Place {
    folder: TempDir,
    address: Ipv4Addr,
}

impl Place {
    fn new(last: u8) -> Place {
        let folder = tempfile::tempdir().unwrap();
        // Other users than root must reach the socket, too.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Place { folder, address: Ipv4Addr::new(127, 8, 1, last) }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("nlxd.sock")
    }

    fn within(&self, mut command: Command) -> Command {
        command.env("XDG_RUNTIME_DIR", self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Returns the command of `nlxd` with the common arguments.
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nlxd"));
        command.args(["--net", &format!("tcp({})", self.address)]);
        command.args(["--accept-port", &free_port(self.address).to_string()]).args(more);
        self.within(command)
    }

    fn named(&self, more: &[&str]) -> Command {
        let mut command = self.command(more);
        command.arg("--socket").arg(self.socket());
        command
    }

    fn start(&self, more: &[&str]) -> Server {
        Server::start(self.named(more))
    }

    fn configured(&self, text: &str) -> Server {
        let file = self.folder.path().join("nlxd.toml");
        fs::write(&file, text).unwrap();
        self.start(&["--config", file.to_str().unwrap()])
    }

    fn refused(&self, more: &[&str]) -> String {
        let output = self.named(more).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
        complaint(&output)
    }

    /// Returns the output of another user who connects `clients` times.
    fn try_as_an_unprivileged_user(&self, clients: usize) -> String {
        const NOBODY: u32 = 65_534;
        let shared = self.folder.path().join("client");
        // Copied by another process: a child that another test forks at this moment would inherit the
        // descriptor that is open for writing, and the file could not be executed.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&shared).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        let mut child = Command::new(&shared);
        child.args(["--exact", "as_a_client", "--nocapture"]).env("NLXD_SOCKET", self.socket());
        child.env("NLXD_CLIENTS", clients.to_string());
        String::from_utf8(child.uid(NOBODY).gid(NOBODY).output().unwrap().stdout).unwrap()
    }

    fn status(&self, server: &Server) -> Value {
        let command = nlx(&["status", &server.pid().to_string(), "--json", "--timeout", "60"]);
        let output = self.within(command).output().unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        all["nodes"][0]["helper"].clone()
    }

    /// Polls until the status meets the condition; a test that hangs is ended from outside.
    fn until(&self, server: &Server, says: impl Fn(&Value) -> bool) -> Value {
        loop {
            let helper = self.status(server);
            if says(&helper) {
                return helper;
            }
        }
    }
}

/// Connects, without sending anything.
fn attach(path: &Path) -> Result<OwnedFd, Errno> {
    let client = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    connect(client.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(client)
}

/// Sends a request; returns the reply, or `None` for the end of the connection.
fn ask(client: &OwnedFd, request: &Request) -> Option<Reply> {
    let mut packet = Vec::new();
    request.write(7, &mut packet);
    exchange(client, &packet)
}

fn exchange(client: &OwnedFd, packet: &[u8]) -> Option<Reply> {
    send(client.as_raw_fd(), packet, MsgFlags::MSG_NOSIGNAL).ok()?;
    let mut bytes = [0; 8192];
    let length = recv(client.as_raw_fd(), &mut bytes, MsgFlags::empty()).ok().filter(|length| *length > 0)?;
    Some(Reply::read(&bytes[..length]).unwrap().1)
}

fn hello(client: &OwnedFd) -> Option<Reply> {
    ask(client, &Request::Hello(Hello::new("a test")))
}

fn is_welcome(reply: &Option<Reply>) -> bool {
    matches!(reply, Some(Reply::Welcome(_)))
}

/// The socket takes the place of a device file: accessible for its owner and group, or by the
/// configured mode.
// Covers: S-6, MT-43
#[test]
fn the_socket_is_its_owners_and_shut_to_others() {
    let place = Place::new(1);
    let server = place.start(&[]);
    let found = fs::symlink_metadata(place.socket()).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!((found.mode() & 0o777, found.uid()), (0o660, Uid::effective().as_raw()));
    drop(server);
    let server = place.start(&["--mode", "0622"]);
    assert_eq!(fs::symlink_metadata(place.socket()).unwrap().mode() & 0o777, 0o622);
    drop(server);
}

/// In a folder that is open to all, another user tries to connect to the socket before it has its
/// name, while helpers start: the socket has its mode before it listens.
#[test]
fn a_socket_that_is_being_made_is_shut_too() {
    const STARTS: usize = 10;
    if !Uid::effective().is_root() {
        return nlx_skip::skipped("a socket that is being made", "needs root, who can be another user too");
    }
    let place = Place::new(25);
    let new = place.folder.path().join(".nlxd.sock.new");
    let (ending, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (ended, tried) = (ending.clone(), tries.clone());
    let stranger = std::thread::spawn(move || {
        // The system checks files by the user of the thread.
        nix::unistd::setfsgid(65_434.into());
        nix::unistd::setfsuid(65_434.into());
        let mut entered = 0;
        while !ended.load(Ordering::Relaxed) {
            let outcome = attach(&new);
            tried.fetch_add(
                usize::from(outcome.as_ref().is_err_and(|errno| *errno != Errno::ENOENT)),
                Ordering::Relaxed,
            );
            entered += usize::from(outcome.is_ok());
        }
        entered
    });
    for _ in 0..STARTS {
        let server = place.start(&[]);
        server.signal(Signal::SIGTERM);
        server.end();
    }
    ending.store(true, Ordering::Relaxed);
    assert_eq!(stranger.join().unwrap(), 0, "of {} that found it", tries.load(Ordering::Relaxed));
}

/// A user who may connect is welcomed, gets the limits, is shown while connected, and leaves
/// nothing.
// Covers: S-3, MT-44, MT-47
#[test]
fn a_client_comes_and_goes_and_leaves_nothing() {
    let place = Place::new(2);
    let mut server = place.start(&[]);
    let client = attach(&place.socket()).unwrap();
    let Some(Reply::Welcome(welcome)) = hello(&client) else { panic!("no welcome") };
    assert!(welcome.limits.buffers_max > 1 && welcome.tms_max > 1 && welcome.operations_max > 1);
    let helper = place.until(&server, |helper| helper["clients"] == 1);
    let seen = &helper["list"][0];
    assert_eq!((&seen["name"], &seen["pid"]), (&"a test".into(), &std::process::id().into()));
    assert_eq!(seen["uid"], Uid::effective().as_raw());
    drop(client);
    let helper = place.until(&server, |helper| helper["clients"] == 0 && helper["door"]["connected"] == 0);
    assert_eq!(helper["totals"]["clients"], 1);
    for left in ["tms", "eqs", "arenas", "bytes"] {
        assert_eq!(helper["leftovers"][left], 0, "{helper}");
    }
    server.signal(Signal::SIGTERM);
    assert!(server.line().starts_with("stopped after "));
    assert!(server.end().0.success());
    let left = fs::read_dir(place.folder.path().join("nlx")).map_or(0, Iterator::count);
    assert_eq!((place.socket().exists(), left), (false, 0), "no name is left");
}

/// A process without the right cannot connect: by the socket's mode, by the list of users, by a
/// policy.
// Covers: MT-44
#[test]
fn users_without_the_right_are_refused() {
    if !Uid::effective().is_root() {
        return nlx_skip::skipped(
            "users without the right to connect to nlxd",
            "only root can become another user",
        );
    }
    let try_as_an_unprivileged_user = |place: &Place| place.try_as_an_unprivileged_user(1);
    let place = Place::new(3);
    let server = place.start(&[]);
    assert!(try_as_an_unprivileged_user(&place).contains("connect: EACCES"));
    drop(server);
    let server = place.configured("[helper]\nmode = \"0666\"\nusers = [\"root\"]\n");
    assert!(try_as_an_unprivileged_user(&place).contains("refused: EPERM User"));
    assert!(is_welcome(&hello(&attach(&place.socket()).unwrap())));
    assert_eq!(place.status(&server)["door"]["refused_users"], 1);
    drop(server);
    let server = place.configured("[helper]\nmode = \"0666\"\n");
    assert!(try_as_an_unprivileged_user(&place).contains("welcome"));
    drop(server);
    let _server =
        place.configured("[helper]\nmode = \"0666\"\n[[helper.policy]]\nuser = 65534\nconnect = false\n");
    assert!(try_as_an_unprivileged_user(&place).contains("refused: EPERM User"));
}

/// Each serving thread runs on the CPUs of the partition whose shards it drives; and the spin limit
/// is the configured one.
// Covers: S-312
#[test]
fn serving_threads_run_where_their_shards_are() {
    let place = Place::new(40);
    let cpus = |path: PathBuf| {
        let status = fs::read_to_string(path.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.and_then(|list| list.trim().parse::<CpuSet>().ok())
    };
    let all = cpus("/proc/self".into()).unwrap();
    let table = CptTable::create(Topology::machine().unwrap(), all.len().min(2)).unwrap();
    let mut expected: Vec<_> = (0..table.partitions()).map(|cpt| table.cpumask(cpt).clone()).collect();
    expected.sort_by_key(ToString::to_string);
    let (partitions, threads) = (table.partitions(), table.partitions());
    let text = format!(
        "[lnet]\ncpu_npartitions = {partitions}\n[nlx]\nspin_us = 9\n[helper]\nthreads = {threads}\n"
    );
    let server = place.configured(&text);
    support::until("the threads are bound", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let serving = tasks.map(|task| task.unwrap().path()).filter(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("nlx-serve-"))
        });
        let mut found: Vec<_> = serving.filter_map(cpus).collect();
        found.sort_by_key(ToString::to_string);
        found == expected
    });
    let command = nlx(&["status", &server.pid().to_string(), "--json", "--timeout", "60"]);
    let output = place.within(command).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&status["nodes"][0]["spin_us"], &status["nodes"][0]["partitions"]),
        (&9.into(), &partitions.into())
    );
}

/// A user may have a limited number of clients at a time; they take no place from another user, and
/// root has no such limit.
// Covers: MT-237
#[test]
fn a_user_has_so_many_clients() {
    let place = Place::new(12);
    let server = place.configured("[helper]\nmode = \"0666\"\nclients_per_user_max = 2\n");
    let mine: Vec<_> = (0..3).map(|_| attach(&place.socket()).unwrap()).collect();
    let welcomes: Vec<_> = mine.iter().map(|client| is_welcome(&hello(client))).collect();
    let is_root = Uid::effective().is_root();
    assert_eq!(welcomes, [true, true, is_root]);
    if is_root {
        let told = place.try_as_an_unprivileged_user(4);
        let count = |words: &str| told.matches(words).count();
        assert_eq!((count("welcome"), count("refused: EUSERS Clients")), (2, 2), "{told}");
    } else {
        nlx_skip::skipped("clients of two users at their limits", "only root can become another user");
    }
    place.until(&server, |helper| helper["door"]["refused_clients"] == if is_root { 2 } else { 1 });
}

/// Not a test by itself: the process of another user.
#[test]
fn as_a_client() {
    let Some(path) = std::env::var_os("NLXD_SOCKET") else { return };
    let count: usize = std::env::var("NLXD_CLIENTS").unwrap().parse().unwrap();
    let clients: Vec<_> = (0..count).map(|_| attach(Path::new(&path))).collect();
    for client in &clients {
        match client.as_ref().map(hello) {
            Err(errno) => println!("connect: {errno:?}"),
            Ok(Some(Reply::Refused(refusal))) => {
                println!("refused: {:?} {:?}", refusal.errno, refusal.reason)
            }
            Ok(reply) if is_welcome(&reply) => println!("welcome"),
            Ok(reply) => println!("{reply:?}"),
        }
    }
}

/// The status of a running helper for an operator: its clients, by name, and refusals.
// Covers: S-6
#[test]
fn the_status_is_printed_in_words() {
    let place = Place::new(13);
    let server = place.start(&[]);
    let text = || {
        let command = nlx(&["status", &server.pid().to_string(), "--timeout", "60"]);
        let output = place.within(command).output().unwrap();
        assert!(output.status.success(), "{}", complaint(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = text();
    assert!(shown.contains(&format!("nlxd, process {}: up ", server.pid())), "{shown}");
    let line = |count: u32, all: u32| {
        let socket = place.socket();
        let clients = if count == 1 { "client" } else { "clients" };
        format!("helper       {}: {count} {clients}, {all} since the start, ", socket.display())
    };
    assert!(shown.contains(&line(0, 0)) && !shown.contains("a test"), "{shown}");
    let clients = [(); 2].map(|()| attach(&place.socket()).unwrap());
    assert!(clients.iter().all(|client| is_welcome(&hello(client))));
    assert!(matches!(hello(&clients[0]), Some(Reply::Refused(_))), "that is not how to break the rules");
    assert!(exchange(&clients[0], &[1]).is_none(), "but this is");
    place.until(&server, |helper| helper["clients"] == 1);
    let shown = text();
    assert!(shown.contains(&line(1, 2)), "{shown}");
    let row = shown.lines().find(|line| line.contains("a test")).unwrap_or_else(|| panic!("{shown}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    for number in [std::process::id(), Uid::effective().as_raw()] {
        assert!(cells.contains(&number.to_string().as_str()), "{number}: {row}");
    }
    assert!(shown.contains("refused      ") && shown.contains("clients cut off: 1"), "{shown}");
    assert!(!shown.contains("left over"), "{shown}");
}

/// Returns whether a client is served: it has not sealed its ring, and gets that refusal.
fn is_answered(client: &OwnedFd) -> bool {
    matches!(ask(client, &Request::Sync), Some(Reply::Refused(refusal)) if refusal.reason == Reason::Unsealed)
}

/// An invalid request is refused with an errno, and an invalid packet ends the connection; no other
/// client notices.
// Covers: MT-45, MT-46
#[test]
fn what_is_no_request_is_refused() {
    let place = Place::new(4);
    let server = place.start(&[]);
    let honest = attach(&place.socket()).unwrap();
    assert!(is_welcome(&hello(&honest)));
    let client = attach(&place.socket()).unwrap();
    let mut packet = Vec::new();
    Request::Sync.write(1, &mut packet);
    packet[0] = 0x50;
    let refused = |reply: Option<Reply>| match reply {
        Some(Reply::Refused(refusal)) => refusal,
        reply => panic!("{reply:?}"),
    };
    assert!(is_welcome(&hello(&client)));
    assert_eq!(refused(exchange(&client, &packet)).errno, Errno::ENOTTY);
    assert_eq!(refused(hello(&client)).reason, Reason::Order);
    assert!(exchange(&client, &[1; Header::LEN - 1]).is_none(), "that is no packet");
    // The first request must be a hello; read and write are those of a socket.
    let client = attach(&place.socket()).unwrap();
    assert_eq!(refused(ask(&client, &Request::Sync)).reason, Reason::Order);
    assert!(is_answered(&honest));
    assert_eq!(place.until(&server, |helper| helper["door"]["cut_off"] == 1)["door"]["unread"], 0);
}

/// Descriptors beside a request that has none, of any kind and up to the largest number in a
/// packet, end the connection.
#[test]
fn unrequested_descriptors_end_the_connection() {
    let place = Place::new(5);
    let server = place.start(&[]);
    let open = || fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let before = open();
    for _ in 0..4 {
        let client = attach(&place.socket()).unwrap();
        assert!(is_welcome(&hello(&client)));
        let fds = vec![client.as_raw_fd(); 253];
        let mut packet = Vec::new();
        Request::Sync.write(1, &mut packet);
        let rights = [nix::sys::socket::ControlMessage::ScmRights(&fds)];
        let bytes = [IoSlice::new(&packet)];
        // The kernel refuses them, or the helper does.
        if sendmsg::<()>(client.as_raw_fd(), &bytes, &rights, MsgFlags::empty(), None).is_ok() {
            let mut reply = [0; 8192];
            assert!(matches!(recv(client.as_raw_fd(), &mut reply, MsgFlags::empty()), Ok(0) | Err(_)));
        }
    }
    until("the helper has closed them", || open() <= before);
    let client = attach(&place.socket()).unwrap();
    assert!(is_welcome(&hello(&client)));
    assert!(is_answered(&client));
}

/// A killed helper leaves its name; the next one takes it over, while a running one keeps it.
#[test]
fn a_killed_helpers_name_is_taken_over_and_a_running_ones_is_not() {
    let place = Place::new(6);
    let first = place.start(&[]);
    let told = place.refused(&[]);
    assert!(told.contains(&format!("(pid {})", first.pid())) && told.contains("nlxd.sock"), "{told}");
    assert!(is_welcome(&hello(&attach(&place.socket()).unwrap())), "the first one is still there");
    first.signal(Signal::SIGKILL);
    first.end();
    // The porter shuts the socket down once it sees that the helper is gone.
    until("the socket is shut down", || attach(&place.socket()).err() == Some(Errno::ECONNREFUSED));
    let second = place.start(&[]);
    assert!(is_welcome(&hello(&attach(&place.socket()).unwrap())));
    drop(second);
    // Files that are not a helper's are left alone.
    fs::remove_file(place.socket()).unwrap();
    fs::write(place.socket(), "mine").unwrap();
    assert!(place.refused(&[]).contains("EEXIST"));
    assert_eq!(fs::read_to_string(place.socket()).unwrap(), "mine");
    fs::remove_file(place.socket()).unwrap();
    let _other = nlx_helper::service::bind(&place.socket()).unwrap();
    assert!(place.refused(&[]).contains("another program listens there"));
}

/// Of several helpers that start at once with the same socket, exactly one serves.
#[test]
fn of_helpers_that_start_together_one_gets_the_name() {
    let place = Place::new(7);
    let starts =
        (0..4).map(|_| place.named(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut children: Vec<_> = starts.collect();
    let mut serving = 0;
    for child in &mut children {
        let mut first = [0; 7];
        let count = child.stdout.take().unwrap().read(&mut first).unwrap();
        serving += usize::from(&first[..count] == b"serving");
    }
    assert_eq!(serving, 1);
    for mut child in children {
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[test]
fn an_invalid_configuration_is_reported_with_its_line() {
    let place = Place::new(8);
    let file = place.folder.path().join("nlxd.toml");
    let file = file.to_str().unwrap();
    fs::write(file, "[helper]\nthreads = 2\nclients_max = 0\n").unwrap();
    let told = place.refused(&["--config", file]);
    for word in [file, "line 3", "'clients_max'", "'0'", "1 to "] {
        assert!(told.contains(word), "{word}: {told}");
    }
    fs::write(file, "[helper]\nthreads = 2\n").unwrap();
    let checked = place.named(&["--config", file, "--check"]).output().unwrap();
    assert!(checked.status.success() && !place.socket().exists());
    let long = place.folder.path().join("x".repeat(120));
    let mut command = place.command(&[]);
    let output = command.arg("--socket").arg(long).output().unwrap();
    for word in ["--socket", "can have 102", "ENAMETOOLONG"] {
        assert!(complaint(&output).contains(word), "{word}: {}", complaint(&output));
    }
    assert_eq!(place.named(&["--mode", "rw"]).output().unwrap().status.code(), Some(1));
    assert_eq!(place.named(&["--threads", "many"]).output().unwrap().status.code(), Some(2));
}

/// systemd is notified when the service is ready, that it lives, and when it ends; the notification
/// socket may be in the file system or abstract.
#[test]
fn systemd_is_notified() {
    let place = Place::new(9);
    let path = place.folder.path().join("notify");
    let name = format!("nlxd-test-{}", std::process::id());
    let in_files = (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_string());
    let abstracted = SocketAddr::from_abstract_name(&name).unwrap();
    let abstracted = (UnixDatagram::bind_addr(&abstracted).unwrap(), format!("@{name}"));
    for (socket, name) in [in_files, abstracted] {
        let mut command = place.named(&[]);
        command.env("NOTIFY_SOCKET", name).env("WATCHDOG_USEC", "100000");
        let server = Server::start(command);
        let next = || {
            let mut bytes = [0; 512];
            let length = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let ready = next();
        assert!(ready.starts_with("READY=1\n") && ready.contains(&place.address.to_string()), "{ready}");
        for _ in 0..2 {
            assert!(next().starts_with("WATCHDOG=1\n"));
        }
        server.signal(Signal::SIGHUP);
        server.signal(Signal::SIGTERM);
        while !next().starts_with("STOPPING=1\n") {}
        assert!(server.end().0.success());
    }
}

/// A socket that systemd has created is used, with earlier connections to it; and its name is not
/// removed.
#[test]
fn a_socket_can_be_handed_over() {
    let activate = Path::new("/usr/bin/systemd-socket-activate");
    if !activate.exists() {
        return nlx_skip::skipped("a socket from systemd", "the package systemd is not installed");
    }
    let place = Place::new(10);
    let mut command = Command::new(activate);
    command.arg("--seqpacket").arg("-l").arg(place.socket()).arg(env!("CARGO_BIN_EXE_nlxd"));
    command.args(["--net", &format!("tcp({})", place.address), "--accept-port"]);
    command.arg(free_port(place.address).to_string()).stdout(Stdio::piped());
    let mut child = place.within(command).spawn().unwrap();
    let client = loop {
        if let Ok(client) = attach(&place.socket()) {
            break client;
        }
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
    };
    assert!(is_welcome(&hello(&client)), "it was started by this client");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(place.socket().exists());
    let mut stale = Command::new(env!("CARGO_BIN_EXE_nlxd"));
    stale.args(["--check", "--net", &format!("tcp({})", place.address)]);
    stale.env("LISTEN_PID", "1").env("LISTEN_FDS", "1");
    assert!(place.within(stale).output().unwrap().status.success(), "that is another's");
}

/// systemd accepts the units.
#[test]
fn the_units_are_right() {
    let analyze = Path::new("/usr/bin/systemd-analyze");
    if !analyze.exists() {
        return nlx_skip::skipped("the systemd units", "the package systemd is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd");
    for unit in ["nlxd.service", "nlxd.socket"] {
        // The program is not installed at its final path.
        let text = fs::read_to_string(units.join(unit)).unwrap();
        let text = text.replace("/usr/bin/nlxd", env!("CARGO_BIN_EXE_nlxd"));
        fs::File::create(folder.path().join(unit)).unwrap().write_all(text.as_bytes()).unwrap();
    }
    let mut command = Command::new(analyze);
    command
        .args(["verify", "--man=no"])
        .args(["nlxd.service", "nlxd.socket"].map(|unit| folder.path().join(unit)));
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", complaint(&output));
    let mut command = Command::new(analyze);
    command.args(["security", "--offline=true", "--threshold=20"]).arg(folder.path().join("nlxd.service"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The installed example file is valid.
#[test]
fn the_example_configuration_is_right() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/nlxd.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nlxd"));
    let output =
        command.arg("--config").arg(file).args(["--net", "tcp(127.8.1.99)", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", complaint(&output));
}

/// The manual page agrees with the help.
#[test]
fn there_is_a_manual_page_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let nlxd = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_nlxd")).args(args).output().unwrap();
    assert!(nlxd(&["--man", folder.path().to_str().unwrap()]).status.success());
    let page = fs::read_to_string(folder.path().join("nlxd.8")).unwrap().replace(['\\', '"'], "");
    for word in [".SH EXAMPLES", ".SH EXIT STATUS", "--busy-poll-us", "--socket", "nlx-status(1)"] {
        assert!(page.contains(word), "{word}");
    }
    let completions = nlxd(&["--completions", "bash"]);
    assert!(String::from_utf8(completions.stdout).unwrap().contains("busy-poll-us"));
}

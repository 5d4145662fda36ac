//! The end of a node, with peers in any state.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(unreachable_pub, reason = "raw peers are a module of tests alone")]

mod raw;

use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lnet_api::{Errno, Event, EventKind, LNet};
use lnet_nid::{MatchBits, Net, Nid, Pid, Portal, ProcessId};
use lnet_node::{DiscoverOptions, Node, NodeConfig, PUSH_BACK_NS, Pushed, holder_of};
use lnet_socklnd::ConnStep;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, socket};
use nlx_testkit::buffers::whole;
use nlx_testkit::station::Station;
use nlx_testkit::{TIME_LIMIT, until};
use raw::Manners;

const PORT: u16 = 21_948;
/// A length greater than the buffers of a connection hold.
const LONG: usize = 1 << 20;

fn config(address: Ipv4Addr) -> NodeConfig {
    let mut config = NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(PORT);
    config.tcp().tx_buffer_size = 16 << 10;
    config
}

fn id(address: Ipv4Addr) -> ProcessId {
    ProcessId { nid: Nid::new_v4(Net::TCP, address), pid: Pid::LNET }
}

/// An address that answers no SYN: its listen queue is full.
struct Deaf {
    _listener: OwnedFd,
    _waiting: TcpStream,
}

impl Deaf {
    fn at(address: Ipv4Addr) -> Deaf {
        let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let address = SocketAddrV4::new(address, PORT);
        bind(listener.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        // A queue of length 0 takes one connection.
        Deaf { _listener: listener, _waiting: TcpStream::connect(address).unwrap() }
    }
}

/// A node with all kinds of unfinished operations.
struct Trouble {
    station: Station,
    /// A node that has sent `station` a message that waits for a buffer.
    sender: Station,
    _deaf: Deaf,
}

/// The numbers by which the test identifies the station's operations.
const STUCK: u64 = 1;
const CONNECTING: u64 = 2;

impl Trouble {
    fn begin(subnet: u8) -> Trouble {
        let [own, sender, reader, deaf] = [1, 2, 3, 4].map(|host| Ipv4Addr::new(127, 48, subnet, host));
        let portal = Portal::new(30).unwrap();
        let [station, sender] = [own, sender].map(|address| Station::start(&config(address)));
        station.lnet.set_lazy(portal, true);
        sender.begin_put(id(own), portal, MatchBits(0), &whole(LONG / 16), 0);
        sender.expect(EventKind::Send);
        until("a delayed message", || station.node.counters().msgs_alloc > 0);

        let seen = raw::start(PORT, Manners { reads_payloads: false, ..Manners::of(reader) });
        station.begin_put(id(reader), portal, MatchBits(0), &whole(LONG), STUCK);
        until("a message that is stuck", || seen.stuck.load(Ordering::SeqCst) == 1);

        let _deaf = Deaf::at(deaf);
        station.begin_put(id(deaf), portal, MatchBits(0), &whole(1), CONNECTING);
        until("an attempt to connect", || {
            station.node.tcp().progress(id(deaf).nid) == Some(ConnStep::Connect)
        });
        Trouble { station, sender, _deaf }
    }

    /// Ends the station, and checks the state left behind.
    fn end(self, end: impl FnOnce(&mut Station)) {
        let Trouble { mut station, sender, _deaf } = self;
        let own = station.id();
        assert!(holder_of(own.nid).is_some());
        end(&mut station);
        let Station { node, lnet, log, .. } = station;
        let rest: Weak<dyn LNet> = Arc::downgrade(&lnet);
        drop((node, lnet));
        assert!(rest.upgrade().is_none(), "a thread or a connection of the node is left");
        assert_eq!(holder_of(own.nid), None);
        let events = log.take();
        for number in [STUCK, CONNECTING] {
            let of: Vec<&Event> = events.iter().filter(|event| event.user_ptr == number).collect();
            let errors: Vec<Errno> = of.iter().filter_map(|event| event.status.err()).collect();
            assert_eq!(errors, [Errno::ESHUTDOWN], "{of:?}");
            assert_eq!(of.iter().filter(|event| event.unlinked).count(), 1, "{of:?}");
        }
        // The peer gets the error, and the node can start again.
        sender.wait_for("the sender's error", |event| event.status.is_err());
        let again = Station::start(&config(own.nid.ip().and_then(ipv4).unwrap()));
        let from = sender.id().nid;
        until("the next life", || again.node.ping(from, None, TIME_LIMIT).is_ok());
    }
}

fn ipv4(address: std::net::IpAddr) -> Option<Ipv4Addr> {
    match address {
        std::net::IpAddr::V4(address) => Some(address),
        std::net::IpAddr::V6(_) => None,
    }
}

/// A shutdown with a short drain ends three messages: one that waits for a buffer, one that is
/// partly sent, and one whose connection is never answered.
#[test]
fn a_shutdown_ends_what_cannot_be_finished() {
    Trouble::begin(1).end(|station| station.node.shutdown(Duration::from_millis(20)));
}

/// Dropping a node also ends all its operations.
#[test]
fn a_node_that_is_dropped_leaves_nothing_behind() {
    Trouble::begin(2).end(|_| ());
}

/// A node that ends while it completes a peer's connection set finishes the handshakes: a kernel
/// node logs a complaint about an interrupted one.
#[test]
fn a_shutdown_lets_handshakes_finish() {
    let [own, peer] = [1, 2].map(|host| Ipv4Addr::new(127, 48, 3, host));
    let seen = raw::start(PORT, Manners { hesitates: true, asks_first: false, ..Manners::of(peer) });
    let station = Station::start(&config(own));
    station.node.ping(id(peer).nid, None, TIME_LIMIT).unwrap();
    station.node.shutdown(TIME_LIMIT);
    assert_eq!(seen.hellos.load(Ordering::SeqCst), 3, "CONTROL, BULK_IN and BULK_OUT");
    until("all connections end", || {
        [&seen.ends, &seen.broken].iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>() == 3
    });
    assert_eq!(seen.broken.load(Ordering::SeqCst), 0);
}

/// Starts a node that pushes to one that pushes back, or does not, and ends at once. Returns the
/// duration of both by the node's clock.
fn push_and_end(subnet: u8, pushes_back: Option<Duration>, end: impl FnOnce(Node)) -> (Arc<raw::Seen>, u64) {
    let [own, peer] = [1, 2].map(|host| Ipv4Addr::new(127, 48, subnet, host));
    let seen = raw::start(PORT, Manners { asks_first: false, pushes_back, ..Manners::of(peer) });
    let node = Node::start(&config(own)).unwrap();
    let drive = node.drive();
    let begun_ns = drive.now_ns();
    let options = DiscoverOptions { push: true, timeout: TIME_LIMIT, ..DiscoverOptions::default() };
    let found = node.discover(id(peer).nid, &options).unwrap();
    assert!(matches!(found.pushed, Pushed::Acknowledged { .. }));
    end(node);
    let took_ns = drive.now_ns() - begun_ns;
    until("all connections end", || {
        let ends = [&seen.ends, &seen.broken].map(|count| count.load(Ordering::SeqCst));
        let ended = ends.iter().sum::<usize>();
        ended > 0 && ended >= seen.hellos.load(Ordering::SeqCst)
    });
    (seen, took_ns)
}

/// lnet-measured, "Push from an unknown NID": a kernel node pushes back, and its discovery of the
/// node hangs for three minutes without an acknowledgement.
#[test]
fn a_node_that_has_pushed_acknowledges_what_is_pushed_back_before_it_ends() {
    const PAUSE: Duration = Duration::from_millis(50);
    let (seen, _) = push_and_end(4, Some(PAUSE), |node| node.shutdown(Duration::ZERO));
    assert_eq!(seen.acks.load(Ordering::SeqCst), 1);
    let (seen, _) = push_and_end(5, Some(PAUSE), drop);
    assert_eq!(seen.acks.load(Ordering::SeqCst), 1);
}

/// If the peer has this node's list already, it does not push back: the node waits for the push,
/// and then ends.
#[test]
fn a_push_that_is_not_answered_by_another_is_waited_for_and_the_node_ends() {
    let (_, took_ns) = push_and_end(6, None, |node| node.shutdown(Duration::ZERO));
    assert!(took_ns >= PUSH_BACK_NS);
    let (_, took_ns) = push_and_end(7, None, drop);
    assert!(took_ns >= PUSH_BACK_NS);
}

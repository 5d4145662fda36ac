//! The judge as the passive side, which plays a kernel node.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use lnet_node::{AcceptPolicy, DiscoverOptions};
use nlx_testkit::TIME_LIMIT;
use nlx_testkit::buffers::pattern;
use nlx_tests::judge::passive::{Passive, Play};
use nlx_tests::judge::report::Report;
use nlx_tests::judge::{Policy, wire};

use crate::node::{BITS, Nlx, PORTAL};
use crate::place::addresses;

/// Sizes on both sides of every threshold: 0, one byte, the last message for CONTROL and the first
/// for BULK_OUT, with large NIDs and with small ones, the first with a cookie, the measured sizes,
/// the maximum.
const SIZES: [usize; 11] = [0, 1, 904 - 1, 904, 928 - 1, 928, 4096, 16_384, 65_536, (1 << 20) - 1, 1 << 20];

/// The addresses and settings of a node and its judge.
struct Meeting {
    address: IpAddr,
    judge: IpAddr,
    port: Option<u16>,
    policy: Policy,
    race: bool,
}

impl Meeting {
    /// Creates a meeting on ports that need no privileges.
    fn new(address: impl Into<IpAddr>, judge: impl Into<IpAddr>) -> Meeting {
        let (address, judge) = (address.into(), judge.into());
        Meeting { address, judge, port: None, policy: Policy::Hello, race: false }
    }

    /// Uses port 988 and privileged source ports, as real sites do.
    fn privileged(self) -> Meeting {
        Meeting { port: Some(988), policy: Policy::Secure, ..self }
    }

    /// Makes the judge connect as soon as nlx does.
    fn race(self) -> Meeting {
        Meeting { race: true, ..self }
    }
}

/// Makes nlx connect, ping, discover, write and read; then the judge does the same over the same
/// connections. Checks that exactly the rules in `silent` were not applied.
fn exchange(meeting: Meeting, silent: &[&str]) {
    let Meeting { address, judge, port, policy, race } = meeting;
    let accept = if policy == Policy::Secure { AcceptPolicy::Secure } else { AcceptPolicy::Hello };
    let nlx = Nlx::start(address, port, accept);
    let nid = wire::Nid::new(judge, 0);
    let play = Play { policy, race, pushes_back: true, ..Play::new(SocketAddr::new(judge, nlx.port), nid) };
    let passive = Passive::start(play).unwrap();
    let target = nid.to_string().parse().unwrap();
    let answer = nlx.node.ping(target, None, TIME_LIMIT).unwrap();
    assert_eq!(answer.nids, [target]);
    let options = DiscoverOptions { timeout: TIME_LIMIT, push: true, ..DiscoverOptions::default() };
    nlx.node.discover(target, &options).unwrap();
    for (bits, length) in (1..).zip(SIZES) {
        let payload = pattern(bits, length);
        nlx.put(nid, bits, &payload);
        assert!(nlx.get(nid, bits, length) == payload, "{length} bytes came back changed");
        let payload = pattern(bits + 100, length);
        assert_eq!(passive.put(nlx.nid(), PORTAL, BITS, &payload), Ok(length as u32));
        let back = passive.get(nlx.nid(), PORTAL, BITS, length as u32).unwrap();
        assert!(back == payload, "{length} bytes came back changed");
    }
    nlx.node.shutdown(TIME_LIMIT);
    passive.wait_for_end().unwrap();
    let report = passive.report();
    assert!(report.failures().is_empty(), "{report}");
    let passed = report.passed();
    let rules = nlx_tests::judge::rules::RULES.iter().map(|rule| rule.0);
    assert_eq!(rules.filter(|name| !passed.contains(name)).collect::<Vec<_>>(), silent, "{report}");
}

// Covers: S-207
#[test]
fn nlx_keeps_every_rule() {
    let (address, judge) = (Ipv4Addr::new(127, 5, 1, 1), Ipv4Addr::new(127, 5, 1, 2));
    exchange(Meeting::new(address, judge), &["source-port", "race", "keepalive"]);
}

/// The judge has the higher NID, so nlx must accept its connections.
// Covers: S-206
#[test]
fn nlx_yields_to_a_higher_nid() {
    let (address, judge) = (Ipv4Addr::new(127, 5, 5, 1), Ipv4Addr::new(127, 5, 5, 2));
    exchange(Meeting::new(address, judge).race(), &["source-port", "order", "keepalive"]);
}

/// The judge has the lower NID, so nlx must refuse its connection.
// Covers: S-206
#[test]
fn nlx_refuses_a_lower_nid_while_it_connects() {
    let (address, judge) = (Ipv4Addr::new(127, 5, 6, 2), Ipv4Addr::new(127, 5, 6, 1));
    exchange(Meeting::new(address, judge).race(), &["source-port", "keepalive"]);
}

/// A node that pushes and ends at once answers the push back of a judge that did not know it. It
/// waits half a second for it, which a busy machine may exceed once.
#[test]
fn nlx_does_not_end_before_it_has_acknowledged_a_push_back() {
    const ATTEMPTS: u8 = 2;
    let reports = (0..ATTEMPTS).map(push_and_end);
    let missed: Vec<Report> = reports.take_while(|report| !report.passed().contains(&"push-back")).collect();
    assert!(missed.len() < ATTEMPTS.into(), "{}", missed[0]);
}

fn push_and_end(attempt: u8) -> Report {
    let (address, judge) =
        (Ipv4Addr::new(127, 5, 7, 2 * attempt + 1), Ipv4Addr::new(127, 5, 7, 2 * attempt + 2));
    let nlx = Nlx::start(address, None, AcceptPolicy::Hello);
    let nid = wire::Nid::new(judge, 0);
    let listen = SocketAddr::new(judge.into(), nlx.port);
    let play = Play { policy: Policy::Hello, pushes_back: true, ..Play::new(listen, nid) };
    let passive = Passive::start(play).unwrap();
    let options = DiscoverOptions { timeout: TIME_LIMIT, push: true, ..DiscoverOptions::default() };
    nlx.node.discover(nid.to_string().parse().unwrap(), &options).unwrap();
    drop(nlx);
    passive.wait_for_end().unwrap();
    let report = passive.report();
    assert!(report.failures().keys().all(|name| *name == "push-back"), "{report}");
    report
}

#[test]
#[ignore = "needs root: ./test namespaces"]
fn kernel_ports() {
    let meeting = Meeting::new(Ipv4Addr::new(127, 5, 2, 1), Ipv4Addr::new(127, 5, 2, 2));
    exchange(meeting.privileged(), &["race", "keepalive"]);
}

/// Large NIDs on a real site, without a race and with races that nlx wins and loses.
// Covers: S-207
#[test]
#[ignore = "needs root: ./test namespaces"]
fn over_ipv6_as_on_a_real_site() {
    // The judge listens for some time longer, so each meeting has different addresses.
    let [a, b, c, d, e, f] = addresses();
    exchange(Meeting::new(a, b).privileged(), &["race", "keepalive"]);
    exchange(Meeting::new(c, d).privileged().race(), &["order", "keepalive"]);
    exchange(Meeting::new(f, e).privileged().race(), &["keepalive"]);
}

/// With keepalives after a second, a silent peer gets some, and only on the right connection.
#[test]
fn nlx_keeps_connections_alive() {
    let (address, judge) = (Ipv4Addr::new(127, 5, 3, 1), Ipv4Addr::new(127, 5, 3, 2));
    let nlx = Nlx::tuned(address, None, AcceptPolicy::Hello, |tcp| tcp.keepalive_s = 1);
    let nid = wire::Nid::new(judge, 0);
    let play = Play { policy: Policy::Hello, ..Play::new(SocketAddr::new(judge.into(), nlx.port), nid) };
    let passive = Passive::start(play).unwrap();
    nlx.node.ping(nid.to_string().parse().unwrap(), None, TIME_LIMIT).unwrap();
    // The second keepalive follows a pause.
    passive.wait_for_keepalives(nlx.nid(), 2).unwrap();
    nlx.node.shutdown(TIME_LIMIT);
    passive.wait_for_end().unwrap();
    let report = passive.report();
    assert!(report.failures().is_empty(), "{report}");
    assert!(report.passed().contains(&"keepalive"));
}

/// An acceptor that never sends a hello is given up after `sock_timeout`, and waiting operations
/// end with that errno.
#[test]
fn nlx_gives_up_a_silent_acceptor() {
    let (address, judge) = (Ipv4Addr::new(127, 5, 4, 1), Ipv4Addr::new(127, 5, 4, 2));
    let nlx = Nlx::tuned(address, None, AcceptPolicy::Hello, |tcp| tcp.timeout_s = 1);
    let listener = TcpListener::bind((judge, nlx.port)).unwrap();
    let nid = wire::Nid::new(judge, 0);
    let begun = Instant::now();
    let failure = nlx.node.ping(nid.to_string().parse().unwrap(), None, TIME_LIMIT).unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(1), "given up too early: {failure}");
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    // The request and the hello of the node, and then the end.
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said.len(), 16 + 56);
    assert_eq!(nlx.node.tcp().counters().rx.connects, 0);
    assert!(nlx.node.tcp().counters().rx.connect_failures > 0);
}

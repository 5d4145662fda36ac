//! The addresses of a case of the judge's self-test: over IPv4, and over IPv6 if the machine has
//! it.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nlx_testkit::until;
use nlx_tests::judge::passive::{Passive, Play};
use nlx_tests::judge::wire::{Nid, Order, request};
use nlx_tests::judge::{Policy, Target};

/// The port over IPv4, where each case has different addresses. Over IPv6 there is one address, and
/// the cases use the next ports.
const PORT: u16 = 21_961;
/// The number of ports for each test, which is larger than the index of its last case.
const CASES: u16 = 32;

/// The address in the NID of a peer over IPv6; it connects from the only address that there is.
pub(crate) const LARGE: Ipv6Addr = Ipv6Addr::new(0xfd4e, 0, 0, 0, 0, 0, 0, 9);

/// The two sides of a case.
pub(crate) struct Place {
    /// The connecting side.
    pub(crate) own: Nid,
    /// The listening side.
    pub(crate) to: Nid,
    from: IpAddr,
    port: u16,
}

impl Place {
    /// Creates the places of a case of a test, both numbered from 1.
    pub(crate) fn of(test: u8, case: u8) -> Vec<Place> {
        let small =
            Place::small(Ipv4Addr::new(127, 6, test, 2 * case), Ipv4Addr::new(127, 6, test, 2 * case + 1));
        let port = PORT + u16::from(test) * CASES + u16::from(case);
        let here = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let large = Place { own: Nid::new(LARGE, 0), to: Nid::new(here, 0), from: here, port };
        std::iter::once(small).chain(has_ipv6().then_some(large)).collect()
    }

    /// Creates a place over IPv4, from one address to another.
    pub(crate) fn small(own: Ipv4Addr, to: Ipv4Addr) -> Place {
        Place { own: Nid::new(own, 0), to: Nid::new(to, 0), from: own.into(), port: PORT }
    }

    /// Returns the settings of a node that trusts hellos.
    pub(crate) fn play(&self) -> Play {
        let play = Play::new(SocketAddr::new(self.to.address(), self.port), self.to);
        Play { policy: Policy::Hello, copies: false, ..play }
    }

    /// Starts the listening side.
    pub(crate) fn passive(&self) -> Passive {
        Passive::start(self.play()).unwrap()
    }

    /// Returns the listening side as the target of the connecting side.
    pub(crate) fn target(&self) -> Target {
        let target = Target::new(SocketAddr::new(self.to.address(), self.port), self.to, self.own);
        let buffer = Some((9, 9));
        Target { from: self.from, privileged: false, policy: Policy::Hello, buffer, ..target }
    }

    /// Returns the size of a connection request in bytes.
    pub(crate) fn request(&self) -> usize {
        request(self.to, Order::Little).len()
    }

    /// Returns the size of prefix and header in bytes.
    pub(crate) fn frame(&self) -> usize {
        24 + 72 + self.shift()
    }

    /// Returns the distance by which two large NIDs shift the fields after them, in hellos and
    /// headers.
    pub(crate) fn shift(&self) -> usize {
        if self.to.is_large() { 24 } else { 0 }
    }
}

/// Returns whether the machine has IPv6.
pub(crate) fn has_ipv6() -> bool {
    let there = TcpListener::bind((Ipv6Addr::LOCALHOST, 0));
    if let Err(error) = &there {
        nlx_skip::skipped("the judge over IPv6", &format!("this machine has no address ::1: {error}"));
    }
    there.is_ok()
}

/// Moves this thread, and those that it starts, into a new network namespace, and returns IPv6
/// addresses of its loopback device, in rising order. Needs root.
pub(crate) fn addresses<const N: usize>() -> [Ipv6Addr; N] {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    ip("link set lo up");
    std::array::from_fn(|number| {
        let address = Ipv6Addr::new(0xfd4e, 0, 0, 0, 0, 0, 0, number as u16 + 1);
        ip(&format!("-6 addr add {address}/128 dev lo nodad"));
        wait_for_route(address);
        address
    })
}

/// Waits until the route of an address exists: the system adds it a little later than the address.
fn wait_for_route(address: Ipv6Addr) {
    /// The port of tcpmux, which has no listener.
    const UNUSED_PORT: u16 = 1;
    until("the route exists", || {
        let error = TcpStream::connect((address, UNUSED_PORT)).expect_err("the port has no listener");
        error.kind() == ErrorKind::ConnectionRefused
    });
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {args}");
}

//! The link between two devices goes down under load, and comes back.

use std::process::Command;

use lnet_o2iblnd::O2ibConfig;

use crate::bed::{Bed, S};
use crate::buffers::{filled, whole};
use crate::exchange::exchange;
use crate::node::Node;
use crate::real::told;
use crate::trouble::Load;

fn ip(arguments: &[&str]) {
    assert!(Command::new("ip").args(arguments).status().unwrap().success(), "ip {arguments:?}");
}

/// What the guest's routes are between its netdevs (tests/guest/network): they go with the link.
fn put_up(netdevs: &[String], addresses: &[String]) {
    ip(&["link", "set", &netdevs[0], "up"]);
    for (from, table) in [(0, "101"), (1, "102")] {
        let target = format!("{}/32", addresses[1 - from]);
        ip(&["route", "replace", &target, "dev", &netdevs[from], "table", table]);
    }
}

/// S-4: what is under way ends, each message once; when the link is back, so are the connections.
#[test]
#[ignore = "needs a link that can be taken down: in the guest, with --net veth"]
fn the_link_goes_down_under_load() {
    let (netdevs, addresses) = (told("NLX_GUEST_NETDEVS"), told("NLX_GUEST_ADDRESSES"));
    assert_eq!(netdevs.len(), 2, "the guest wants --net veth");
    let bed = Bed::new();
    let nodes = bed.pair(&O2ibConfig { retry_count: 1, ..O2ibConfig::default() });
    let [a, b] = &nodes;
    exchange(&bed, [a, b], &filled(whole(70_000), 1), &whole(70_000));
    for _ in 0..2 {
        let load = Load::begin([a, b], 100);
        bed.until(&[a, b], || Load::ended(a)[0] > 5);
        assert!(!load.has_ended(a), "it goes down too late");
        ip(&["link", "set", &netdevs[0], "down"]);
        bed.until(&[a, b], || load.has_ended(a));
        put_up(&netdevs, &addresses);
        // What either still waits for is given up, and after a failure a peer is left in peace for a while.
        bed.later(&[a, b], 60 * S);
        bed.later(&[a, b], 60 * S);
        bed.until(&[a, b], || [a, b].iter().all(|node| node.engine.sending() == 0));
        [a, b].into_iter().for_each(|node| drop(node.take()));
        works_again(&bed, [a, b]);
    }
    bed.end(nodes);
}

/// The port needs a moment, in which attempts fail.
fn works_again(bed: &Bed, [a, b]: [&Node; 2]) {
    let memory = whole(5000);
    let mut tries = 0;
    loop {
        tries += 1;
        assert!(tries < 20, "it does not come back: {:?}", a.lnd.last_failure(b.id.nid));
        let put = a.put_unasked(b.id, &memory, 9);
        bed.until(&[a, b], || a.outcome(lnet_api::EventKind::Send, put).is_some());
        if a.outcome(lnet_api::EventKind::Send, put) == Some(Ok(())) {
            break;
        }
        bed.later(&[a, b], 60 * S);
    }
    [a, b].into_iter().for_each(|node| drop(node.take()));
    exchange(bed, [a, b], &filled(whole(70_000), 2), &whole(70_000));
    exchange(bed, [b, a], &filled(whole(70_000), 3), &whole(70_000));
}

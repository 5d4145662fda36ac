//! Several domains on one node.

use std::net::Ipv4Addr;

use nlx::{Domain, Errno, NodeConfig, Op, TmOptions, TransferMachine};

fn begin(domain: &Domain, text: &str) -> Result<TransferMachine, Errno> {
    domain.transfer_machine(text, TmOptions::default()).map_err(|error| error.errno())
}

/// A node that does not start gives no domain; one that has started has limits, NIDs and room for
/// transfer machines.
// Covers: MT-13
#[test]
fn a_domain_is_there_only_when_it_has_started() {
    let held = std::net::TcpListener::bind((Ipv4Addr::new(127, 61, 1, 1), 0)).unwrap();
    let port = held.local_addr().unwrap().port();
    let config = NodeConfig::new().net("tcp(127.61.1.1)").unwrap().accept_port(port);
    assert_eq!(Domain::in_process(&config).unwrap_err().errno(), Errno::EADDRINUSE);
    drop(held);
    let domain = Domain::in_process(&config).unwrap();
    assert_eq!(domain.limits().buffer_bytes_max, 1 << 20);
    assert_eq!(domain.nids().len(), 2);
    begin(&domain, "127.61.1.1@tcp:12345:31:*").unwrap();
}

/// All NIDs of a node are listed, in the order of its interfaces.
// Covers: MT-54
#[test]
fn all_nids_of_a_node_are_reported() {
    let addresses: Vec<String> = (1..=16).map(|host| format!("127.61.2.{host}")).collect();
    let net = format!("tcp({})", addresses.join(","));
    let held = std::net::TcpListener::bind((Ipv4Addr::new(127, 61, 2, 1), 0)).unwrap();
    let port = held.local_addr().unwrap().port();
    drop(held);
    let domain = Domain::in_process(&NodeConfig::new().net(&net).unwrap().accept_port(port)).unwrap();
    let nids: Vec<String> =
        domain.nids().iter().map(ToString::to_string).filter(|nid| nid != "0@lo").collect();
    let expected: Vec<String> = addresses.iter().map(|address| format!("{address}@tcp")).collect();
    assert_eq!(nids, expected);
}

/// A buffer belongs to one domain, a message goes from any to any; the node lasts until the last of
/// its domains is dropped.
#[test]
fn domains_of_one_node_reach_each_other() {
    let first = Domain::in_process(&NodeConfig::new()).unwrap();
    let second = Domain::on(first.node().unwrap().clone());
    let [a, b] = [&first, &second].map(|domain| begin(domain, "0@lo:12345:30:*").unwrap());
    let refused = b.start(Op::passive_receive(first.allocate(16).unwrap())).unwrap_err();
    assert_eq!(refused.error.errno(), Errno::EINVAL);
    drop(refused);
    let mut buffer = first.allocate(5).unwrap();
    buffer.write().unwrap().copy_from_slice(b"hello");
    drop(first);
    b.start(Op::receive(second.allocate(16).unwrap())).unwrap();
    let to = a.end_point(&b.address().to_string()).unwrap();
    a.start(Op::send(buffer, &to).length(5)).unwrap();
    drop(second);
    let event = b.wait(None).unwrap().unwrap();
    assert_eq!(event.message.as_deref(), Some(&b"hello"[..]));
    assert_eq!(event.sender.map(|sender| sender.address()), Some(a.address()));
}

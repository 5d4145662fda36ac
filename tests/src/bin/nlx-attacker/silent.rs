//! Peers at one address that send requests and do not read the answers, each with a different NID:
//! `silent PORT COUNT`.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddrV4};

use nlx_tests::attack::peer::DeafPeer;

use crate::{Target, hold, number};

/// Requests of each peer: more answers than fit into the sockets of both ends, with a small one at
/// the node.
const QUESTIONS: u32 = 2000;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [port, count] = *args else { return Err("PORT COUNT are missing".into()) };
    let (to, count) = (SocketAddrV4::new(target.address, number(port)?), number::<u32>(count)?);
    // An address of the loopback network that no node of these tests uses.
    let own = Ipv4Addr::new(127, 100, 0, 1);
    let mut peers = Vec::new();
    for claimed in (own.to_bits()..).take(count as usize).map(Ipv4Addr::from_bits) {
        let mut peer =
            DeafPeer::connect(own, claimed, to).map_err(|error| format!("peer {claimed}: {error}"))?;
        peers.push(std::thread::spawn(move || {
            let asked = (0..QUESTIONS).take_while(|_| peer.ask().is_ok()).count();
            (peer, asked)
        }));
    }
    let peers: Vec<_> = peers.into_iter().filter_map(|peer| peer.join().ok()).collect();
    let asked: usize = peers.iter().map(|(_, asked)| asked).sum();
    hold(&format!("{} peers with {asked} questions", peers.len()))
}

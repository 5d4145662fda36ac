//! Both sides of the handshake: a stream has the same meaning in any pieces, and answers keep to
//! the protocol.

use lnet_nid::{Net, Nid, Pid, ProcessId};
use lnet_proto::sock::{
    AcceptProgress, Acceptor, Attempt, ConnOffer, ConnType, ConnectProgress, Connector, Hello,
    LocalInterface, Version,
};
use lnet_proto::{ByteOrder, Decoded};

use super::{Outcome, same};
use crate::corpus::streams;

/// The recorded passive node over IPv4, 10.77.0.3@tcp.
const SERVER4: Nid = Nid::new_numeric(Net::TCP, 0x0a4d_0003);
/// The recorded active node over IPv4, 10.77.0.2@tcp.
const CLIENT4: Nid = Nid::new_numeric(Net::TCP, 0x0a4d_0002);
/// The recorded passive node over IPv6, fd77::3@tcp.
const SERVER6: Nid = Nid::new_v6(Net::TCP, std::net::Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 3));
/// The recorded active node over IPv6, fd77::2@tcp.
const CLIENT6: Nid = Nid::new_v6(Net::TCP, std::net::Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));

const INTERFACE: LocalInterface = LocalInterface { pid: Pid::LNET, incarnation: 7 };

fn interface(nid: Nid) -> Option<LocalInterface> {
    [SERVER4, SERVER6].contains(&nid).then_some(INTERFACE)
}

/// Runs the passive side on the bytes of an active one, whole and in pieces.
pub(super) fn acceptor(bytes: &[u8]) -> Outcome {
    let whole = accept([bytes]);
    same(&accept(bytes.chunks(1)), &whole, "byte by byte");
    let cut = bytes.first().map_or(1, |byte| 1 + usize::from(byte % 31));
    same(&accept(bytes.chunks(cut)), &whole, "in pieces");
    let (consumed, steps) = whole;
    assert!(consumed <= bytes.len(), "{consumed} bytes of {} consumed", bytes.len());
    match steps.last() {
        Some(AcceptProgress::Hello(offer)) => {
            check_offer(offer);
            Outcome::of((offer.hello.version, offer.hello.conn_type, offer.byte_order))
        }
        Some(AcceptProgress::Reject { reply, reason }) => {
            if reply.len() > 16 {
                same(hello_of(reply).conn_type, ConnType::None, "type of a refusal");
            }
            Outcome::of((steps.len(), reply.len(), Outcome::of_error(reason).kind))
        }
        other => Outcome::of((other.is_some(), consumed)),
    }
}

fn accept<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (usize, Vec<AcceptProgress>) {
    let mut acceptor = Acceptor::new(interface);
    let (mut consumed, mut steps) = (0, Vec::new());
    for piece in pieces {
        let mut rest = piece;
        loop {
            let (taken, progress) = acceptor.feed(rest);
            rest = &rest[taken..];
            consumed += taken;
            match progress {
                AcceptProgress::NeedMore => {
                    assert!(rest.is_empty(), "{} bytes left and more wanted", rest.len());
                    break;
                }
                AcceptProgress::RequestOk { .. } => steps.push(progress),
                over => {
                    same(acceptor.feed(b"behind"), (0, over.clone()), "after the end");
                    steps.push(over);
                    return (consumed, steps);
                }
            }
        }
    }
    (consumed, steps)
}

fn check_offer(offer: &ConnOffer) {
    let accepted = offer.accept(offer.claimed()).unwrap_or_else(|error| panic!("{offer:?}: {error}"));
    let (accepted, refused) = (hello_of(&accepted), hello_of(&offer.refuse()));
    same(accepted.conn_type, offer.hello.conn_type.inverse(), "type of the answer");
    same(refused.conn_type, ConnType::None, "type of a refusal");
    for answer in [accepted, refused] {
        same(answer.version, offer.hello.version, "version of the answer");
        same(
            (answer.src_nid, answer.dst_nid),
            (offer.local_nid(), offer.hello.src_nid),
            "NIDs of the answer",
        );
    }
}

fn hello_of(bytes: &[u8]) -> Hello {
    match Hello::decode(bytes) {
        Ok(Decoded::Done(length, (hello, ByteOrder::Little))) if length == bytes.len() => hello,
        other => panic!("{bytes:x?} is no hello: {other:?}"),
    }
}

/// Runs the active side on the bytes of a passive one. The first byte chooses the connection that
/// it requests.
pub(super) fn connector(bytes: &[u8]) -> Outcome {
    let Some((choice, stream)) = bytes.split_first() else { return Outcome::of("empty") };
    let attempt = attempt(*choice);
    let whole = connect(attempt, [stream]);
    same(&connect(attempt, stream.chunks(1)), &whole, "byte by byte");
    same(&connect(attempt, stream.chunks(7)), &whole, "in pieces");
    let (consumed, progress) = whole;
    assert!(consumed <= stream.len(), "{consumed} bytes of {} consumed", stream.len());
    match progress {
        ConnectProgress::Established(established) => {
            let hello = established.hello;
            same((hello.src_nid, hello.src_pid), (attempt.peer.nid, attempt.peer.pid), "peer");
            same(
                (hello.version, hello.conn_type.inverse()),
                (attempt.version, attempt.conn_type),
                "agreement",
            );
            Outcome::of((choice, established.byte_order, established.known_as_pid.is_some()))
        }
        ConnectProgress::Failed(reason) => Outcome::of((choice & 1, Outcome::of_error(&reason).kind)),
        ConnectProgress::Retry(retry) => Outcome::of(std::mem::discriminant(&retry)),
        ConnectProgress::NeedMore => Outcome::of(consumed),
    }
}

fn attempt(choice: u8) -> Attempt {
    let (local, peer, version) = match choice & 3 {
        0 => (CLIENT4, SERVER4, Version::V3),
        1 => (CLIENT6, SERVER6, Version::V4),
        2 => (CLIENT4, SERVER4, Version::V2),
        _ => (CLIENT4, SERVER4, Version::V4),
    };
    Attempt {
        local: ProcessId::lnet(local),
        incarnation: 8,
        peer: ProcessId::lnet(peer),
        conn_type: [ConnType::Any, ConnType::Control, ConnType::BulkIn, ConnType::BulkOut]
            [usize::from(choice >> 2 & 3)],
        version,
        live_incarnation: (choice & 0x80 != 0).then_some(7),
    }
}

fn connect<'a>(attempt: Attempt, pieces: impl IntoIterator<Item = &'a [u8]>) -> (usize, ConnectProgress) {
    let mut connector = Connector::new(attempt).unwrap_or_else(|error| panic!("{attempt:?}: {error}"));
    let mut consumed = 0;
    for piece in pieces {
        let (taken, progress) = connector.feed(piece);
        consumed += taken;
        if progress != ConnectProgress::NeedMore {
            same(connector.feed(b"behind"), (0, progress.clone()), "after the end");
            return (consumed, progress);
        }
        same(taken, piece.len(), "bytes consumed while more is wanted");
    }
    (consumed, ConnectProgress::NeedMore)
}

pub(super) fn acceptor_seeds() -> Vec<Vec<u8>> {
    let active = streams().into_iter().filter(|stream| stream.active);
    active.map(|stream| stream.items.into_iter().take(3).flat_map(|item| item.bytes).collect()).collect()
}

pub(super) fn connector_seeds() -> Vec<Vec<u8>> {
    let passive = streams().into_iter().filter(|stream| !stream.active);
    let seeds = passive.flat_map(|stream| {
        let bytes: Vec<u8> = stream.items.into_iter().take(2).flat_map(|item| item.bytes).collect();
        // The type that the recorded answer inverts is one of the four.
        (0..4_u8).map(move |conn_type| {
            let mut seed = vec![u8::from(stream.large) | conn_type << 2];
            seed.extend(&bytes);
            seed
        })
    });
    seeds.collect()
}

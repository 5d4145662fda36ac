//! Connecting over RDMA: the active side accepts what the passive side grants, and no peer prolongs
//! it without end.

use std::net::Ipv4Addr;

use lnet_nid::{Net, NetType, Nid};
use lnet_proto::ProtoError;
use lnet_proto::ib::{
    AcceptRules, AfterRejection, Attempt, Body, ConnOffer, ConnParams, Connector, Destination, End, Link,
    LocalInterface, Message, RETRIES_MAX, Reject, RejectReason, Rejection, RequestRefusal, Version,
};

use super::{Outcome, same};
use crate::corpus::rdma;

const O2IB: Net = Net::new(NetType(5), 0);
/// The recorded active side.
const ACTIVE: Nid = Nid::new_v4(O2IB, Ipv4Addr::new(10, 77, 0, 2));
/// The recorded passive side.
const PASSIVE: Nid = Nid::new_v4(O2IB, Ipv4Addr::new(10, 77, 0, 3));

/// Length of a rejection in an input, in bytes.
const REJECTION_LEN: usize = 2 + Reject::LEN;

fn destination(nid: Nid) -> Destination {
    let end = End { nid, stamp: 7 };
    match nid {
        PASSIVE => Destination::Ready(LocalInterface { end, limits: ConnParams::DEFAULT }),
        ACTIVE => Destination::NotReady,
        _ => Destination::Unknown,
    }
}

/// Runs the passive side. The first byte chooses its rules.
pub(super) fn listener(bytes: &[u8]) -> Outcome {
    let Some((choice, private_data)) = bytes.split_first() else { return Outcome::of("empty") };
    let oldest = if choice & 1 == 0 { Version::V2 } else { Version::V1 };
    let port = if choice & 2 == 0 { 1023 } else { 40000 };
    let listener = AcceptRules { require_privileged: choice & 4 != 0, oldest, destination };
    match listener.judge(port, private_data) {
        Ok(offer) => {
            assert!(offer.link.version >= oldest && !(choice & 2 != 0 && choice & 4 != 0), "{choice}");
            agree(&offer);
            Outcome::of((offer.link.version, offer.asked.queue_depth, offer.asked.max_fragments.min(2)))
        }
        Err(RequestRefusal { record, cause }) => {
            let mut bytes = [0; Reject::LEN];
            let length = record.emit(&mut bytes).unwrap_or_else(|error| panic!("{record:?}: {error}"));
            same(Reject::parse(&bytes[..length]), Ok(record), "record");
            Outcome::of((record.version, record.reason, Outcome::of_error(&cause).kind))
        }
    }
}

/// Checks that an active side with this request accepts the answer.
fn agree(offer: &ConnOffer) {
    let Link { version, local, peer } = offer.link;
    let wanted = Attempt {
        local: peer,
        peer: End { stamp: 0, ..local },
        version,
        oldest: Version::V1,
        params: offer.asked,
    };
    // A CONNREQ may ask for messages of any size, however small; so does the active side here.
    let connector = Connector::new(wanted).unwrap_or_else(|error| panic!("{wanted:?}: {error}"));
    let acceptance = offer.accept(offer.asked).unwrap_or_else(|error| panic!("{offer:?}: {error}"));
    let established = connector.accepted(&acceptance).unwrap_or_else(|error| panic!("{offer:?}: {error}"));
    same(established.params, offer.asked, "parameters");
    same(established.link, Link { version, local: peer, peer: local }, "ends");
}

/// Runs the active side. The first byte is the number of rejections that follow, 26 bytes each with
/// kind and length first; the rest is an acceptance.
pub(super) fn connector(bytes: &[u8]) -> Outcome {
    let attempt = Attempt {
        local: End { nid: ACTIVE, stamp: 8 },
        peer: End { nid: PASSIVE, stamp: 0 },
        version: Version::V2,
        oldest: Version::V1,
        params: ConnParams { queue_depth: 256, ..ConnParams::DEFAULT },
    };
    let mut connector = Connector::new(attempt).unwrap_or_else(|error| panic!("{attempt:?}: {error}"));
    let Some((count, bytes)) = bytes.split_first() else { return Outcome::of("empty") };
    let (rejections, acceptance) = bytes.split_at(bytes.len().min(usize::from(count % 32) * REJECTION_LEN));
    let rejections = rejections.as_chunks::<REJECTION_LEN>().0;
    let mut rejected = 0;
    for [kind, length, record @ ..] in rejections {
        let rejection = match kind % 8 {
            0 => Rejection::StaleConnection,
            1 => Rejection::NoListener,
            _ => Rejection::Record(&record[..usize::from(*length).min(record.len())]),
        };
        let before = *connector.attempt();
        rejected += 1;
        match connector.rejected(rejection) {
            AfterRejection::Now | AfterRejection::Later => check_request(&connector, &before),
            AfterRejection::Fail(cause) => {
                same(connector.attempt(), &before, "an attempt that has failed");
                return Outcome::of((rejected.min(3), Outcome::of_error(&cause).kind));
            }
        }
    }
    assert!(rejected <= RETRIES_MAX, "{rejected} rejections did not end it");
    let asked = connector.attempt();
    let detail = (asked.version, asked.params.queue_depth.min(9), asked.params.max_fragments.min(3));
    match connector.accepted(acceptance) {
        Ok(established) => {
            assert!(established.params.queue_depth <= asked.params.queue_depth, "{established:?}");
            same(established.link.peer.nid, PASSIVE, "peer");
            Outcome::of((detail, rejected.min(3)))
        }
        Err(error) => Outcome::of((detail, Outcome::of_error(&error).kind)),
    }
}

/// Checks that a changed request asks for no more than the one before.
fn check_request(connector: &Connector, before: &Attempt) {
    let now = connector.attempt();
    assert!(now.params.queue_depth <= before.params.queue_depth && now.params.queue_depth > 0, "{now:?}");
    assert!(
        now.params.max_fragments <= before.params.max_fragments && now.params.max_fragments > 0,
        "{now:?}"
    );
    let request: Result<Message<'_>, ProtoError> = Message::parse(connector.request());
    let content = request.map(|message| (message.head.version, message.head.dst, message.body));
    same(content, Ok((now.version, now.peer, Body::ConnReq(now.params))), "request");
}

pub(super) fn listener_seeds() -> Vec<Vec<u8>> {
    let requests = rdma().into_iter().filter(|(kind, _)| kind == "cm-req").map(|(_, bytes)| bytes);
    let seeds = requests.flat_map(|bytes| {
        // The recorded request; too deep a queue; too many fragments; version 1.
        [(48, 8), (49, 1), (50, 2), (4, 0x11)].map(|(offset, value)| {
            let mut seed = vec![1];
            seed.extend(&bytes);
            seed[1 + offset] = value;
            seed
        })
    });
    seeds.collect()
}

pub(super) fn connector_seeds() -> Vec<Vec<u8>> {
    let acceptance = Message {
        head: Link {
            version: Version::V2,
            local: End { nid: PASSIVE, stamp: 7 },
            peer: End { nid: ACTIVE, stamp: 8 },
        }
        .head(0),
        body: Body::ConnAck(ConnParams { queue_depth: 4, max_fragments: 2, ..ConnParams::DEFAULT }),
    };
    let mut accepted = vec![0; acceptance.encoded_len()];
    same(acceptance.emit(&mut accepted), Ok(accepted.len()), "length of a seed");
    let rejected = |reason, version| {
        let params = Some(ConnParams { max_fragments: 256, ..ConnParams::DEFAULT });
        let mut seed = vec![0; REJECTION_LEN];
        seed[..2].copy_from_slice(&[2, Reject::LEN as u8]);
        let record = Reject { version, reason, stamp: 7, params };
        assert!(record.emit(&mut seed[2..]).is_ok(), "{record:?}");
        seed
    };
    let deep = rejected(RejectReason::MsgQueueSize, Version::V2);
    let many = rejected(RejectReason::RdmaFrags, Version::V2);
    let old = rejected(RejectReason::Fatal, Version::V1);
    let race = rejected(RejectReason::ConnRace, Version::V2).repeat(RETRIES_MAX as usize + 1);
    let sequences = [vec![], deep.clone(), many.clone(), [deep, many].concat(), old, race];
    sequences
        .map(|rejections| {
            let count = (rejections.len() / REJECTION_LEN) as u8;
            [&[count][..], &rejections, &accepted].concat()
        })
        .to_vec()
}

//! Values of every kind.

use std::net::{Ipv4Addr, Ipv6Addr};

use lnet_nid::{MatchBits, Net, NetType, Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, MAX_PAYLOAD, WireHandle};
use proptest::prelude::*;

pub(crate) fn any_net() -> impl Strategy<Value = Net> {
    (prop_oneof![Just(2_u8), Just(5), Just(16), Just(17)], any::<u16>())
        .prop_map(|(net_type, number)| Net::new(NetType(net_type), number))
}

pub(crate) fn small_nid() -> impl Strategy<Value = Nid> {
    (any_net(), any::<u32>()).prop_map(|(net, address)| Nid::new_v4(net, Ipv4Addr::from(address)))
}

pub(crate) fn large_nid() -> impl Strategy<Value = Nid> {
    (any_net(), any::<u128>()).prop_map(|(net, address)| Nid::new_v6(net, Ipv6Addr::from(address)))
}

pub(crate) fn any_nid() -> impl Strategy<Value = Nid> {
    prop_oneof![small_nid(), large_nid()]
}

pub(crate) fn any_body() -> impl Strategy<Value = (Body, u32)> {
    let handle = || any::<[u8; 16]>().prop_map(WireHandle);
    let bits = || any::<u64>().prop_map(MatchBits);
    let numbers = any::<[u32; 3]>;
    let ack = (handle(), bits(), numbers())
        .prop_map(|(dst_wmd, match_bits, [mlength, ..])| (Body::Ack { dst_wmd, match_bits, mlength }, 0));
    let put = (handle(), bits(), any::<u64>(), numbers(), 0..=MAX_PAYLOAD).prop_map(
        |(ack_wmd, match_bits, hdr_data, [portal, offset, _], length)| {
            (Body::Put { ack_wmd, match_bits, hdr_data, portal, offset }, length)
        },
    );
    let get = (handle(), bits(), numbers()).prop_map(
        |(return_wmd, match_bits, [portal, src_offset, sink_length])| {
            (Body::Get { return_wmd, match_bits, portal, src_offset, sink_length }, 0)
        },
    );
    let reply = (handle(), 0..=MAX_PAYLOAD).prop_map(|(dst_wmd, length)| (Body::Reply { dst_wmd }, length));
    prop_oneof![ack, put, get, reply]
}

pub(crate) fn header_of(nid: BoxedStrategy<Nid>) -> impl Strategy<Value = Header> {
    let process = || (nid.clone(), any::<u32>()).prop_map(|(nid, pid)| ProcessId::new(nid, Pid(pid)));
    (process(), process(), any_body()).prop_map(|(dest, src, (body, payload_length))| Header {
        dest,
        src,
        payload_length,
        body,
    })
}

//! Samples of the RDMA driver's messages of every type.

use lnet_nid::ProcessId;
use lnet_proto::ib::{
    Body, ConnParams, Cookie, End, Head, IMMEDIATE_MAX, Message, MessageKind, RDMA_FRAGMENTS_MAX,
    RdmaDescriptor, RdmaFragment, TransferStatus, Version,
};
use lnet_proto::{Header, WireHandle};
use proptest::collection::vec;
use proptest::prelude::*;

use super::strategies::{header_of, small_nid};

/// The values of a message, without borrows.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) kind: MessageKind,
    pub(crate) head: Head,
    pub(crate) header: Header,
    pub(crate) params: ConnParams,
    pub(crate) completion: TransferStatus,
    pub(crate) cookie: Cookie,
    pub(crate) key: u32,
    pub(crate) fragments: Vec<RdmaFragment>,
    pub(crate) payload: Vec<u8>,
}

impl Sample {
    pub(crate) fn message(&self) -> Message<'_> {
        let Sample { header, params, completion, cookie, .. } = *self;
        let descriptor = RdmaDescriptor::new(self.key, &self.fragments).unwrap();
        let body = match self.kind {
            MessageKind::ConnReq => Body::ConnReq(params),
            MessageKind::ConnAck => Body::ConnAck(params),
            MessageKind::Noop => Body::Noop,
            MessageKind::Immediate => Body::Immediate { header, payload: &self.payload },
            MessageKind::PutReq => Body::PutReq { header, cookie },
            MessageKind::PutNak => Body::PutNak(completion),
            MessageKind::PutAck => Body::PutAck { source: completion.cookie, sink: cookie, descriptor },
            MessageKind::PutDone => Body::PutDone(completion),
            MessageKind::GetReq => Body::GetReq { header, cookie, descriptor },
            MessageKind::GetDone => Body::GetDone(completion),
        };
        Message { head: self.head, body }
    }

    /// Returns the lengths of the fields, as a big-endian node swaps them: see [`flip`].
    pub(crate) fn fields(&self) -> Vec<isize> {
        let mut fields = vec![4, 2, 1, 1, 4, 4, 8, 8, 8, 8];
        let descriptor = || [4, 4].into_iter().chain(self.fragments.iter().flat_map(|_| [4, 8]));
        match self.kind {
            MessageKind::ConnReq | MessageKind::ConnAck => fields.extend([2, 2, 4]),
            MessageKind::Noop => {}
            MessageKind::Immediate => fields.extend([-72, -(self.payload.len() as isize)]),
            MessageKind::PutReq => fields.extend([-72, -8]),
            MessageKind::PutNak | MessageKind::PutDone | MessageKind::GetDone => fields.extend([-8, 4]),
            MessageKind::PutAck => fields.extend([-8, -8].into_iter().chain(descriptor())),
            MessageKind::GetReq => fields.extend([-72, -8].into_iter().chain(descriptor())),
        }
        fields
    }
}

pub(crate) const KINDS: [MessageKind; 10] = [
    MessageKind::ConnReq,
    MessageKind::ConnAck,
    MessageKind::Noop,
    MessageKind::Immediate,
    MessageKind::PutReq,
    MessageKind::PutNak,
    MessageKind::PutAck,
    MessageKind::PutDone,
    MessageKind::GetReq,
    MessageKind::GetDone,
];

pub(crate) fn any_head() -> impl Strategy<Value = Head> {
    let end = || (small_nid(), any::<u64>()).prop_map(|(nid, stamp)| End { nid, stamp });
    let version = prop_oneof![Just(Version::V1), Just(Version::V2)];
    (version, any::<u8>(), any::<u32>(), end(), end())
        .prop_map(|(version, credits, checksum, src, dst)| Head { version, credits, checksum, src, dst })
}

pub(crate) fn any_params() -> impl Strategy<Value = ConnParams> {
    any::<(u16, u16, u32)>().prop_map(|(queue_depth, max_fragments, max_message)| ConnParams {
        queue_depth,
        max_fragments,
        max_message,
    })
}

pub(crate) fn any_sample() -> impl Strategy<Value = Sample> {
    let cookie = || any::<[u8; 8]>().prop_map(Cookie);
    let completion = (cookie(), any::<i32>()).prop_map(|(cookie, status)| TransferStatus { cookie, status });
    let fragment = any::<(u32, u64)>().prop_map(|(length, address)| RdmaFragment { length, address });
    let fragments = vec(fragment, 1..=usize::from(RDMA_FRAGMENTS_MAX));
    let payload = vec(any::<u8>(), 0..=IMMEDIATE_MAX);
    let kind = proptest::sample::select(&KINDS[..]);
    let rest = (any_params(), completion, cookie(), any::<u32>(), fragments, payload);
    (kind, any_head(), header_of(small_nid().boxed()), rest).prop_map(
        |(kind, head, mut header, (params, completion, cookie, key, fragments, mut payload))| {
            // A message of this type carries a message of LNet.
            match kind {
                MessageKind::GetReq => header.body = get(),
                MessageKind::PutReq if header.message_type().max_payload() == 0 => header.body = reply(),
                _ => {}
            }
            if kind == MessageKind::Immediate {
                payload.truncate(header.message_type().max_payload() as usize);
                header.payload_length = payload.len() as u32;
            } else {
                header.payload_length = header.payload_length.min(header.message_type().max_payload());
            }
            Sample { kind, head, header, params, completion, cookie, key, fragments, payload }
        },
    )
}

pub(crate) fn get() -> lnet_proto::Body {
    lnet_proto::Body::Get {
        return_wmd: WireHandle::new(1, 2),
        match_bits: lnet_nid::MatchBits(3),
        portal: 4,
        src_offset: 5,
        sink_length: 6,
    }
}

pub(crate) fn reply() -> lnet_proto::Body {
    lnet_proto::Body::Reply { dst_wmd: WireHandle::new(1, 2) }
}

pub(crate) fn emit(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = vec![0; message.encoded_len()];
    assert_eq!(message.emit(&mut bytes), Ok(bytes.len()));
    bytes
}

pub(crate) fn sample(kind: MessageKind) -> Sample {
    let end = |text: &str, stamp| End { nid: text.parse().unwrap(), stamp };
    let (src, dst) = (end("10.0.0.1@o2ib", 11), end("10.0.0.2@o2ib", 22));
    Sample {
        kind,
        head: Head { version: Version::V2, credits: 3, checksum: 0, src, dst },
        header: Header {
            dest: ProcessId::lnet(dst.nid),
            src: ProcessId::lnet(src.nid),
            payload_length: 0,
            body: if kind == MessageKind::GetReq { get() } else { reply() },
        },
        params: ConnParams::DEFAULT,
        completion: TransferStatus { cookie: Cookie::new(7), status: -5 },
        cookie: Cookie::new(8),
        key: 9,
        fragments: vec![RdmaFragment { length: 4096, address: 0x1234_5678_9abc_def0 }; 3],
        payload: Vec::new(),
    }
}

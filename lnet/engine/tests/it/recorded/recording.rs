//! The parsed recordings: the requests between two kernel nodes, and the answers.

use lnet_nid::Nid;
use lnet_proto::ib::{Body as IbBody, Message as IbMessage};
use lnet_proto::{Body, Header, WireHandle};
use serde_json::Value;

/// Page size of the node that created the bulk data.
const PAGE: usize = 4096;

/// The first and the last eight bytes of each page of bulk data: 0xeeb0eeb1eeb2eeb3 (lnet-wire 41,
/// *simple*).
const MAGIC: [u8; 8] = 0xeeb0_eeb1_eeb2_eeb3_u64.to_le_bytes();

/// An LNet message, of either network.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// No answer: the request was a PUT without an ACK.
    Nothing,
    /// An ACK or a REPLY.
    Message(Message),
    /// The network wrote the data of a GET directly, and reported this as done.
    Written(Vec<u8>),
}

/// A PUT or a GET, and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) question: Message,
    pub(crate) answer: Answer,
}

impl Exchange {
    pub(crate) fn asker(&self) -> Nid {
        self.question.header.src.nid
    }

    pub(crate) fn asked(&self) -> Nid {
        self.question.header.dest.nid
    }

    pub(crate) fn is_put(&self) -> bool {
        matches!(self.question.header.body, Body::Put { .. })
    }

    /// Returns the same exchange under another handle.
    pub(crate) fn under(&self, wmd: WireHandle) -> Exchange {
        let renamed = |message: &Message| Message {
            header: Header { body: with_handle(message.header.body, wmd), ..message.header },
            ..message.clone()
        };
        let answer = match &self.answer {
            Answer::Message(message) => Answer::Message(renamed(message)),
            other => other.clone(),
        };
        Exchange { question: renamed(&self.question), answer }
    }
}

/// Returns the handle that a request carries for its answer, or that the answer echoes.
pub(crate) fn handle_of(body: &Body) -> WireHandle {
    match *body {
        Body::Put { ack_wmd, .. } => ack_wmd,
        Body::Get { return_wmd, .. } => return_wmd,
        Body::Ack { dst_wmd, .. } | Body::Reply { dst_wmd } => dst_wmd,
    }
}

fn with_handle(mut body: Body, wmd: WireHandle) -> Body {
    match &mut body {
        Body::Put { ack_wmd: handle, .. }
        | Body::Get { return_wmd: handle, .. }
        | Body::Ack { dst_wmd: handle, .. }
        | Body::Reply { dst_wmd: handle } => *handle = wmd,
    }
    body
}

/// The messages of a recording, in the order of each direction of each connection.
#[derive(Default)]
struct Recording {
    messages: Vec<Message>,
    /// GETs whose data the network wrote: their handle, and the number of bytes.
    written: Vec<(WireHandle, usize)>,
}

/// Returns the requests of a recording with their answers. Every LNet message of the file is in the
/// result.
pub(crate) fn exchanges(file: &str) -> Vec<Exchange> {
    let path = format!("{}/../../tests/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Recording { messages, written } = match json["streams"].as_array() {
        Some(streams) => over_tcp(streams),
        None => over_rdma(json["items"].as_array().unwrap()),
    };
    let (questions, answers): (Vec<_>, Vec<_>) = messages
        .into_iter()
        .partition(|message| matches!(message.header.body, Body::Put { .. } | Body::Get { .. }));
    let answered = answers.len() + written.len();
    let answer = |question: Message| {
        let wmd = handle_of(&question.header.body);
        let message = answers.iter().find(|answer| handle_of(&answer.header.body) == wmd);
        let answer = match written.iter().find(|(get, _)| *get == wmd) {
            _ if wmd.is_none() => Answer::Nothing,
            Some((_, bytes)) => Answer::Written(bulk(*bytes)),
            None => Answer::Message(message.expect("an answer").clone()),
        };
        Exchange { question, answer }
    };
    let exchanges: Vec<_> = questions.into_iter().map(answer).collect();
    let paired = exchanges.iter().filter(|exchange| !matches!(exchange.answer, Answer::Nothing)).count();
    assert_eq!(paired, answered, "{file}: each answer has its question");
    exchanges
}

fn over_tcp(streams: &[Value]) -> Recording {
    let mut recording = Recording::default();
    for stream in streams {
        let items = stream["items"].as_array().unwrap();
        for item in items.iter().filter(|item| item["kind"] == "lnet") {
            let header = unhex(&item["header_hex"]);
            let header = match header.first_chunk::<{ Header::LARGE_LEN }>() {
                Some(large) => Header::parse_large(large),
                None => Header::parse(header.first_chunk().unwrap()),
            };
            recording.messages.push(Message { header: header.unwrap(), payload: payload(item) });
        }
    }
    recording
}

fn over_rdma(items: &[Value]) -> Recording {
    let mut recording = Recording::default();
    let mut asked = Vec::new();
    for item in items.iter().filter(|item| item["kind"] == "send") {
        let bytes = unhex(&item["hex"]);
        let (header, payload) = match IbMessage::parse(&bytes).unwrap().body {
            IbBody::Immediate { header, payload } => (header, payload.to_vec()),
            IbBody::PutReq { header, .. } => (header, bulk(header.payload_length as usize)),
            IbBody::GetReq { header, cookie, .. } => {
                asked.push((cookie, handle_of(&header.body)));
                (header, Vec::new())
            }
            IbBody::GetDone(done) => {
                let index = asked.iter().position(|(cookie, _)| *cookie == done.cookie).unwrap();
                let (_, wmd) = asked.remove(index);
                recording.written.push((wmd, done.outcome().unwrap() as usize));
                continue;
            }
            _ => continue,
        };
        recording.messages.push(Message { header, payload });
    }
    assert!(asked.is_empty(), "each GET_REQ has its GET_DONE");
    recording
}

/// Returns a payload. Bulk data are not in the file, but have a known content.
fn payload(item: &Value) -> Vec<u8> {
    if item["payload_elided"] != true {
        return if item["payload_hex"].is_null() { Vec::new() } else { unhex(&item["payload_hex"]) };
    }
    let payload = bulk(item["payload_len"].as_u64().unwrap() as usize);
    assert_eq!(payload[..64], unhex(&item["payload_first_64_hex"]));
    payload
}

/// Returns the data that a kernel node sends when it measures bulk transfers.
fn bulk(bytes: usize) -> Vec<u8> {
    let mut page = [0; PAGE];
    page[..MAGIC.len()].copy_from_slice(&MAGIC);
    page[PAGE - MAGIC.len()..].copy_from_slice(&MAGIC);
    page.into_iter().cycle().take(bytes).collect()
}

fn unhex(text: &Value) -> Vec<u8> {
    let (pairs, rest) = text.as_str().unwrap().as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

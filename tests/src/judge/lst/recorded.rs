//! The exchanges of recorded sessions (`vectors/*lst*.json`), and what two runs of one session may
//! differ in (lst 16).

use serde_json::Value;

use super::message::{DATA, FRAMEWORK, LENGTH, Lst, REPLIES, service, status};
use crate::judge::frame::{Frame, GET, Message, PUT, REPLY, read_frame};
use crate::judge::wire::Order;

/// The version of the hellos of all recorded connections.
const VERSION: u32 = 3;

/// A recorded message of lst.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The message; an elided payload is all zeros.
    pub message: Message,
    /// The SHA-256 of an elided payload, in hexadecimal.
    pub sha256: Option<String>,
}

/// A recorded request, with its bulk and its reply.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The number of the service that was called.
    pub service: u64,
    /// The request.
    pub request: Recorded,
    /// The PUT of bulk data to the sender, or the GET from it.
    pub bulk: Option<Recorded>,
    /// The REPLY to that GET.
    pub fetched: Option<Recorded>,
    /// The reply; a recording may end before it.
    pub reply: Option<Recorded>,
}

/// Returns the recorded messages of lst and all REPLYs. The order between connections is that of the
/// recording's streams, not that of time.
///
/// # Errors
/// The recording is broken, in words.
pub fn messages(json: &str) -> Result<Vec<Recorded>, String> {
    let recording: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let streams = recording["streams"].as_array().ok_or("no streams")?;
    let items = streams.iter().filter_map(|stream| stream["items"].as_array()).flatten();
    let mut found = Vec::new();
    for item in items.filter(|item| item["kind"] == "lnet") {
        let recorded = message(item)?;
        let portal = recorded.message.portal();
        let of_lst = [DATA, FRAMEWORK, REPLIES].contains(&portal);
        match recorded.message.kind {
            PUT | GET if of_lst => found.push(recorded),
            REPLY => found.push(recorded),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns the recorded requests in the order of their senders, each with its bulk and its reply.
///
/// # Errors
/// The errors of [`messages`].
pub fn exchanges(json: &str) -> Result<Vec<Exchange>, String> {
    let all = messages(json)?;
    let mut found = Vec::new();
    for request in all.iter().filter(|asked| is_request(&asked.message)) {
        let asked = Lst::received(&request.message.payload).ok_or("a request without its magic")?;
        let service = request.message.bits();
        let back = |bits: u64| {
            all.iter().find(|other| {
                let message = &other.message;
                let between = message.src == request.message.dest && message.dest == request.message.src;
                message.kind != REPLY && between && message.portal() == REPLIES && message.bits() == bits
            })
        };
        let has_bulk = [service::TEST, service::BRW].contains(&service) && asked.wide(32) != 0;
        let bulk = back(asked.wide(32)).filter(|_| has_bulk).cloned();
        let is_answer = |get: &Recorded, other: &&Recorded| {
            other.message.kind == REPLY && other.message.handle() == get.message.handle()
        };
        let fetched = bulk.as_ref().and_then(|get| all.iter().find(|other| is_answer(get, other))).cloned();
        let reply = back(asked.reply_id()).cloned();
        found.push(Exchange { service, request: request.clone(), bulk, fetched, reply });
    }
    Ok(found)
}

/// Returns a reply with zeros in everything that may differ between two runs: in a STAT the time, the
/// number of requests that the node's test clients have sent so far, and the counters of LNet; and
/// the bytes that a kernel node leaves from an earlier reply.
pub fn masked(service: u64, asked: &Lst, reply: &Lst) -> Vec<u8> {
    let good = reply.status() == 0;
    let mut bytes = reply.bytes.clone();
    let kept = match service {
        service::MKSN if reply.status() == status::EBUSY => 80,
        service::MKSN => 48,
        service::BATCH if good && asked.at(56) == 3 => 52,
        service::STAT if good => 100,
        service::DEBUG if good => 84,
        service::BRW => 28,
        service::PING => 36,
        _ => 44,
    };
    bytes[kept..LENGTH].fill(0);
    if service == service::STAT {
        bytes[44..48].fill(0);
        bytes[68..72].fill(0);
    }
    bytes
}

fn is_request(message: &Message) -> bool {
    message.kind == PUT && [DATA, FRAMEWORK].contains(&message.portal())
}

/// Decodes an item of a stream.
fn message(item: &Value) -> Result<Recorded, String> {
    let length = item["payload_length"].as_u64().ok_or("no length")? as usize;
    let payload = match item.get("payload_hex") {
        Some(_) => bytes(item, "payload_hex")?,
        None => vec![0; length],
    };
    let all = [bytes(item, "prefix_hex")?, bytes(item, "header_hex")?, payload].concat();
    let sha256 = item.get("payload_sha256").and_then(Value::as_str).map(str::to_string);
    match read_frame(&mut &all[..], VERSION, Order::Little) {
        Ok(Frame::Lnet(message)) => Ok(Recorded { message: *message, sha256 }),
        other => Err(format!("an item that is no message: {other:?}")),
    }
}

/// Decodes a hexadecimal field.
fn bytes(item: &Value, field: &str) -> Result<Vec<u8>, String> {
    let digits = item[field].as_str().ok_or_else(|| format!("no {field}"))?;
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2).unwrap_or(""), 16);
    (0..digits.len()).step_by(2).map(byte).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

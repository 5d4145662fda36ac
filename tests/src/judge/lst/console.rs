//! The raw console, which is a raw test client as well.

use std::collections::{HashMap, HashSet};

use super::message::{Lst, REPLIES, service};
use super::requests::Sender;
use crate::judge::Target;
use crate::judge::frame::{GET, Message, NO_HANDLE, PUT, REPLY};
use crate::judge::session::Session;

/// A console with the three connections of a kernel node.
pub struct Console<'t> {
    session: Session<'t>,
    /// The parts that its requests have in common.
    pub sender: Sender,
    ids: u64,
    /// The buffers that the node may GET, by match bits.
    offers: HashMap<u64, Vec<u8>>,
    /// The bulk data that the node has PUT, by match bits.
    bulk: HashMap<u64, Vec<u8>>,
    /// The reply ids without reply so far.
    replies: HashSet<u64>,
    /// The lengths of bulk data that the node is to PUT, by match bits.
    awaited: HashMap<u64, usize>,
}

/// The bulk part of a request.
pub enum Bulk {
    /// The RPC has no bulk data.
    None,
    /// The node fetches these bytes.
    Offer(Vec<u8>),
    /// The node puts this number of bytes.
    Await(usize),
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The reply.
    pub reply: Lst,
    /// The data of a READ.
    pub bulk: Vec<u8>,
}

impl<'t> Console<'t> {
    /// Connects to a node.
    ///
    /// # Errors
    /// The fault of the node, in words.
    pub fn connect(target: &'t Target, sender: Sender) -> Result<Console<'t>, String> {
        let session = Session::full(target)?;
        let (offers, bulk, replies, awaited) = Default::default();
        Ok(Console { session, sender, ids: 1 << 48, offers, bulk, replies, awaited })
    }

    /// Returns match bits that this console has not used before.
    pub fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// Sends bytes as a PUT to a portal, without any check.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send_raw(&mut self, portal: u32, bits: u64, bytes: &[u8]) -> Result<(), String> {
        let own = self.session.identity(0).0;
        let put = Message::put(own, self.session.nid(), portal, bits, NO_HANDLE, bytes);
        self.session.send_best(&put)
    }

    /// Sends a request with fresh ids; returns the reply id and the bulk id.
    ///
    /// # Errors
    /// The errors of [`Console::send_raw`].
    pub fn send(&mut self, service: u64, request: Lst, bulk: Bulk) -> Result<(u64, u64), String> {
        let reply_id = self.new_id();
        let mut request = request.u64(24, reply_id);
        let mut bulk_id = 0;
        if !matches!(bulk, Bulk::None) {
            bulk_id = self.new_id();
            request = request.u64(32, bulk_id);
        }
        match bulk {
            Bulk::None => {}
            Bulk::Offer(bytes) => drop(self.offers.insert(bulk_id, bytes)),
            Bulk::Await(length) => drop(self.awaited.insert(bulk_id, length)),
        }
        self.replies.insert(reply_id);
        self.send_raw(service::portal(service), service, &request.bytes)?;
        Ok((reply_id, bulk_id))
    }

    /// Sends a request; returns its answer.
    ///
    /// # Errors
    /// The fault of the node, in words.
    pub fn call_bulk(&mut self, service: u64, request: Lst, bulk: Bulk) -> Result<Answer, String> {
        let ids = self.send(service, request, bulk)?;
        self.answer(service, ids)
    }

    /// Sends a request without bulk; returns its reply.
    ///
    /// # Errors
    /// The errors of [`Console::call_bulk`].
    pub fn call(&mut self, service: u64, request: Lst) -> Result<Lst, String> {
        Ok(self.call_bulk(service, request, Bulk::None)?.reply)
    }

    /// Returns the answer to a sent request. No other reply may arrive before it.
    ///
    /// # Errors
    /// The errors of [`Console::call_bulk`].
    pub fn answer(&mut self, service: u64, (reply_id, bulk_id): (u64, u64)) -> Result<Answer, String> {
        let (bits, bytes) = self.next_reply()?;
        if bits != reply_id {
            return Err(format!("a reply to {bits:#x}, not to {reply_id:#x}"));
        }
        let reply = Lst::received(&bytes).ok_or_else(|| format!("the reply {bytes:02x?}"))?;
        let due = service::request_type(service).map(|kind| kind + 1);
        if Some(reply.kind()) != due || reply.at(4) != 1 {
            return Err(format!("type {} and version {} of a reply", reply.kind(), reply.at(4)));
        }
        // The bulk has a connection of its own, so it may arrive after the reply.
        while reply.status() == 0 && self.awaited.contains_key(&bulk_id) {
            if let Some((bits, _)) = self.receive()? {
                return Err(format!("a reply to {bits:#x}, where bulk was due"));
            }
        }
        self.offers.remove(&bulk_id);
        self.awaited.remove(&bulk_id);
        Ok(Answer { reply, bulk: self.bulk.remove(&bulk_id).unwrap_or_default() })
    }

    /// Serves the node until a reply arrives; returns its match bits and bytes.
    ///
    /// # Errors
    /// The errors of [`Console::call_bulk`].
    pub fn next_reply(&mut self) -> Result<(u64, Vec<u8>), String> {
        loop {
            if let Some(reply) = self.receive()? {
                return Ok(reply);
            }
        }
    }

    /// Handles the next message of the node; returns the match bits and bytes of a reply.
    fn receive(&mut self) -> Result<Option<(u64, Vec<u8>)>, String> {
        let (link, message) = self.session.message()?;
        self.session.judge_choice(link, &message)?;
        let bits = message.bits();
        match message.kind {
            GET if message.portal() == REPLIES && message.offset() == 0 => self.serve(&message)?,
            PUT if message.portal() == REPLIES && message.handle() == NO_HANDLE => {
                if self.replies.remove(&bits) {
                    return Ok(Some((bits, message.payload)));
                }
                let (due, length) = (self.awaited.remove(&bits), message.payload.len());
                if due != Some(length) {
                    return Err(format!("{length} bytes for {bits:#x}, where {due:?} were due"));
                }
                self.bulk.insert(bits, message.payload);
            }
            _ => return Err(format!("an unexpected message {message:x?}")),
        }
        Ok(None)
    }

    /// Answers a GET with an offered buffer. A GET of another buffer is dropped, as LNet does.
    fn serve(&mut self, get: &Message) -> Result<(), String> {
        let Some(bytes) = self.offers.get(&get.bits()) else { return Ok(()) };
        let sent = bytes.len().min(get.sink() as usize);
        let reply = get.answer(REPLY, self.session.identity(0).0, &bytes[..sent]);
        self.session.send_best(&reply)
    }
}

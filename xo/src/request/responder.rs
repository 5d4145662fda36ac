//! The responder: the server's side.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use nlx_core::Errno;
use nlx_service::rpc::{HEADER, Header, MessageDecision, RequestId, Server};
use parking_lot::Mutex;

use super::mailbox::{LATE_MAX, Mailbox, MailboxEvent};
use super::replies::Replies;
use super::{RequestError, ResponderCounters, ResponderOptions, SEND_TIMEOUT};
use crate::{Buffer, EndPoint, Error, Machine, Message, TransferMachine};

/// Receives requests ([`super::Requester`]) and answers them.
///
/// An at-most-once request that has run and is repeated gets the stored answer; the program does
/// not get it a second time.
///
/// It drives its transfer machine in [`Responder::next`]. There it also asks the clients of requests
/// that wait for their answers for more time, before their deadlines.
pub struct Responder {
    mailbox: Mailbox,
    server: Server<EndPoint>,
    replies: Replies,
    /// Requests that the program has let go, answered or not.
    released: Arc<Mutex<Vec<RequestId>>>,
}

/// A received request: its bytes, lent out of a receive buffer.
///
/// Answer it with [`Responder::answer`] or [`Responder::refuse`], now or later, in any order. Copy
/// a request that is kept while a thousand others arrive: its receive buffer, one of at most
/// sixteen, takes no further messages. A request that is dropped is not answered; its client's call
/// ends at its deadline.
#[derive(Debug)]
pub struct Request {
    id: RequestId,
    message: Message,
    from: EndPoint,
    released: Arc<Mutex<Vec<RequestId>>>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.released.lock().push(self.id);
    }
}

impl Request {
    /// Returns the client that sent the request.
    #[must_use]
    pub fn client(&self) -> &EndPoint {
        &self.from
    }
}

impl Deref for Request {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.message.get(HEADER..).unwrap_or_default()
    }
}

impl Responder {
    /// Makes a responder on this transfer machine, which must have no callbacks and no other use.
    ///
    /// # Errors
    /// [`Error::Delivery`] for a machine with callbacks; an error of [`Machine::start`].
    pub fn new(tm: TransferMachine, options: ResponderOptions) -> Result<Responder, RequestError> {
        let mailbox = Mailbox::new(tm, options.message_max)?;
        let server = Server::new(super::random()?, &options);
        Ok(Responder { mailbox, server, replies: Replies::default(), released: Arc::default() })
    }

    /// Returns the next request to run, or `None` when the timeout has passed. `None` as timeout
    /// waits without limit.
    ///
    /// # Errors
    /// The errors of [`TransferMachine::wait`].
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Request>, RequestError> {
        let deadline_ns = timeout.map(|timeout| self.mailbox.machine().deadline(timeout));
        let mut late = 0;
        loop {
            let now_ns = self.mailbox.machine().now_ns();
            self.ask_for_time(now_ns);
            let rest_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns));
            let early_ns = self.server.next_ns().map(|early_ns| early_ns.saturating_sub(now_ns));
            let wait_ns = [rest_ns, early_ns].into_iter().flatten().min();
            let event = self.mailbox.wait(wait_ns.map(Duration::from_nanos))?;
            match event {
                Some(MailboxEvent::Sent { tag, buffer, error: _ }) => {
                    self.replies.end(tag);
                    self.mailbox.put(buffer);
                }
                Some(MailboxEvent::Message { message, from }) => {
                    if let Some(id) = self.receive(&message, &from) {
                        let released = self.released.clone();
                        return Ok(Some(Request { id, message, from, released }));
                    }
                }
                None if rest_ns == Some(0) => return Ok(None),
                None => {}
            }
            late += usize::from(rest_ns == Some(0));
            if late >= LATE_MAX {
                return Ok(None);
            }
        }
    }

    /// Answers a request. Success means that the answer is being sent; a client that does not get
    /// it repeats the request. If a client's node does not receive its answers, a limited number is
    /// in flight, and further ones are dropped ([`ResponderCounters::unsent`]).
    ///
    /// # Errors
    /// EMSGSIZE for an answer that is too long: the request can still be answered; an error of
    /// [`Machine::start`].
    pub fn answer(&mut self, request: &Request, answer: &[u8]) -> Result<(), RequestError> {
        let limit = self.mailbox.body_max();
        if answer.len() > limit {
            return Err(RequestError::TooLong { bytes: answer.len(), limit });
        }
        self.reply(request, 0, answer)
    }

    /// Answers that the request has failed: the client gets [`RequestError::Refused`] with this
    /// errno.
    ///
    /// # Errors
    /// The errors of [`Responder::answer`].
    pub fn refuse(&mut self, request: &Request, errno: Errno) -> Result<(), RequestError> {
        self.reply(request, errno as u32, &[])
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> ResponderCounters {
        self.server.counters()
    }

    /// Returns the number of clients whose answers it stores.
    pub fn sessions(&self) -> usize {
        self.server.sessions()
    }

    /// Returns the transfer machine, for its address and statistics. Its events belong to the
    /// responder.
    pub fn machine(&self) -> &Machine {
        self.mailbox.machine()
    }

    fn reply(&mut self, request: &Request, status: u32, body: &[u8]) -> Result<(), RequestError> {
        let now_ns = self.mailbox.machine().now_ns();
        // `None` if it was answered before.
        let Some(answer) = self.server.answered(request.id, status, body, now_ns) else { return Ok(()) };
        let buffer = self.mailbox.filled(body)?;
        Ok(self.send(buffer, &answer, &request.from)?)
    }

    /// Returns the id of a request for the program. All other messages are answered here.
    fn receive(&mut self, message: &[u8], from: &EndPoint) -> Option<RequestId> {
        let now_ns = self.mailbox.machine().now_ns();
        let sent = match self.server.receive(message, from, now_ns) {
            MessageDecision::Run(id, _) => return Some(id),
            MessageDecision::Answer(header, body) => {
                self.mailbox.filled(body).and_then(|buffer| self.send(buffer, &header, from))
            }
            MessageDecision::Drop => Ok(()),
        };
        if let Err(error) = sent {
            // The client repeats its request, as after a lost answer.
            tracing::debug!(client = %from, %error, "an answer was not sent");
        }
        None
    }

    /// Sends the early replies that are due.
    fn ask_for_time(&mut self, now_ns: u64) {
        self.released.lock().drain(..).for_each(|id| self.server.dropped(id));
        while let Some((header, to)) = self.server.early(now_ns) {
            let sent = self.mailbox.filled(&[]).and_then(|buffer| self.send(buffer, &header, &to));
            if let Err(error) = sent {
                tracing::debug!(client = %to, %error, "an early reply was not sent");
            }
        }
    }

    /// Sends an answer, or drops it if the limit of answers in flight to the node is reached, as if
    /// the network had lost it.
    fn send(&mut self, buffer: Buffer, header: &Header, to: &EndPoint) -> Result<(), Error> {
        let Some(tag) = self.replies.begin(to.address().nid) else {
            self.server.count_unsent();
            self.mailbox.put(buffer);
            return Ok(());
        };
        self.mailbox.send(buffer, header, to, tag, SEND_TIMEOUT).map_err(|(buffer, error)| {
            self.replies.end(tag);
            self.mailbox.put(buffer);
            error
        })
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Responder({}, {} sessions)", self.machine().address(), self.sessions())
    }
}

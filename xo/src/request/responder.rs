//! The responder: the server's side.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use nlx_core::Errno;

use super::mailbox::{LATE_MAX, Mailbox, MailboxEvent};
use super::replies::Replies;
use super::sessions::{RequestAction, Sessions};
use super::terms::{RequestError, ResponderCounters, ResponderOptions, SEND_TIMEOUT};
use super::wire::{HEADER, Header, Kind};
use crate::{EndPoint, Error, Machine, Message, TransferMachine};

/// Receives requests ([`super::Requester`]) and answers them.
///
/// An at-most-once request that has run and is repeated gets the stored answer; the program does
/// not get it a second time.
///
/// It drives its transfer machine in [`Responder::next`].
pub struct Responder {
    mailbox: Mailbox,
    sessions: Sessions,
    replies: Replies,
    counters: ResponderCounters,
}

/// A received request: its bytes, lent out of a receive buffer.
///
/// Answer it with [`Responder::answer`] or [`Responder::refuse`], now or later, in any order. Copy
/// a request that is kept while a thousand others arrive: its receive buffer, one of at most
/// sixteen, takes no further messages. A request that is dropped is not answered; its client's call
/// ends at its deadline.
#[derive(Debug)]
pub struct Request {
    header: Header,
    message: Message,
    from: EndPoint,
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
        let idle_ns = u64::try_from(options.session_idle.as_nanos()).unwrap_or(u64::MAX);
        let sessions = Sessions::new(options.sessions_max.max(1), idle_ns);
        Ok(Responder {
            mailbox,
            sessions,
            replies: Replies::default(),
            counters: ResponderCounters::default(),
        })
    }

    /// Returns the next request to run, or `None` when the timeout has passed. `None` as timeout
    /// waits without limit.
    ///
    /// # Errors
    /// As [`TransferMachine::wait`].
    pub fn next(&mut self, timeout: Option<Duration>) -> Result<Option<Request>, RequestError> {
        let deadline_ns = timeout.map(|timeout| self.mailbox.machine().deadline(timeout));
        let mut late = 0;
        loop {
            let now_ns = self.mailbox.machine().now_ns();
            let rest_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(now_ns));
            let event = self.mailbox.wait(rest_ns.map(Duration::from_nanos))?;
            match event {
                Some(MailboxEvent::Sent { tag, buffer, error: _ }) => {
                    self.replies.end(tag);
                    self.mailbox.put(buffer);
                }
                Some(MailboxEvent::Message { header, message, from })
                    if self.is_to_run(&header, &from)? =>
                {
                    self.counters.requests += 1;
                    return Ok(Some(Request { header, message, from }));
                }
                Some(MailboxEvent::Message { .. }) => {}
                Some(MailboxEvent::Malformed) => self.counters.malformed += 1,
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
    /// As [`Responder::answer`].
    pub fn refuse(&mut self, request: &Request, errno: Errno) -> Result<(), RequestError> {
        self.reply(request, errno as u32, &[])
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> ResponderCounters {
        self.counters
    }

    /// Returns the number of clients whose answers it stores.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the transfer machine, for its address and statistics. Its events belong to the
    /// responder.
    pub fn machine(&self) -> &Machine {
        self.mailbox.machine()
    }

    fn reply(&mut self, request: &Request, status: u32, body: &[u8]) -> Result<(), RequestError> {
        let Request { header, from, .. } = request;
        if header.kind == Kind::Once {
            self.sessions.answered((from.address(), header.client), header, status, body);
        }
        let answer = Header { kind: Kind::Answer, status, length: body.len() as u32, ..*header };
        Ok(self.sender().send(&answer, body, from)?)
    }

    fn sender(&mut self) -> Sender<'_> {
        let Responder { mailbox, replies, counters, .. } = self;
        Sender { mailbox, replies, unsent: &mut counters.unsent }
    }

    /// Returns whether a message is a request for the program. All other messages are answered
    /// here.
    fn is_to_run(&mut self, header: &Header, from: &EndPoint) -> Result<bool, Error> {
        let key = (from.address(), header.client);
        let now_ns = self.mailbox.machine().now_ns();
        let (kind, status, session, body) = match header.kind {
            Kind::Often => return Ok(true),
            Kind::Open => match self.sessions.open(key, super::terms::random()?, now_ns) {
                Some(session) => (Kind::Opened, 0, session, &[][..]),
                None => {
                    self.counters.full += 1;
                    (Kind::Refusal, Errno::EBUSY as u32, 0, &[][..])
                }
            },
            Kind::Once => match self.sessions.request(key, header, now_ns) {
                RequestAction::Run => return Ok(true),
                RequestAction::Ignore => {
                    self.counters.ignored += 1;
                    return Ok(false);
                }
                RequestAction::Repeat { status, body } => {
                    self.counters.repeated += 1;
                    (Kind::Answer, status, header.session, body)
                }
                RequestAction::Stale => {
                    self.counters.stale += 1;
                    (Kind::Refusal, Errno::ESTALE as u32, header.session, &[][..])
                }
            },
            Kind::Opened | Kind::Answer | Kind::Refusal => {
                self.counters.malformed += 1;
                return Ok(false);
            }
        };
        let answer = Header { kind, status, session, length: body.len() as u32, ..*header };
        let unsent = &mut self.counters.unsent;
        let mut sender = Sender { mailbox: &mut self.mailbox, replies: &mut self.replies, unsent };
        if let Err(error) = sender.send(&answer, body, from) {
            // The client repeats its request, as after a lost answer.
            tracing::debug!(client = %from, %error, "an answer was not sent");
        }
        Ok(false)
    }
}

/// Sends answers, with the parts of the responder that it needs.
struct Sender<'a> {
    mailbox: &'a mut Mailbox,
    replies: &'a mut Replies,
    unsent: &'a mut u64,
}

impl Sender<'_> {
    /// Sends an answer, or drops it if the limit of answers in flight to the node is reached, as if
    /// the network had lost it.
    fn send(&mut self, header: &Header, body: &[u8], to: &EndPoint) -> Result<(), Error> {
        let buffer = self.mailbox.filled(body)?;
        let Some(tag) = self.replies.begin(to.address().nid) else {
            *self.unsent += 1;
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

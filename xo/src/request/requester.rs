//! The requester: the client's side.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use nlx_service::Class;
use nlx_service::rpc::{Action, Calls, ClientId, EndedCall, HEADER, Header, NewCall};

use super::mailbox::{LATE_MAX, Mailbox, MailboxEvent};
use super::{CallId, Delivery, RequestCounters, RequestError, RequestOptions, SEND_TIMEOUT};
use crate::{Buffer, EndPoint, Error, Machine, Message, TransferMachine};

/// Sends requests to servers ([`super::Responder`]), and returns their answers.
///
/// A request without an answer is sent again, at growing intervals, until its deadline: a server
/// without a posted receive buffer loses messages, and so does a network. [`super::Delivery`]
/// determines how often the request may run. A call to a server that cannot be reached ends as soon
/// as that is known ([`RequestError::Unreachable`]), unless the options are
/// [patient](RequestOptions::patient).
///
/// It drives its transfer machine in [`Requester::wait`] and [`Requester::call`]: nothing is sent
/// again or received outside of them.
pub struct Requester {
    mailbox: Mailbox,
    calls: Calls<EndPoint, Buffer>,
    finished: VecDeque<Finished>,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The call's id.
    pub call: CallId,
    /// The answer, or the error.
    pub outcome: Result<Answer, RequestError>,
    /// The time from its start to its end.
    pub after: Duration,
}

/// The bytes of an answer, lent out of a receive buffer. There are at most sixteen such buffers, of
/// 64 messages each, so copy an answer that is kept for long.
#[derive(Debug)]
pub struct Answer(Message);

impl Deref for Answer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.get(HEADER..).unwrap_or_default()
    }
}

impl Requester {
    /// Makes a requester on this transfer machine, which must have no callbacks and no other use.
    ///
    /// # Errors
    /// [`Error::Delivery`] for a machine with callbacks; an error of [`Machine::start`], or of the
    /// system's random number generator.
    pub fn new(tm: TransferMachine, options: RequestOptions) -> Result<Requester, RequestError> {
        let mailbox = Mailbox::new(tm, options.message_max)?;
        let client = ClientId { number: 0, incarnation: super::random()? };
        Ok(Requester { mailbox, calls: Calls::new(client, options), finished: VecDeque::new() })
    }

    /// Sends a request, and blocks until it is answered. Results of other calls stay queued for
    /// [`Requester::wait`].
    ///
    /// # Errors
    /// The errors of [`Requester::start`], and the error of the call.
    pub fn call(&mut self, server: &EndPoint, request: &[u8]) -> Result<Answer, RequestError> {
        let call = self.start(server, request)?;
        self.outcome(call)
    }

    /// Sends a request that carries an [`crate::Offer`] or a [`crate::Descriptor`], and blocks
    /// until it is answered. `stage` stages the buffer on another transfer machine, and returns the
    /// request.
    ///
    /// An offer works once. So the request runs at most once, whatever the options say: when it is
    /// repeated, the server returns the stored answer, and does not use the offer again. If the
    /// server has forgotten whether the request has run, and the options are
    /// [`Delivery::AtLeastOnce`], `stage` is called again for a request with a new offer, until the
    /// deadline; it should cancel the old one.
    ///
    /// # Errors
    /// The errors of [`Requester::call`], and the errors of `stage`.
    pub fn call_offering(
        &mut self,
        server: &EndPoint,
        mut stage: impl FnMut() -> Result<Vec<u8>, RequestError>,
    ) -> Result<Answer, RequestError> {
        let deadline_ns = self.calls.deadline_ns(self.mailbox.machine().now_ns());
        loop {
            let call = self.begin(server, &stage()?, Delivery::AtMostOnce, deadline_ns)?;
            match self.outcome(call) {
                Err(RequestError::Forgotten { .. }) if self.calls.delivery() == Delivery::AtLeastOnce => {}
                ended => return ended,
            }
        }
    }

    /// Blocks until one call has ended.
    fn outcome(&mut self, call: CallId) -> Result<Answer, RequestError> {
        loop {
            if let Some(index) = self.finished.iter().position(|finished| finished.call == call)
                && let Some(finished) = self.finished.remove(index)
            {
                return finished.outcome;
            }
            self.turn(None)?;
        }
    }

    /// Starts a call; [`Requester::wait`] returns its result.
    ///
    /// # Errors
    /// EMSGSIZE for a request that is too long, EAGAIN if the limit of calls in flight at this
    /// server is reached, ENOMEM.
    pub fn start(&mut self, server: &EndPoint, request: &[u8]) -> Result<CallId, RequestError> {
        self.start_as(server, request, self.calls.delivery())
    }

    /// Starts a call with this delivery instead of that of the options. For a request that carries
    /// an offer or a descriptor, use [`Delivery::AtMostOnce`]: see [`Requester::call_offering`].
    ///
    /// # Errors
    /// The errors of [`Requester::start`].
    pub fn start_as(
        &mut self,
        server: &EndPoint,
        request: &[u8],
        delivery: Delivery,
    ) -> Result<CallId, RequestError> {
        let deadline_ns = self.calls.deadline_ns(self.mailbox.machine().now_ns());
        self.begin(server, request, delivery, deadline_ns)
    }

    fn begin(
        &mut self,
        server: &EndPoint,
        request: &[u8],
        delivery: Delivery,
        deadline_ns: u64,
    ) -> Result<CallId, RequestError> {
        let limit = self.mailbox.body_max();
        if request.len() > limit {
            return Err(RequestError::TooLong { bytes: request.len(), limit });
        }
        self.calls.check_room(server)?;
        let buffer = self.mailbox.filled(request)?;
        let (length, class, has_offers) = (request.len() as u32, Class::Normal, false);
        let new = NewCall { buffer, length, delivery, class, has_offers, deadline_ns };
        let call = self.calls.begin(server, new, self.mailbox.machine().now_ns());
        self.act();
        Ok(call)
    }

    /// Returns the next call that has ended, or `None` when the timeout has passed. `None` as
    /// timeout waits without limit.
    ///
    /// # Errors
    /// The errors of [`TransferMachine::wait`].
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Finished>, RequestError> {
        let deadline_ns = timeout.map(|timeout| self.mailbox.machine().deadline(timeout));
        let mut late = 0;
        loop {
            if let Some(finished) = self.finished.pop_front() {
                return Ok(Some(finished));
            }
            let now_ns = self.mailbox.machine().now_ns();
            let passed = deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
            late += usize::from(passed);
            let found = self.turn(deadline_ns)?;
            if passed && self.finished.is_empty() && (!found || late >= LATE_MAX) {
                return Ok(None);
            }
        }
    }

    /// Ends a call early; its end is queued at once. Returns false if it has ended already. The
    /// server may run the request all the same.
    pub fn give_up(&mut self, call: CallId) -> bool {
        let ended = self.calls.give_up(call, self.mailbox.machine().now_ns());
        let was_there = ended.is_some();
        ended.into_iter().for_each(|ended| self.finish(ended, None));
        was_there
    }

    /// Returns the number of calls in flight.
    pub fn in_flight(&self) -> usize {
        self.calls.in_flight()
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> RequestCounters {
        self.calls.counters()
    }

    /// Returns the transfer machine, for end points and statistics. Its events belong to the
    /// requester.
    pub fn machine(&self) -> &Machine {
        self.mailbox.machine()
    }

    /// Waits for one event of the mailbox, until the deadline or until an action is due. Returns
    /// whether there was one.
    fn turn(&mut self, deadline_ns: Option<u64>) -> Result<bool, Error> {
        self.act();
        let until_ns = [deadline_ns, self.calls.next_ns()].into_iter().flatten().min();
        let now_ns = self.mailbox.machine().now_ns();
        let timeout = until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(now_ns)));
        let timeout = if self.finished.is_empty() { timeout } else { Some(Duration::ZERO) };
        let event = self.mailbox.wait(timeout)?;
        let found = event.is_some();
        event.into_iter().for_each(|event| self.handle_event(event));
        self.act();
        Ok(found)
    }

    fn handle_event(&mut self, event: MailboxEvent) {
        match event {
            MailboxEvent::Sent { tag, buffer, error } => {
                let over = self.calls.returned(CallId::from_tag(tag), buffer);
                over.into_iter().for_each(|buffer| self.mailbox.put(buffer));
                self.sent(tag, error.as_ref());
            }
            MailboxEvent::Message { message, from } => {
                let now_ns = self.mailbox.machine().now_ns();
                if let Some(ended) = self.calls.receive(&message, &from, now_ns) {
                    self.finish(ended, Some(message));
                }
            }
        }
    }

    fn sent(&mut self, tag: u64, error: Option<&Error>) {
        let now_ns = self.mailbox.machine().now_ns();
        let error = error.map(|error| (error.errno(), error as &dyn fmt::Display));
        while let Some(ended) = self.calls.sent(tag, error, now_ns) {
            self.finish(ended, None);
        }
    }

    /// Carries out the actions that are due.
    fn act(&mut self) {
        let now_ns = self.mailbox.machine().now_ns();
        while let Some(action) = self.calls.act(now_ns) {
            match action {
                Action::Request { id, buffer, header, to, within } => {
                    // A refused request is sent again at its next retry.
                    if let Err((buffer, error)) = self.mailbox.send(buffer, &header, &to, id.tag(), within) {
                        tracing::debug!(server = %to, %error, "a request was not sent");
                        self.handle_event(MailboxEvent::Sent { tag: id.tag(), buffer, error: Some(error) });
                    }
                }
                Action::Open { tag, header, to } => self.open(tag, &header, &to),
                Action::Ended(ended) => self.finish(ended, None),
            }
        }
    }

    fn open(&mut self, tag: u64, header: &Header, to: &EndPoint) {
        let sent = self.mailbox.filled(&[]).map_err(|error| (None, error)).and_then(|buffer| {
            self.mailbox
                .send(buffer, header, to, tag, SEND_TIMEOUT)
                .map_err(|(buffer, error)| (Some(buffer), error))
        });
        if let Err((buffer, error)) = sent {
            tracing::debug!(server = %to, %error, "a request for a session was not sent");
            buffer.into_iter().for_each(|buffer| self.mailbox.put(buffer));
            self.sent(tag, Some(&error));
        }
    }

    fn finish(&mut self, ended: EndedCall<Buffer>, message: Option<Message>) {
        let EndedCall { id, result, after, buffer } = ended;
        buffer.into_iter().for_each(|buffer| self.mailbox.put(buffer));
        let outcome = match (result, message) {
            (Ok(()), Some(message)) => Ok(Answer(message)),
            (Ok(()), None) => Err(RequestError::GivenUp),
            (Err(error), _) => Err(error),
        };
        self.finished.push_back(Finished { call: id, outcome, after });
    }
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Requester({}, {} in flight)", self.machine().address(), self.in_flight())
    }
}

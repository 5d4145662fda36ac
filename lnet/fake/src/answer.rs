//! The responder's results for PUTs and GETs that are not scripted.

use lnet_api::{AckRequest, Errno, Put};

use crate::ScriptedEvent;

/// The result of a PUT ([`crate::FakeLnet::on_put`], without content on success) or of a GET
/// ([`crate::FakeLnet::on_get`], with the bytes of the REPLY).
///
/// The events of the operation are delivered inside the call, SEND first.
#[derive(Debug, Clone)]
pub enum Answer<T> {
    /// The operation stays in flight until the test injects its events.
    Hold,
    /// The message leaves and is lost on the way: SEND, and no ACK or REPLY.
    Lose,
    /// The message does not leave: SEND with this status.
    Fail(Errno),
    /// The message arrives: SEND, and the REPLY, or the ACK if the PUT requests one.
    Done(T),
    /// The operation has these events, in this order.
    Events(Vec<ScriptedEvent>),
}

impl<T> Answer<T> {
    /// Returns the events of the result; for an arrival, `done` makes the ACK or REPLY.
    fn events(self, done: impl FnOnce(T) -> Option<ScriptedEvent>) -> Vec<ScriptedEvent> {
        match self {
            Answer::Hold => Vec::new(),
            Answer::Lose => vec![ScriptedEvent::send()],
            Answer::Fail(errno) => vec![ScriptedEvent::send().failed(errno)],
            Answer::Done(content) => [ScriptedEvent::send()].into_iter().chain(done(content)).collect(),
            Answer::Events(events) => events,
        }
    }
}

impl Answer<()> {
    pub(crate) fn for_put(self, put: &Put) -> Vec<ScriptedEvent> {
        self.events(|()| (put.ack == AckRequest::Ack).then(ScriptedEvent::ack))
    }
}

impl Answer<Vec<u8>> {
    pub(crate) fn for_get(self) -> Vec<ScriptedEvent> {
        self.events(|bytes| Some(ScriptedEvent::reply().bytes(bytes)))
    }
}

//! A model of the client's events as a function of LNet's: the table of motr-transport 5.8 and the
//! rules of the seed, written independently of kcore.

use lnet_api::{Errno, Event, EventKind};
use nlx_core::{BufferEvent, Queue};

/// A step of one operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trace {
    /// The client cancelled it.
    Cancelled,
    /// LNet produced this event.
    Said(Event),
}

/// An event of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientEvent {
    pub(crate) status: Result<(), Errno>,
    pub(crate) length: u64,
    pub(crate) offset: u64,
    pub(crate) last: bool,
}

impl ClientEvent {
    pub(crate) fn by(event: &BufferEvent) -> ClientEvent {
        let BufferEvent { length, offset, .. } = *event;
        ClientEvent { status: event.status(), length, offset, last: event.unlinked() }
    }

    fn of(event: &Event) -> ClientEvent {
        let (length, offset) = (u64::from(event.mlength), event.offset);
        ClientEvent { status: event.status, length, offset, last: event.unlinked }
    }

    fn failure(errno: Errno) -> ClientEvent {
        ClientEvent { status: Err(errno), length: 0, offset: 0, last: true }
    }
}

/// Returns the client's events in the course of an operation, and the number of faulty LNet events.
/// Calls `hit` with the name of each row of the table that was used.
pub(crate) fn expected(
    queue: Queue,
    course: &[Trace],
    hit: &mut dyn FnMut(&'static str),
) -> (Vec<ClientEvent>, u64) {
    use EventKind::{Ack, Get, Put, Reply, Send, Unlink};
    let (mut events, mut faults) = (Vec::new(), 0);
    // The table's flag `ooo`, and the outcome saved with it.
    let mut saved: Option<ClientEvent> = None;
    // Not in the table: the SEND of a message that never left does not end its MD in every LNet
    // (lnet-semantics 8).
    let mut never_left: Option<Errno> = None;
    let mut cancelled = false;
    for step in course {
        let event = match step {
            Trace::Cancelled => {
                cancelled = true;
                continue;
            }
            // Rule 1, except that an active send asks for an ACK, and that an ACK which was not
            // requested must not end an operation unnoticed.
            Trace::Said(event)
                if event.kind == EventKind::Ack && !event.unlinked && queue != Queue::ActiveBulkSend =>
            {
                continue;
            }
            Trace::Said(event) => event,
        };
        let is_get = queue == Queue::ActiveBulkReceive;
        let is_put = matches!(queue, Queue::MessageSend | Queue::ActiveBulkSend);
        let is_acked = queue == Queue::ActiveBulkSend;
        let (row, made) = match (event.kind, event.unlinked) {
            (Send, false) if is_get && event.status.is_ok() => ("GET: SEND, more to come", None),
            (Send, false) if is_get || (is_put && event.status.is_err()) => {
                never_left = event.status.err();
                ("never left, more to come", None)
            }
            (Send, true) if is_get => match (event.status, saved) {
                (Err(errno), _) => {
                    ("GET: SEND failed", Some(ClientEvent { status: Err(errno), ..ClientEvent::of(event) }))
                }
                (Ok(()), None) => ("GET: unlink rides on SEND", Some(ClientEvent::failure(Errno::ECANCELED))),
                (Ok(()), Some(reply)) => ("GET: SEND after REPLY", Some(ClientEvent { last: true, ..reply })),
            },
            // Not in the table: an active send is over when it has left and is acknowledged. Its
            // length is that of the SEND.
            (Send, false) if is_acked => {
                saved = Some(ClientEvent::of(event));
                ("PUT: SEND, more to come", None)
            }
            (Send, true) if is_acked => match (event.status, saved) {
                (Err(_), _) => ("PUT: SEND failed", Some(ClientEvent::of(event))),
                (Ok(()), None) => ("PUT: unlink rides on SEND", Some(ClientEvent::failure(Errno::ECANCELED))),
                (Ok(()), Some(ClientEvent { status: Err(errno), .. })) => {
                    ("PUT: SEND after ACK", Some(ClientEvent::failure(errno)))
                }
                (Ok(()), Some(_)) => ("PUT: SEND after ACK", Some(ClientEvent::of(event))),
            },
            (Ack, false) if is_acked => {
                saved = Some(ClientEvent::of(event));
                ("PUT: ACK, more to come", None)
            }
            (Ack, true) if is_acked => {
                let made = match event.status {
                    Ok(()) => ClientEvent { last: true, ..saved.unwrap_or_else(|| ClientEvent::of(event)) },
                    Err(errno) => ClientEvent::failure(errno),
                };
                ("PUT: ACK", Some(made))
            }
            (Reply, false) if is_get => {
                saved = Some(ClientEvent::of(event));
                ("GET: REPLY, more to come", None)
            }
            (Reply, true) if is_get => ("GET: REPLY", Some(ClientEvent::of(event))),
            (Unlink, true) => {
                let before = never_left.or(saved.and_then(|reply| reply.status.err()));
                let errno = before.or(event.status.err()).unwrap_or(Errno::ECANCELED);
                ("UNLINK", Some(ClientEvent::failure(errno)))
            }
            (Put, last) if queue == Queue::MessageReceive => {
                (if last { "receive: PUT, last" } else { "receive: PUT" }, Some(ClientEvent::of(event)))
            }
            (Send, true) if is_put => ("PUT: SEND", Some(ClientEvent::of(event))),
            (Put, true) if queue == Queue::PassiveBulkReceive => {
                ("passive receive: PUT", Some(ClientEvent::of(event)))
            }
            (Get, true) if queue == Queue::PassiveBulkSend => {
                ("passive send: GET", Some(ClientEvent::of(event)))
            }
            // An assertion in the table; K4 counts it. The operation ends if it must, but with an
            // error.
            (_, last) => {
                faults += 1;
                let errno = event.status.err().unwrap_or(Errno::EIO);
                ("anything else", last.then(|| ClientEvent::failure(errno)))
            }
        };
        hit(row);
        events.extend(made.map(|made| match made.status {
            // LNet's status of an operation that was unlinked in flight.
            Err(Errno::ETIMEDOUT) if cancelled => ClientEvent { status: Err(Errno::ECANCELED), ..made },
            _ => made,
        }));
    }
    (events, faults)
}

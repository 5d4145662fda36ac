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

/// An event as the client saw it.
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
    let (mut events, mut faults) = (Vec::new(), 0);
    let mut model = Model { saved: None, never_left: None };
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
        let (row, made) = model.row(queue, event).unwrap_or_else(|| {
            // An assertion in the table; K4 counts it. The operation ends if it must, but with an
            // error.
            faults += 1;
            let errno = event.status.err().unwrap_or(Errno::EIO);
            ("anything else", event.unlinked.then(|| ClientEvent::failure(errno)))
        });
        hit(row);
        events.extend(made.map(|made| match made.status {
            // LNet's status of an operation that was unlinked in flight.
            Err(Errno::ETIMEDOUT) if cancelled => ClientEvent { status: Err(Errno::ECANCELED), ..made },
            _ => made,
        }));
    }
    (events, faults)
}

/// A row of the table: its name, and the client's event, if it makes one.
type Row = (&'static str, Option<ClientEvent>);

/// The state that an operation keeps of its earlier LNet events.
struct Model {
    /// The table's flag `ooo`, and the outcome saved with it.
    saved: Option<ClientEvent>,
    /// Not in the table: the SEND of a message that never left does not end its MD in every LNet
    /// (lnet-semantics 8).
    never_left: Option<Errno>,
}

impl Model {
    /// Returns the row for an event; `None` if the table asserts that it does not come.
    fn row(&mut self, queue: Queue, event: &Event) -> Option<Row> {
        if event.kind == EventKind::Unlink && event.unlinked {
            let before = self.never_left.or(self.saved.and_then(|saved| saved.status.err()));
            let errno = before.or(event.status.err()).unwrap_or(Errno::ECANCELED);
            return Some(("UNLINK", Some(ClientEvent::failure(errno))));
        }
        match queue {
            Queue::ActiveBulkReceive => self.get(event),
            Queue::ActiveBulkSend => self.acked_put(event),
            Queue::MessageSend => self.put(event),
            Queue::MessageReceive | Queue::PassiveBulkReceive | Queue::PassiveBulkSend => {
                Model::target(queue, event)
            }
        }
    }

    fn get(&mut self, event: &Event) -> Option<Row> {
        Some(match (event.kind, event.unlinked) {
            (EventKind::Send, false) if event.status.is_ok() => ("GET: SEND, more to come", None),
            (EventKind::Send, false) => self.never_leaves(event),
            (EventKind::Send, true) => match (event.status, self.saved) {
                (Err(_), _) => ("GET: SEND failed", Some(ClientEvent::of(event))),
                (Ok(()), None) => ("GET: unlink rides on SEND", Some(ClientEvent::failure(Errno::ECANCELED))),
                (Ok(()), Some(reply)) => ("GET: SEND after REPLY", Some(ClientEvent { last: true, ..reply })),
            },
            (EventKind::Reply, false) => {
                self.saved = Some(ClientEvent::of(event));
                ("GET: REPLY, more to come", None)
            }
            (EventKind::Reply, true) => ("GET: REPLY", Some(ClientEvent::of(event))),
            _ => return None,
        })
    }

    /// Not in the table: an active send is over when it has left and is acknowledged. Its length is
    /// that of the SEND.
    fn acked_put(&mut self, event: &Event) -> Option<Row> {
        Some(match (event.kind, event.unlinked) {
            (EventKind::Send, false) if event.status.is_err() => self.never_leaves(event),
            (EventKind::Send, false) => {
                self.saved = Some(ClientEvent::of(event));
                ("PUT: SEND, more to come", None)
            }
            (EventKind::Send, true) => match (event.status, self.saved) {
                (Err(_), _) => ("PUT: SEND failed", Some(ClientEvent::of(event))),
                (Ok(()), None) => ("PUT: unlink rides on SEND", Some(ClientEvent::failure(Errno::ECANCELED))),
                (Ok(()), Some(ClientEvent { status: Err(errno), .. })) => {
                    ("PUT: SEND after ACK", Some(ClientEvent::failure(errno)))
                }
                (Ok(()), Some(_)) => ("PUT: SEND after ACK", Some(ClientEvent::of(event))),
            },
            (EventKind::Ack, false) => {
                self.saved = Some(ClientEvent::of(event));
                ("PUT: ACK, more to come", None)
            }
            (EventKind::Ack, true) => {
                let made = match event.status {
                    Ok(()) => ClientEvent { last: true, ..self.saved.unwrap_or(ClientEvent::of(event)) },
                    Err(errno) => ClientEvent::failure(errno),
                };
                ("PUT: ACK", Some(made))
            }
            _ => return None,
        })
    }

    fn put(&mut self, event: &Event) -> Option<Row> {
        match (event.kind, event.unlinked) {
            (EventKind::Send, false) if event.status.is_err() => Some(self.never_leaves(event)),
            (EventKind::Send, true) => Some(("PUT: SEND", Some(ClientEvent::of(event)))),
            _ => None,
        }
    }

    /// Returns the row for an event of an operation that a peer begins.
    fn target(queue: Queue, event: &Event) -> Option<Row> {
        let name = match (queue, event.kind, event.unlinked) {
            (Queue::MessageReceive, EventKind::Put, false) => "receive: PUT",
            (Queue::MessageReceive, EventKind::Put, true) => "receive: PUT, last",
            (Queue::PassiveBulkReceive, EventKind::Put, true) => "passive receive: PUT",
            (Queue::PassiveBulkSend, EventKind::Get, true) => "passive send: GET",
            _ => return None,
        };
        Some((name, Some(ClientEvent::of(event))))
    }

    fn never_leaves(&mut self, event: &Event) -> Row {
        self.never_left = event.status.err();
        ("never left, more to come", None)
    }
}

//! Requests and their replies, one at a time.

use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::errno::Errno;
use nlx_driver_proto::{PACKET_MAX, Reply, Request};

use crate::socket::{Control, Socket};

/// Numbers requests, and holds the buffers for packets.
#[derive(Debug)]
pub(crate) struct Exchange {
    last_id: u64,
    packet: Vec<u8>,
    control: Control,
}

/// The reason why there is no reply.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The helper is gone.
    Gone,
    /// The helper does not answer.
    Late,
    /// The packet is not a reply to the request.
    Wrong(String),
}

impl Exchange {
    pub(crate) fn new() -> Exchange {
        Exchange { last_id: 0, packet: Vec::with_capacity(PACKET_MAX), control: Control::new() }
    }

    /// Sends a request, and waits for the answer. After a failure no further request may be sent:
    /// the late answer would be taken for that of another request.
    pub(crate) fn call(
        &mut self,
        socket: &Socket,
        request: &Request,
        deadline: Instant,
    ) -> Result<(Reply, Vec<OwnedFd>), ExchangeError> {
        self.last_id += 1;
        request.write(self.last_id, &mut self.packet);
        socket.send(&self.packet, deadline).map_err(ExchangeError::of)?;
        point!(request => asked);
        self.packet.resize(PACKET_MAX, 0);
        let received =
            socket.receive(&mut self.packet, &mut self.control, deadline).map_err(ExchangeError::of)?;
        point!(request => answered);
        if received.bytes == 0 {
            return Err(ExchangeError::Gone);
        }
        if received.cut {
            return Err(ExchangeError::Wrong(format!("a reply of more than {PACKET_MAX} bytes")));
        }
        let read = Reply::read(&self.packet[..received.bytes]);
        let (id, reply) = read.map_err(|error| ExchangeError::Wrong(error.to_string()))?;
        if id != self.last_id {
            return Err(ExchangeError::Wrong(format!("a reply to request {id}, not {}", self.last_id)));
        }
        let expected = match reply {
            Reply::Refused(_) => 0,
            _ if !answers(request, &reply) => {
                return Err(ExchangeError::Wrong(format!("{reply:?} to {:?}", request.kind())));
            }
            _ => request.kind().reply_descriptors(),
        };
        match received.fds.len() {
            count if count == expected => Ok((reply, received.fds)),
            count => {
                Err(ExchangeError::Wrong(format!("a reply with {count} descriptors: it has {expected}")))
            }
        }
    }
}

impl ExchangeError {
    fn of(errno: Errno) -> ExchangeError {
        match errno {
            Errno::ETIMEDOUT => ExchangeError::Late,
            Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN => ExchangeError::Gone,
            errno => ExchangeError::Wrong(format!("the socket failed: {}", errno.desc())),
        }
    }
}

/// Returns whether this is a reply of the request's kind, if it is not refused.
fn answers(request: &Request, reply: &Reply) -> bool {
    match request {
        Request::Hello(_) => matches!(reply, Reply::Welcome(_)),
        Request::CreateArena { .. } => matches!(reply, Reply::Arena { .. }),
        Request::StartTm(_) => matches!(reply, Reply::Started { .. }),
        Request::Nids => matches!(reply, Reply::Nids(_)),
        _ => matches!(reply, Reply::Done),
    }
}

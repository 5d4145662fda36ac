//! Packets: which request one is, and its answer.

use std::os::fd::OwnedFd;

use nlx_core::{BufferHandle, Errno};
use nlx_driver_proto::{Header, NIDS_MAX, PACKET_MAX, ProtoError, Reason, Refusal, Reply, Request};

use super::refusing::starved;
use super::{Answer, Session, Violation};
use crate::driver::Handed;

/// What can be answered of a packet, whatever else is wrong with it.
struct Envelope {
    kind: u16,
    id: u64,
}

impl Envelope {
    /// Of the first bytes, as [`Header`] has them.
    fn of(packet: &[u8]) -> Option<Envelope> {
        let (header, _) = packet.split_first_chunk::<{ Header::LEN }>()?;
        let (words, _) = header.as_chunks::<2>();
        let (halves, _) = header.as_chunks::<8>();
        Some(Envelope { kind: u16::from_le_bytes(words[0]), id: u64::from_le_bytes(halves[1]) })
    }
}

impl Session {
    /// A packet that cannot even be answered is garbage; all else that is wrong is refused, and nothing has changed then.
    pub(super) fn carry_out(
        &mut self,
        packet: &[u8],
        fds: Handed,
        answer: &mut Answer,
    ) -> Result<(), Violation> {
        answer.packet.clear();
        answer.fds.clear();
        let Envelope { kind, id } = Envelope::of(packet).ok_or(Violation::Packet { bytes: packet.len() })?;
        // The longest answer: nothing of it is written half.
        answer.packet.try_reserve(PACKET_MAX).map_err(|_| Violation::NoMemory)?;
        self.record.tally.requests.add(1);
        let reply = match read(packet, fds) {
            Ok((request, fd)) => self.reply_to(request, fd, answer),
            Err(error) => Err(Refusal::from(&error)),
        };
        let reply = reply.unwrap_or_else(|refusal| {
            self.count(&refusal);
            answer.fds.clear();
            Reply::Refused(refusal)
        });
        reply.write(kind, id, &mut answer.packet);
        Ok(())
    }

    fn reply_to(
        &mut self,
        request: Request,
        fd: Option<OwnedFd>,
        answer: &mut Answer,
    ) -> Result<Reply, Refusal> {
        if self.ring.is_none() && !matches!(request, Request::Hello(_)) {
            return Err(Refusal::new(Errno::EPROTO, Reason::Order));
        }
        match request {
            Request::Hello(hello) => self.hello(&hello, answer),
            Request::CreateArena { bytes, huge } => self.create_arena(bytes, huge, answer),
            Request::AdoptArena => self.adopt_arena(fd),
            Request::ReleaseArena { arena } => self.release_arena(arena),
            Request::Register { buffer, segments } => {
                self.register(BufferHandle(buffer), &segments).map(|()| Reply::Done)
            }
            Request::StartTm(start) => self.start_tm(&start, answer),
            Request::StopTm { tm } => self.stop_tm(tm),
            Request::TmDescriptor { tm } => self.tm_descriptor(tm, answer),
            // What stood in the ring has been carried out before.
            Request::Sync => Ok(Reply::Done),
            Request::Nids => {
                let mut nids = self.host.network.try_nids().map_err(starved)?;
                nids.truncate(NIDS_MAX);
                Ok(Reply::Nids(nids))
            }
        }
    }
}

/// The request, and the descriptor that comes with it if it has one. Others are closed.
fn read(packet: &[u8], mut fds: Handed) -> Result<(Request, Option<OwnedFd>), ProtoError> {
    let read = Request::read(packet).and_then(|(_, request)| {
        let (count, expected) = (fds.count(), request.descriptors());
        let wrong = ProtoError::Descriptors { object: "a request", count, expected };
        if count == expected { Ok(request) } else { Err(wrong) }
    });
    read.map(|request| (request, fds.take()))
}

//! Request packets: decoding one, and writing its answer.

use nlx_core::{BufferHandle, Errno};
use nlx_driver_proto::{Header, NIDS_MAX, PACKET_MAX, Reason, Refusal, Reply, Request};

use super::refusing::starved;
use super::{ReplyPacket, Session, Violation};

/// The fields that an answer needs, whatever else is wrong with the packet.
struct Envelope {
    kind: u16,
    id: u64,
}

impl Envelope {
    /// Reads the first bytes of a packet, which are laid out as in [`Header`].
    fn of(packet: &[u8]) -> Option<Envelope> {
        let (header, _) = packet.split_first_chunk::<{ Header::LEN }>()?;
        let (words, _) = header.as_chunks::<2>();
        let (halves, _) = header.as_chunks::<8>();
        Some(Envelope { kind: u16::from_le_bytes(words[0]), id: u64::from_le_bytes(halves[1]) })
    }
}

impl Session {
    /// Carries out a packet and writes its answer. A packet without a header is a violation. Any
    /// other error is refused, and nothing has changed then.
    pub(super) fn carry_out(&mut self, packet: &[u8], answer: &mut ReplyPacket) -> Result<(), Violation> {
        answer.packet.clear();
        answer.fds.clear();
        let Envelope { kind, id } = Envelope::of(packet).ok_or(Violation::Packet { bytes: packet.len() })?;
        // Reserved for the longest answer, so that no answer is truncated.
        answer.packet.try_reserve(PACKET_MAX).map_err(|_| Violation::NoMemory)?;
        self.record.counters.requests.add(1);
        let reply = match Request::read(packet) {
            Ok((_, request)) => self.reply_to(request, answer),
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

    fn reply_to(&mut self, request: Request, answer: &mut ReplyPacket) -> Result<Reply, Refusal> {
        match &mut self.ring {
            _ if matches!(request, Request::Hello(_)) => {}
            None => return Err(Refusal::new(Errno::EPROTO, Reason::Order)),
            Some(ring) => match ring.is_open() {
                true => {}
                false => return Err(Refusal::new(Errno::EPERM, Reason::Unsealed)),
            },
        }
        match request {
            Request::Hello(hello) => self.hello(&hello, answer),
            Request::CreateArena { bytes, huge, near } => self.create_arena(bytes, huge, near, answer),
            Request::ReleaseArena { arena } => self.release_arena(arena),
            Request::Register { buffer, segments } => {
                self.register(BufferHandle(buffer), &segments).map(|()| Reply::Done)
            }
            Request::StartTm(start) => self.start_tm(&start, answer),
            Request::StopTm { tm } => self.stop_tm(tm),
            Request::TmDescriptor { tm } => self.tm_descriptor(tm, answer),
            // The entries of the ring have been carried out before this request.
            Request::Sync => Ok(Reply::Done),
            Request::Nids => {
                let mut nids = self.host.network.try_nids().map_err(starved)?;
                nids.truncate(NIDS_MAX);
                Ok(Reply::Nids(nids))
            }
        }
    }
}

//! The set-up of each operation with LNet (S-413; motr-transport 5.6).

use lnet_api::{
    AckRequest, Get, LNetError, Md, MdHandle, MdOptions, MeSpec, Position, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, ProcessId};
use lnet_region::IoVec;
use nlx_core::{CoreError, HdrData, MatchCounter, OperationKind, RemoteTarget, match_bits, usable_portal};

use crate::event_sink::EventSink;
use crate::flight::FlightKey;
use crate::lnet_tm::LnetTm;
use crate::network::transport_error;

impl<T: EventSink> LnetTm<T> {
    /// Calls LNet for an operation that has been entered, on the bytes that it uses. On success the
    /// operation is in flight, or over already.
    pub(crate) fn set_up(
        &self,
        kind: &OperationKind,
        remote: Option<RemoteTarget>,
        memory: IoVec,
        (key, counter): (FlightKey, MatchCounter),
    ) -> Result<(), CoreError> {
        let md = |threshold, options| Md {
            memory,
            threshold: Threshold::Limited(threshold),
            max_size: 0,
            options,
            user_ptr: key.value(),
            eq: Some(self.eq),
        };
        match (kind, remote) {
            // Waits for messages or for a peer: an ME and its MD.
            (&OperationKind::Receive { min_receive_size, max_messages }, _) => {
                // At most a buffer's length, which fits.
                let max_size = min_receive_size as u32;
                let md = Md { max_size, ..md(max_messages, MdOptions::OP_PUT | MdOptions::MAX_SIZE) };
                self.attach(key, counter, md)
            }
            (OperationKind::PassiveSend { .. }, _) => self.attach(key, counter, md(1, MdOptions::OP_GET)),
            // Sends: an MD for the SEND, and a PUT.
            (OperationKind::Send { .. }, Some(remote)) => {
                let own = &self.shared.address;
                let hdr_data = HdrData { tmid: own.tmid.get(), portal: own.portal }.encode();
                self.put(key, &remote, md(1, MdOptions::empty()), (AckRequest::NoAck, hdr_data))
            }
            // Writes into a peer's buffer: an MD for the SEND and the ACK, and a PUT. Its success
            // means that the data has arrived; the peer's buffer may have been used or cancelled
            // meanwhile.
            (OperationKind::ActiveSend { .. }, Some(remote)) => {
                let md = md(2, MdOptions::TAKES_REFUSALS);
                self.put(key, &remote, md, (AckRequest::Ack, HdrData::NONE))
            }
            // Reads a peer's buffer: an MD for the SEND and the REPLY, and a GET.
            (OperationKind::ActiveReceive { .. }, Some(remote)) => {
                self.get(key, &remote, md(2, MdOptions::TAKES_REFUSALS))
            }
            // The remaining case is a passive receive. An active operation always has a remote
            // target, so `(_, None)` does not occur for one.
            (OperationKind::PassiveReceive, _) | (_, None) => {
                self.attach(key, counter, md(1, MdOptions::OP_PUT))
            }
        }
    }

    fn put(
        &self,
        key: FlightKey,
        remote: &RemoteTarget,
        md: Md,
        (ack, hdr_data): (AckRequest, u64),
    ) -> Result<(), CoreError> {
        let put = Put {
            source: Some(self.shared.address.nid),
            md,
            ack,
            target: process(remote),
            portal: remote.portal,
            match_bits: remote.match_bits,
            offset: 0,
            hdr_data,
        };
        self.note_sent(key, "put", self.shared.lnet.bind_put(put))
    }

    fn get(&self, key: FlightKey, remote: &RemoteTarget, md: Md) -> Result<(), CoreError> {
        let get = Get {
            source: Some(self.shared.address.nid),
            md,
            target: process(remote),
            portal: remote.portal,
            match_bits: remote.match_bits,
            offset: 0,
        };
        self.note_sent(key, "get", self.shared.lnet.bind_get(get))
    }

    fn attach(&self, key: FlightKey, counter: MatchCounter, md: Md) -> Result<(), CoreError> {
        let lnet = &self.shared.lnet;
        let me = MeSpec {
            // The portal was checked when the transfer machine was started.
            portal: usable_portal(self.shared.address.portal)?,
            match_id: ProcessId::ANY,
            match_bits: match_bits(self.shared.address.tmid, counter),
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        };
        let attached = lnet
            .me_attach(&me)
            .map_err(transport_error("attach a match entry"))
            // LNet unlinks the match entry itself if this fails.
            .and_then(|me| lnet.md_attach(me, md, Unlink::Auto).map_err(transport_error("attach a buffer")));
        match attached {
            Ok(md) => {
                self.note_md(key, md);
                Ok(())
            }
            // Report the refusal, unless an event has ended the operation already: the client gets
            // that event instead.
            Err(error) => {
                if self.shared.withdraw(key) {
                    Err(error)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Finishes a PUT or GET that was sent or refused. A refused one has no MD and gets no event.
    /// An operation that has ended already has left the table.
    fn note_sent(
        &self,
        key: FlightKey,
        action: &'static str,
        sent: Result<Option<MdHandle>, LNetError>,
    ) -> Result<(), CoreError> {
        match sent {
            Ok(None) => Ok(()),
            Ok(Some(md)) => {
                self.note_md(key, md);
                Ok(())
            }
            Err(error) => {
                self.shared.withdraw(key);
                Err(transport_error(action)(error))
            }
        }
    }

    /// Stores the MD, and unlinks it if the operation was cancelled or failed before the MD was
    /// known.
    fn note_md(&self, key: FlightKey, md: MdHandle) {
        if self.shared.set_md(key, md) {
            // ENOENT means that its last event is on the way.
            let _ = self.shared.lnet.md_unlink(md);
        }
    }
}

fn process(remote: &RemoteTarget) -> ProcessId {
    ProcessId::new(remote.address.nid, remote.address.pid)
}

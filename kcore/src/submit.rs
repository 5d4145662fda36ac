//! How each operation is set up with LNet (S-413; motr-transport 5.6).

use lnet_api::{
    AckRequest, EqHandle, Get, LNetError, Md, MdHandle, MdOptions, MeSpec, Position, Put, Threshold, Unlink,
};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_region::IoVec;
use nlx_core::{
    Address, CoreError, Descriptor, DescriptorForm, Fitted, HdrData, Limits, MatchCounter, OperationKind,
    Queue, match_bits, usable_portal,
};

use crate::network::transport_error;
use crate::shared::{Entered, Shared};
use crate::taker::Taker;

/// An operation whose numbers have been checked against its buffer.
pub struct Plan {
    queue: Queue,
    /// The bytes of the buffer that are used.
    memory: IoVec,
    setup: Setup,
}

enum Setup {
    /// Wait for messages or for a peer: an ME and its MD.
    Attach { options: MdOptions, threshold: u32, max_size: u32 },
    /// Send, or write into a peer's buffer: an MD and a PUT.
    Put { remote: Remote, hdr_data: u64, ack: AckRequest },
    /// Read a peer's buffer: an MD and a GET.
    Get { remote: Remote },
}

#[derive(Clone, Copy)]
struct Remote {
    target: ProcessId,
    portal: Portal,
    match_bits: MatchBits,
}

impl Plan {
    /// Checks an operation on a buffer of this memory.
    ///
    /// # Errors
    /// Those of [`OperationKind::fit`].
    pub fn new(
        kind: &OperationKind,
        memory: IoVec,
        own: &Address,
        limits: &Limits,
    ) -> Result<Plan, CoreError> {
        let Fitted { length, remote } = kind.fit(memory.len() as u64, limits)?;
        let remote = remote.map(Remote::of);
        let setup = match (kind, remote) {
            (&OperationKind::Receive { min_receive_size, max_messages }, _) => {
                let options = MdOptions::OP_PUT | MdOptions::MAX_SIZE;
                // At most a buffer's length, which fits.
                let max_size = min_receive_size as u32;
                Setup::Attach { options, threshold: max_messages, max_size }
            }
            (OperationKind::PassiveSend { .. }, _) => {
                Setup::Attach { options: MdOptions::OP_GET, threshold: 1, max_size: 0 }
            }
            (OperationKind::Send { .. }, Some(remote)) => {
                let hdr_data = HdrData { tmid: own.tmid.get(), portal: own.portal }.encode();
                Setup::Put { remote, hdr_data, ack: AckRequest::NoAck }
            }
            // Its success means that the data is there: the buffer may have been used or cancelled meanwhile.
            (OperationKind::ActiveSend { .. }, Some(remote)) => {
                Setup::Put { remote, hdr_data: HdrData::NONE, ack: AckRequest::Ack }
            }
            (OperationKind::ActiveReceive { .. }, Some(remote)) => Setup::Get { remote },
            // And those that name nobody, though they should: there are none.
            (OperationKind::PassiveReceive, _) | (_, None) => {
                Setup::Attach { options: MdOptions::OP_PUT, threshold: 1, max_size: 0 }
            }
        };
        // Not more than the buffer has, as has just been checked.
        let memory = memory.into_trimmed(length as usize)?;
        Ok(Plan { queue: kind.queue(), memory, setup })
    }

    /// Whom it goes to, unless it waits for others.
    #[must_use]
    pub fn target(&self) -> Option<(ProcessId, Portal)> {
        match &self.setup {
            Setup::Attach { .. } => None,
            Setup::Put { remote, .. } | Setup::Get { remote } => Some((remote.target, remote.portal)),
        }
    }

    /// The descriptor of a passive operation.
    pub(crate) fn descriptor(
        &self,
        form: DescriptorForm,
        own: &Address,
        counter: MatchCounter,
    ) -> Result<Option<Descriptor>, CoreError> {
        Descriptor::of_operation(form, *own, (self.queue, counter), self.memory.len() as u64)
    }

    /// Calls LNet. On success the operation is under way, or over already.
    pub(crate) fn start<T: Taker>(
        self,
        shared: &Shared<T>,
        eq: EqHandle,
        entered: Entered,
    ) -> Result<(), CoreError> {
        match self.setup {
            Setup::Attach { options, threshold, max_size } => {
                let md = Md { options, max_size, ..md(self.memory, eq, entered, threshold) };
                attach(shared, entered, md)
            }
            Setup::Put { remote, hdr_data, ack } => {
                // One for the SEND, one for the ACK if there is to be one.
                let (threshold, options) = match ack {
                    AckRequest::Ack => (2, MdOptions::TAKES_REFUSALS),
                    AckRequest::NoAck => (1, MdOptions::empty()),
                };
                let put = Put {
                    source: Some(shared.address.nid),
                    md: Md { options, ..md(self.memory, eq, entered, threshold) },
                    ack,
                    target: remote.target,
                    portal: remote.portal,
                    match_bits: remote.match_bits,
                    offset: 0,
                    hdr_data,
                };
                note_sent(shared, entered, "put", shared.lnet.bind_put(put))
            }
            Setup::Get { remote } => {
                // One for the SEND, one for the REPLY.
                let options = MdOptions::TAKES_REFUSALS;
                let get = Get {
                    source: Some(shared.address.nid),
                    md: Md { options, ..md(self.memory, eq, entered, 2) },
                    target: remote.target,
                    portal: remote.portal,
                    match_bits: remote.match_bits,
                    offset: 0,
                };
                note_sent(shared, entered, "get", shared.lnet.bind_get(get))
            }
        }
    }
}

impl Remote {
    fn of(nlx_core::Remote { address, portal, match_bits }: nlx_core::Remote) -> Remote {
        Remote { target: ProcessId::new(address.nid, address.pid), portal, match_bits }
    }
}

fn md(memory: IoVec, eq: EqHandle, entered: Entered, threshold: u32) -> Md {
    Md {
        memory,
        threshold: Threshold::Limited(threshold),
        max_size: 0,
        options: MdOptions::empty(),
        user_ptr: entered.key.value(),
        eq: Some(eq),
    }
}

fn attach<T: Taker>(shared: &Shared<T>, entered: Entered, md: Md) -> Result<(), CoreError> {
    let me = MeSpec {
        // Checked when the transfer machine was started.
        portal: usable_portal(shared.address.portal)?,
        match_id: ProcessId::ANY,
        match_bits: match_bits(shared.address.tmid, entered.counter),
        ignore_bits: MatchBits(0),
        unlink: Unlink::Auto,
        position: Position::After,
    };
    let attached = shared
        .lnet
        .me_attach(&me)
        .map_err(transport_error("attach a match entry"))
        // LNet unlinks the match entry itself if this fails.
        .and_then(|me| {
            shared.lnet.md_attach(me, md, Unlink::Auto).map_err(transport_error("attach a buffer"))
        });
    match attached {
        Ok(md) => {
            note_md(shared, entered, md);
            Ok(())
        }
        Err(error) => withdraw(shared, entered, error),
    }
}

/// A PUT or GET is under way, or was refused: then LNet has no MD, and no event comes. What has ended already has left.
fn note_sent<T: Taker>(
    shared: &Shared<T>,
    entered: Entered,
    action: &'static str,
    sent: Result<Option<MdHandle>, LNetError>,
) -> Result<(), CoreError> {
    match sent {
        Ok(None) => Ok(()),
        Ok(Some(md)) => {
            note_md(shared, entered, md);
            Ok(())
        }
        Err(error) => {
            shared.withdraw(entered.key);
            Err(transport_error(action)(error))
        }
    }
}

/// Notes the MD, and unlinks it if that was wanted before it was known.
fn note_md<T: Taker>(shared: &Shared<T>, entered: Entered, md: MdHandle) {
    if shared.set_md(entered.key, md) {
        // ENOENT means that its last event is on the way.
        let _ = shared.lnet.md_unlink(md);
    }
}

/// The refusal stands unless an event has ended the operation already: then the client learns from that one.
fn withdraw<T: Taker>(shared: &Shared<T>, entered: Entered, error: CoreError) -> Result<(), CoreError> {
    if shared.withdraw(entered.key) { Err(error) } else { Ok(()) }
}

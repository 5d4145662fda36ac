use std::collections::VecDeque;

use lnet_api::Errno;
use lnet_o2iblnd::conn::{Conn, Emit, EmitKind, EndedOp, Limits, OpKey, Own, Receipt};
use lnet_proto::ib::MessageKind;

use super::NEVER;
use super::wire::{encode, link};
use lnet_sim::Rng;

/// The role of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    Own(Own),
    /// The sink of a PUT; `origin` is the peer's operation.
    Sink {
        length: u32,
        origin: usize,
    },
    /// The source of a GET's data.
    Source(Result<u32, Errno>),
}

/// An operation, as the world records it.
#[derive(Clone, Debug)]
pub(crate) struct WorldOp {
    pub(crate) role: Role,
    pub(crate) left: bool,
    /// The number of posted messages of the operation.
    pub(crate) sends: u32,
    pub(crate) ended: bool,
    pub(crate) withdrawn: bool,
    /// The expected result, once that is determined.
    pub(crate) expected: Option<Result<u32, Errno>>,
    /// For a PUT, the peer's operation that receives it.
    pub(crate) sink: Option<usize>,
}

impl WorldOp {
    pub(crate) fn length(&self) -> u32 {
        match self.role {
            Role::Own(Own::Put { length } | Own::Get { length }) | Role::Sink { length, .. } => length,
            Role::Own(Own::Immediate) | Role::Source(_) => 0,
        }
    }
}

/// One side: its connection, its device, and its driver.
pub(crate) struct Node {
    index: usize,
    pub(crate) conn: Option<Conn<usize>>,
    pub(crate) ops: Vec<WorldOp>,
    /// Sends that the driver has not seen complete, the oldest first.
    pub(crate) posted: VecDeque<(u64, EmitKind, Option<usize>)>,
    /// The number of sends in `posted` that have not been delivered: the newest ones.
    pub(crate) undelivered: usize,
    /// Messages in flight to the peer.
    pub(crate) wire: VecDeque<Vec<u8>>,
    /// Messages in the buffers of this node that its driver has not processed.
    pub(crate) arrived: VecDeque<Vec<u8>>,
    /// The number of posted buffers.
    pub(crate) buffers: u32,
    /// Receipts of messages whose buffers are not posted again.
    pub(crate) receipts: Vec<Receipt>,
    /// The peer's requests that wait for an answer, with the peer's operation.
    pub(crate) requests: Vec<(OpKey, MessageKind, usize)>,
    /// PUT_REQs that were refused and whose buffer is not posted again yet; `reposted` has those
    /// whose buffer was posted again before they were answered.
    pub(crate) refused: Vec<OpKey>,
    pub(crate) reposted: Vec<OpKey>,
    /// PUTs of this node whose writes are not prepared yet.
    pub(crate) wanted: Vec<(OpKey, u32, usize)>,
    /// The number of credits that this node has used, and that the peer does not owe yet.
    pub(crate) used: u32,
    /// The number of credits in this node's messages that the peer has not received.
    pub(crate) credits_on_wire: u32,
    pub(crate) noops: u32,
    /// The number of sent messages that needed a credit; `credit_messages_in` counts the received
    /// ones.
    pub(crate) credit_messages: u32,
    pub(crate) credit_messages_in: u32,
}

impl Node {
    pub(crate) fn new(index: usize, limits: &Limits) -> Node {
        Node {
            index,
            conn: Some(Conn::new(limits, 0)),
            ops: Vec::new(),
            posted: VecDeque::new(),
            undelivered: 0,
            wire: VecDeque::new(),
            arrived: VecDeque::new(),
            buffers: 2 * u32::from(limits.depth) + 2,
            receipts: Vec::new(),
            requests: Vec::new(),
            refused: Vec::new(),
            reposted: Vec::new(),
            wanted: Vec::new(),
            used: 0,
            credits_on_wire: 0,
            noops: 0,
            credit_messages: 0,
            credit_messages_in: 0,
        }
    }

    pub(crate) fn conn(&mut self) -> &mut Conn<usize> {
        self.conn.as_mut().unwrap()
    }

    pub(crate) fn note(&mut self, role: Role) -> usize {
        let expected = match role {
            Role::Own(Own::Immediate) => Some(Ok(0)),
            Role::Source(result) => Some(result),
            _ => None,
        };
        self.ops.push(WorldOp {
            role,
            left: false,
            sends: 0,
            ended: false,
            withdrawn: false,
            expected,
            sink: None,
        });
        self.ops.len() - 1
    }

    pub(crate) fn begin(&mut self, rng: &mut Rng) -> bool {
        let length = rng.between((0, 1 << 20)) as u32;
        let own = match rng.below(3) {
            0 => Own::Immediate,
            1 => Own::Put { length },
            _ => Own::Get { length },
        };
        self.queue(own)
    }

    pub(crate) fn queue(&mut self, own: Own) -> bool {
        let op = self.note(Role::Own(own));
        let queued = self.conn().queue(own, NEVER, op);
        if queued.is_err() {
            assert_eq!(self.ops.pop().map(|_| self.ops.len()), queued.err());
            return false;
        }
        true
    }

    /// Emits and posts the next message. Returns false if there is none.
    pub(crate) fn emit(&mut self, now_ns: u64) -> bool {
        let link = link(self.index);
        let Some(Emit { id, credits, kind, item }) = self.conn.as_mut().unwrap().next(now_ns) else {
            return false;
        };
        let op = item.map(|item| *item);
        let length = op.map_or(0, |op| {
            self.ops[op].left = true;
            self.ops[op].sends += 1;
            self.ops[op].length()
        });
        match kind {
            EmitKind::Noop => {
                assert!(credits > 0, "a NOOP for nothing");
                self.noops += 1;
                let posted = self.posted.iter().filter(|(_, kind, _)| *kind == EmitKind::Noop).count();
                assert!(posted < 2, "{posted} NOOPs are posted");
            }
            EmitKind::Immediate | EmitKind::PutReq { .. } | EmitKind::GetReq { .. } => {
                self.used += 1;
                self.credit_messages += 1;
            }
            _ => {}
        }
        self.credits_on_wire += u32::from(credits);
        self.posted.push_back((id.bits(), kind, op));
        self.undelivered += 1;
        self.wire.push_back(encode(&link, credits, kind, op.unwrap_or(usize::MAX), length));
        true
    }

    /// Completes the oldest send, if it was delivered.
    pub(crate) fn complete(&mut self) -> bool {
        if self.posted.len() == self.undelivered {
            return false;
        }
        let (id, _, op) = self.posted.pop_front().unwrap();
        if let Some(op) = op {
            self.ops[op].sends -= 1;
        }
        let ended = self.conn().completed(id).unwrap();
        if let Some(ended) = ended {
            self.ended(ended);
        }
        true
    }

    pub(crate) fn withdraw(&mut self, rng: &mut Rng) -> bool {
        let some: Vec<usize> = (0..self.ops.len()).filter(|op| !self.ops[*op].ended).collect();
        let Some(&wanted) = some.get(rng.index(some.len())) else { return false };
        let own = matches!(self.ops[wanted].role, Role::Own(_));
        let waits = own && !self.ops[wanted].left && !self.ops[wanted].withdrawn;
        let got = self.conn().withdraw(|op| *op == wanted);
        assert_eq!(got, waits.then_some(wanted), "what has not left can be had back, and nothing else");
        self.ops[wanted].withdrawn |= got.is_some();
        got.is_some()
    }

    pub(crate) fn ended(&mut self, ended: EndedOp<usize>) {
        let op = &mut self.ops[ended.item];
        assert!(!std::mem::replace(&mut op.ended, true) && !op.withdrawn, "{op:?} ends twice");
        assert_eq!(op.sends, 0, "{op:?} ends before its memory is free");
        assert_eq!(Some(ended.outcome), op.expected, "{op:?}");
    }
}

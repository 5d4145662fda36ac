//! The counters and lists of lnet-wire 36, searched from the start each time.

use lnet_o2iblnd::conn::Limits;
use lnet_proto::ib::MessageKind;

/// A message to be sent: its kind, its operation, and its work requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Queued {
    pub(crate) kind: MessageKind,
    pub(crate) op: usize,
    pub(crate) works: u32,
}

/// The counters and lists of lnet-wire 36.
pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) high_water: usize,
    pub(crate) credits: usize,
    pub(crate) reserved: usize,
    pub(crate) outstanding: usize,
    /// The number of credits that the peer has, or that are in flight to it.
    pub(crate) granted: usize,
    pub(crate) peer_reserved: usize,
    pub(crate) no_credit: Vec<Queued>,
    pub(crate) credit: Vec<Queued>,
    pub(crate) waiting: Vec<Queued>,
    pub(crate) posted: Vec<(u64, Queued)>,
    /// For each NOOP with credits, the number of credits that the peer had then and has still not
    /// used.
    pub(crate) unseen: Vec<usize>,
    /// True if this side must show the peer that it lives.
    pub(crate) shows_life: bool,
    /// The number of NOOPs sent since a message was last received.
    pub(crate) unheard: usize,
}

impl Model {
    pub(crate) fn new(limits: Limits) -> Model {
        let depth = usize::from(limits.depth);
        Model {
            limits,
            high_water: usize::from(limits.high_water).clamp(1, (depth / 2).max(1)),
            credits: depth,
            reserved: depth,
            outstanding: 0,
            granted: depth,
            peer_reserved: depth,
            no_credit: Vec::new(),
            credit: Vec::new(),
            waiting: Vec::new(),
            posted: Vec::new(),
            unseen: Vec::new(),
            shows_life: false,
            unheard: 0,
        }
    }

    pub(crate) fn promote(&mut self) {
        while self.reserved > 0 && !self.waiting.is_empty() {
            self.reserved -= 1;
            self.credit.push(self.waiting.remove(0));
        }
    }

    pub(crate) fn hears_credit_message(&mut self) {
        self.granted -= 1;
        self.unseen.iter_mut().for_each(|left| *left = left.saturating_sub(1));
    }

    /// Returns the next message to emit, with its credits.
    pub(crate) fn next(&mut self) -> Option<(Queued, usize)> {
        let used: u32 = self.posted.iter().map(|(_, queued)| queued.works).sum();
        let fits =
            |works| self.posted.len() < usize::from(self.limits.sends) && used + works <= self.limits.works;
        let queued = if let Some(first) = self.no_credit.first() {
            if !fits(first.works) {
                return None;
            }
            self.no_credit.remove(0)
        } else if !fits(1) {
            return None;
        } else if self.credits > 0 && !self.credit.is_empty() {
            self.credits -= 1;
            self.credit.remove(0)
        } else {
            let posted = self.posted.iter().filter(|(_, queued)| queued.kind == MessageKind::Noop).count();
            // The peer has surely handled a NOOP only when its first credit has been used.
            let unseen = self.unseen.iter().filter(|left| **left > 0).count();
            let stuck = self.granted == 0 && self.outstanding > 0;
            let credits = unseen < 2 && self.unheard < 2 && (stuck || self.outstanding >= self.high_water);
            if posted == 2 || !(credits || self.shows_life && self.unheard == 0) {
                return None;
            }
            if self.outstanding > 0 {
                self.unseen.push(self.granted + 1);
            }
            self.unheard += 1;
            Queued { kind: MessageKind::Noop, op: usize::MAX, works: 1 }
        };
        if [MessageKind::PutAck, MessageKind::PutNak, MessageKind::GetDone].contains(&queued.kind) {
            self.peer_reserved += 1;
        }
        self.shows_life = false;
        let credits = std::mem::take(&mut self.outstanding);
        self.granted += credits;
        Some((queued, credits))
    }
}

//! Messages that wait for a connection to their peer.

use std::collections::VecDeque;

use lnet_api::{Errno, Tx, TxToken, Upcalls};

/// The most messages that wait for one peer. An NI has 256 credits by default and seldom more than ten times that; a program that
/// queues more does not look at its results.
const WAITING_MAX: usize = 4096;

/// The messages that wait for one peer, oldest first, in its lock; [`Withdrawn`] ends them outside of it.
#[derive(Debug, Default)]
pub struct Waiting {
    queue: VecDeque<Tx>,
    /// The message that the peer's driver has in hand outside of the lock, to send it.
    in_hand: Option<InHand>,
}

#[derive(Debug)]
struct InHand {
    token: TxToken,
    /// It was to be taken back meanwhile.
    is_cancelled: bool,
}

impl Waiting {
    /// Whether none waits, nor is in hand: the next message would overtake none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.in_hand.is_none()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The one that has waited longest.
    #[must_use]
    pub fn first(&self) -> Option<&Tx> {
        self.queue.front()
    }

    /// The same, taken out, for a driver that sends it before it gives up the peer's lock.
    pub fn take_first(&mut self) -> Option<Tx> {
        self.queue.pop_front()
    }

    /// The same, for a driver that sends it outside of the lock: no other message is sent before it until
    /// [`Waiting::let_go`].
    pub fn hand_out(&mut self) -> Option<Tx> {
        let tx = self.queue.pop_front()?;
        self.in_hand = Some(InHand { token: tx.token, is_cancelled: false });
        Some(tx)
    }

    /// The driver has nothing in hand any more. Whether the message that it had was to be taken back meanwhile: if it has not
    /// been sent, it is to fail with ECANCELED, outside of the lock.
    pub fn let_go(&mut self) -> bool {
        self.in_hand.take().is_some_and(|in_hand| in_hand.is_cancelled)
    }

    /// A message waits again, before all others.
    pub fn put_back(&mut self, tx: Tx) {
        self.queue.push_front(tx);
    }

    /// Whether so many wait that no more are taken: ENOBUFS.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() >= WAITING_MAX
    }

    /// One more waits, behind all others.
    pub fn push(&mut self, tx: Tx) {
        self.queue.push_back(tx);
    }

    /// Takes out the message of this token. Of one that is in hand it is noted: it fails if it cannot be sent.
    pub fn take(&mut self, token: TxToken) -> Option<Tx> {
        if let Some(in_hand) = self.in_hand.as_mut().filter(|in_hand| in_hand.token == token) {
            in_hand.is_cancelled = true;
            return None;
        }
        let place = self.queue.iter().position(|tx| tx.token == token)?;
        self.queue.remove(place)
    }

    /// Takes out those that have waited for too long.
    pub fn take_overdue(&mut self, now_ns: u64) -> Withdrawn {
        let mut overdue = VecDeque::new();
        while self.queue.front().is_some_and(|tx| tx.deadline_ns <= now_ns) {
            overdue.extend(self.queue.pop_front());
        }
        Withdrawn(overdue)
    }

    /// Takes out all.
    pub fn take_all(&mut self) -> Withdrawn {
        Withdrawn(std::mem::take(&mut self.queue))
    }
}

/// Messages that wait no more, and are to fail.
#[derive(Debug)]
#[must_use = "each of them is to be finalised"]
pub struct Withdrawn(VecDeque<Tx>);

impl Withdrawn {
    /// Fails them, under no lock of their peer, and gives how many there were.
    pub fn fail(self, upcalls: &dyn Upcalls, errno: Errno) -> usize {
        let count = self.0.len();
        for Tx { token, payload, .. } in self.0 {
            drop(payload);
            upcalls.finalize_tx(token, Err(errno));
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use lnet_nid::{MatchBits, Nid, ProcessId};
    use lnet_proto::{Body, Header, WireHandle};

    use super::*;

    fn tx(token: u64) -> Tx {
        let peer = ProcessId::lnet(Nid::LOOPBACK);
        let body = Body::Put {
            ack_wmd: WireHandle::NONE,
            match_bits: MatchBits(token),
            hdr_data: 0,
            portal: 0,
            offset: 0,
        };
        let header = Header { dest: peer, src: peer, payload_length: 0, body };
        let (token, deadline_ns) = (TxToken(token), u64::MAX);
        Tx { ni: Nid::LOOPBACK, peer, header, payload: None, token, reply_to: None, deadline_ns }
    }

    fn of(tokens: [u64; 2]) -> Waiting {
        let mut waiting = Waiting::default();
        tokens.map(tx).into_iter().for_each(|tx| waiting.push(tx));
        waiting
    }

    #[test]
    fn nothing_overtakes_what_is_in_hand() {
        let mut waiting = of([1, 2]);
        let first = waiting.hand_out().unwrap();
        let second = waiting.take(TxToken(2));
        assert_eq!(second.map(|tx| tx.token), Some(TxToken(2)));
        assert_eq!((waiting.len(), waiting.is_empty()), (0, false));
        assert!(!waiting.let_go());
        waiting.put_back(first);
        waiting.push(tx(3));
        assert_eq!(waiting.hand_out().unwrap().token, TxToken(1));
        waiting.let_go();
        assert_eq!(waiting.hand_out().unwrap().token, TxToken(3));
        waiting.let_go();
        assert!(waiting.is_empty() && waiting.hand_out().is_none());
    }

    #[test]
    fn what_is_cancelled_in_hand_does_not_wait_again() {
        let mut waiting = of([1, 2]);
        let first = waiting.hand_out().unwrap();
        assert!(waiting.take(TxToken(1)).is_none(), "it may still leave");
        assert!(waiting.let_go());
        drop(first);
        // The next has not inherited that.
        let second = waiting.hand_out().unwrap();
        assert!(!waiting.let_go());
        waiting.put_back(second);
        assert_eq!(waiting.len(), 1);
        // Nor has one that comes after a cancelled message which has been sent after all.
        waiting.push(tx(3));
        let sent = waiting.hand_out().unwrap();
        assert!(waiting.take(sent.token).is_none());
        waiting.let_go();
        assert_eq!(waiting.hand_out().unwrap().token, TxToken(3));
        assert!(!waiting.let_go());
    }
}

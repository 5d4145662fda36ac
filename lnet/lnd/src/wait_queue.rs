//! Messages that wait for a connection to their peer.

use std::collections::VecDeque;

use lnet_api::{Errno, Tx, TxToken, Upcalls};

/// The limit of messages that wait for one peer. An NI has 256 credits by default and rarely more
/// than ten times that; a program that queues more messages ignores the results of its sends.
const WAITING_MAX: usize = 4096;

/// The messages that wait for one peer, oldest first, under its lock; [`Withdrawn`] ends them after
/// the lock has been released.
#[derive(Debug, Default)]
pub struct WaitQueue {
    queue: VecDeque<Tx>,
    /// The message that the peer's driver is sending outside of the lock.
    in_hand: Option<InHand>,
}

#[derive(Debug)]
struct InHand {
    token: TxToken,
    /// Set if the message was withdrawn while it was being sent.
    is_cancelled: bool,
}

impl WaitQueue {
    /// Returns whether no message waits or is being sent, so that the next message overtakes none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.in_hand.is_none()
    }

    /// Returns the number of messages that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the message that has waited longest.
    #[must_use]
    pub fn first(&self) -> Option<&Tx> {
        self.queue.front()
    }

    /// Removes and returns the first message, for a driver that sends it before it releases the
    /// peer's lock.
    pub fn take_first(&mut self) -> Option<Tx> {
        self.queue.pop_front()
    }

    /// Removes and returns the first message, for a driver that sends it outside of the lock: no
    /// other message is sent before it until [`WaitQueue::end_hand_out`].
    pub fn hand_out(&mut self) -> Option<Tx> {
        let tx = self.queue.pop_front()?;
        self.in_hand = Some(InHand { token: tx.token, is_cancelled: false });
        Some(tx)
    }

    /// Ends [`WaitQueue::hand_out`]. Returns whether the message was withdrawn since: if it has
    /// not been sent, the caller fails it with ECANCELED, outside of the lock.
    pub fn end_hand_out(&mut self) -> bool {
        self.in_hand.take().is_some_and(|in_hand| in_hand.is_cancelled)
    }

    /// Puts a message back at the front of the queue.
    pub fn put_back(&mut self, tx: Tx) {
        self.queue.push_front(tx);
    }

    /// Returns whether the limit is reached, and further messages fail with ENOBUFS.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.queue.len() >= WAITING_MAX
    }

    /// Appends a message to the queue.
    pub fn push(&mut self, tx: Tx) {
        self.queue.push_back(tx);
    }

    /// Removes and returns the message with this token. A message that is being sent is only
    /// marked: it fails if it cannot be sent.
    pub fn take(&mut self, token: TxToken) -> Option<Tx> {
        if let Some(in_hand) = self.in_hand.as_mut().filter(|in_hand| in_hand.token == token) {
            in_hand.is_cancelled = true;
            return None;
        }
        let place = self.queue.iter().position(|tx| tx.token == token)?;
        self.queue.remove(place)
    }

    /// Removes the messages whose deadline has passed.
    pub fn take_overdue(&mut self, now_ns: u64) -> Withdrawn {
        let mut overdue = VecDeque::new();
        while self.queue.front().is_some_and(|tx| tx.deadline_ns <= now_ns) {
            overdue.extend(self.queue.pop_front());
        }
        Withdrawn(overdue)
    }

    /// Removes all messages.
    pub fn take_all(&mut self) -> Withdrawn {
        Withdrawn(std::mem::take(&mut self.queue))
    }
}

/// Messages that were removed from the queue and are to fail.
#[derive(Debug)]
#[must_use = "each of them is to be finalised"]
pub struct Withdrawn(VecDeque<Tx>);

impl Withdrawn {
    /// Fails the messages, without the lock of their peer; returns their number.
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

    fn of(tokens: [u64; 2]) -> WaitQueue {
        let mut waiting = WaitQueue::default();
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
        assert!(!waiting.end_hand_out());
        waiting.put_back(first);
        waiting.push(tx(3));
        assert_eq!(waiting.hand_out().unwrap().token, TxToken(1));
        waiting.end_hand_out();
        assert_eq!(waiting.hand_out().unwrap().token, TxToken(3));
        waiting.end_hand_out();
        assert!(waiting.is_empty() && waiting.hand_out().is_none());
    }

    #[test]
    fn what_is_cancelled_in_hand_does_not_wait_again() {
        let mut waiting = of([1, 2]);
        let first = waiting.hand_out().unwrap();
        assert!(waiting.take(TxToken(1)).is_none(), "it may still leave");
        assert!(waiting.end_hand_out());
        drop(first);
        // The cancellation mark does not carry over to the next message.
        let second = waiting.hand_out().unwrap();
        assert!(!waiting.end_hand_out());
        waiting.put_back(second);
        assert_eq!(waiting.len(), 1);
        // A cancelled message that was sent nevertheless has no effect on later ones either.
        waiting.push(tx(3));
        let sent = waiting.hand_out().unwrap();
        assert!(waiting.take(sent.token).is_none());
        waiting.end_hand_out();
        assert_eq!(waiting.hand_out().unwrap().token, TxToken(3));
        assert!(!waiting.end_hand_out());
    }
}

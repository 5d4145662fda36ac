use lnet_lnd::counting::Counts;
use lnet_lnd::{driver_counters, sender_counters};

sender_counters! {
    /// What the senders counted, in whichever thread.
    TxCounters, LiveTx {
        /// System calls that send.
        calls,
        /// Of these, how many could not write all they were given.
        short,
        /// LNet messages sent completely.
        messages,
        /// Bytes sent, prefixes and headers included.
        bytes,
        /// NOOPs sent that acknowledge zero-copy requests.
        zc_acks,
        /// NOOPs sent that keep a connection alive.
        keepalives,
        /// Answers that were not sent: there was no connection for them, and the peer had not proven its address.
        answers_withheld,
    }
}

driver_counters! {
    /// What the driver counted: receiving, and the life of connections.
    RxCounters, LiveRx {
        /// System calls that receive.
        calls,
        /// Payload bytes thrown away.
        bytes_discarded,
        /// Accepted connections that did not finish their handshake in time.
        handshake_timeouts,
    }
}

/// A snapshot of the LND's counters; each is exact, but they are not taken at one moment.
pub type SockCounters = Counts<TxCounters, RxCounters>;

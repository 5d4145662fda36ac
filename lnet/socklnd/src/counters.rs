use lnet_lnd::counters;
use lnet_lnd::counting::{Counter, Counts, DriverCounter};

counters! {
    /// What the senders counted, in whichever thread.
    TxCounters, LiveTx of Counter {
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
        /// Times a sleeping driver was woken.
        wakeups,
        /// Answers that were not sent: there was no connection for them, and the peer had not proven its address.
        answers_withheld,
    }
}

counters! {
    /// What the driver counted: receiving, and the life of connections.
    RxCounters, LiveRx of DriverCounter {
        /// `epoll_wait` calls.
        polls,
        /// System calls that receive.
        calls,
        /// LNet messages received.
        messages,
        /// NOOPs received.
        noops,
        /// Payload bytes copied from a connection buffer to their place.
        bytes_copied,
        /// Payload bytes that went from the socket straight to their place.
        bytes_direct,
        /// Payload bytes thrown away.
        bytes_discarded,
        /// Connections opened.
        connects,
        /// Attempts to open one that failed.
        connect_failures,
        /// Connections accepted.
        accepts,
        /// Connections turned away: source port, wrong NID, garbage, race, duplicate, limits.
        refusals,
        /// Of these, how many because the process has no descriptors to spare.
        no_room,
        /// Connections that came on one shard's listener for a peer of another shard.
        handed_over,
        /// Accepted connections that did not finish their handshake in time.
        handshake_timeouts,
        /// Peers whose connections were closed because they broke the protocol.
        protocol_errors,
        /// Peers whose connections were closed because nothing moved.
        timeouts,
        /// Peers that went away, for these and all other reasons.
        peers_lost,
    }
}

/// A snapshot of the LND's counters; each is exact, but they are not taken at one moment.
pub type SockCounters = Counts<TxCounters, RxCounters>;

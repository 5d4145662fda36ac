lnet_lnd::counters_of_lnd! {
    SockCounters {
        tx {
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
        rx {
            /// System calls that receive.
            calls,
            /// Payload bytes thrown away.
            bytes_discarded,
            /// Accepted connections that did not finish their handshake in time.
            handshake_timeouts,
        }
    }
}

lnet_lnd::counters_of_lnd! {
    SockCounters {
        tx {
            /// System calls that send.
            calls,
            /// Sending system calls that could not write all bytes.
            short,
            /// LNet messages sent completely.
            messages,
            /// Bytes sent, prefixes and headers included.
            bytes,
            /// NOOPs sent to acknowledge zero-copy requests.
            zc_acks,
            /// NOOPs sent to keep a connection alive.
            keepalives,
            /// Answers not sent: no connection existed for them, and the peer had not proven its
            /// address.
            answers_withheld,
        }
        rx {
            /// System calls that receive.
            calls,
            /// Payload bytes discarded.
            bytes_discarded,
            /// Accepted connections that did not finish their handshake in time.
            handshake_timeouts,
        }
    }
}

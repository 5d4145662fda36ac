//! The counters of the LND.

lnet_lnd::counters_of_lnd! {
    O2ibCounters {
        tx {
            /// LNet messages begun: IMMEDIATE, PUT_REQ, GET_REQ.
            messages,
            /// Messages of the protocol sent, of all types.
            sends,
            /// NOOPs among `sends`: they return credits, or keep a connection alive.
            noops,
            /// RDMA writes.
            writes,
            /// Calls that posted messages and writes to a device; one call may post several.
            posts,
            /// Payload bytes written by RDMA, or sent, straight from the payload's own memory.
            bytes_direct,
            /// Payload bytes copied into a message buffer: to be sent as part of the message, or to
            /// be written by RDMA from there.
            bytes_copied,
            /// Payload bytes copied into a bounce buffer and written from there, as the payload's
            /// memory is not registered.
            bytes_bounced,
            /// Transfers that had to wait for a bounce buffer.
            bounces_awaited,
        }
        rx {
            /// Payload bytes that were written to a bounce buffer and copied to the sink, as its
            /// memory is not registered.
            bytes_bounced,
            /// Payloads discarded.
            discards,
            /// Replies that ended their GET with EIO: they were shorter than the sink, and a peer
            /// other than nlx may not have written all of them.
            short_replies,
            /// Messages with a wrong checksum; they are accepted nevertheless (lnet-wire 32).
            checksum_errors,
        }
    }
}

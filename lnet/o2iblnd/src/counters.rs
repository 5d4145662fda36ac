lnet_lnd::counters_of_lnd! {
    O2ibCounters {
        tx {
            /// LNet messages begun: IMMEDIATE, PUT_REQ, GET_REQ.
            messages,
            /// Messages of the protocol sent, of all types.
            sends,
            /// Of these, NOOPs: they return credits, or keep a connection alive.
            noops,
            /// RDMA writes.
            writes,
            /// Times a device was told of messages and writes: it may be of several.
            posts,
            /// Bytes that were written by RDMA, or sent, straight from their place.
            bytes_direct,
            /// Payload bytes copied into a message, with which they are sent, or into its buffer, from which they are written.
            bytes_copied,
            /// Payload bytes that were copied through a bounce buffer to be written, for their memory is not registered.
            bytes_bounced,
            /// Transfers for which a bounce buffer had to be waited for.
            bounces_awaited,
        }
        rx {
            /// Payload bytes that were written to a bounce buffer and copied to their place, for its memory is not registered.
            bytes_bounced,
            /// Payloads thrown away.
            discards,
            /// Replies that ended their GET with EIO: they were shorter than the sink, and peers other than nlx may not have written
            /// them.
            short_replies,
            /// Messages whose checksum was wrong; they are taken all the same (lnet-wire 32).
            checksum_errors,
        }
    }
}

use crate::counts::counts;

counts! {
    /// Counts of the events on a simulated RDMA network, and of its nodes.
    IbSeen {
        /// Attempts to connect.
        connects: "attempts to connect",
        /// Connections that were established.
        established: "connections established",
        /// Attempts that a record rejected.
        rejected: "attempts rejected by a record",
        /// Attempts that found no listener.
        no_listener: "attempts without a listener",
        /// Attempts and resolutions that were given up.
        given_up: "attempts given up",
        /// Messages that were sent.
        sends: "sends",
        /// Writes into a peer's memory.
        writes: "RDMA writes",
        /// Bytes of these writes.
        written_bytes: "bytes written",
        /// Completion events of channels.
        interrupts: "completion events of channels",
        /// Work requests that failed.
        failed_works: "work requests failed",
        /// Work requests that were flushed.
        flushed: "work requests flushed",
        /// Connections that the network has broken.
        breaks: "connections broken",
        /// Disconnects that arrived.
        hang_ups: "disconnects",
        /// Registrations made.
        registrations: "registrations",
        /// Registrations that were refused.
        registrations_refused: "registrations refused",
        /// Ports that went down.
        ports_down: "ports down",
        /// Devices that were taken away.
        devices_removed: "devices removed",
        /// Bytes that were copied through a bounce buffer.
        bounced_bytes: "bytes bounced",
    }
}

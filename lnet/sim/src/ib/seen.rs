use crate::counts::counts;

counts! {
    /// How often each kind of thing has happened in worlds of RDMA nodes.
    IbSeen {
        /// Attempts to connect.
        connects: "attempts to connect",
        /// Connections that stood.
        established: "connections established",
        /// Attempts that a record rejected.
        rejected: "attempts rejected by a record",
        /// Attempts that found no listener.
        no_listener: "attempts without a listener",
        /// Attempts and searches for a way that were given up.
        given_up: "attempts given up",
        /// Messages.
        sends: "sends",
        /// Writes into a peer's memory.
        writes: "RDMA writes",
        /// Bytes of them.
        written_bytes: "bytes written",
        /// Times that a channel told of completions.
        interrupts: "channels told of completions",
        /// Work requests that failed.
        failed_works: "work requests failed",
        /// Work requests that were not carried out.
        flushed: "work requests flushed",
        /// Connections that the network has broken.
        breaks: "connections broken",
        /// Disconnects that arrived.
        hang_ups: "disconnects",
        /// Registrations.
        registrations: "registrations",
        /// Registrations that were refused.
        registrations_refused: "registrations refused",
        /// Ports that went down.
        ports_down: "ports down",
        /// Devices that were taken away.
        devices_removed: "devices removed",
        /// Programs' operations.
        operations: "operations",
        /// Operations that ended well.
        succeeded: "operations that succeeded",
        /// Operations that ended with an error.
        failed: "operations that failed",
        /// Operations that were unlinked.
        unlinked: "operations unlinked in flight",
        /// Payloads delivered and found as they were sent.
        delivered: "payloads delivered",
        /// Of these, held by a lazy portal before.
        held_and_met: "held messages met by a buffer",
        /// Cuts between two hosts.
        cuts: "cuts",
        /// Hosts that lost power, or programs that died.
        crashes: "hosts crashed",
        /// NIs removed and added.
        restarts: "NIs restarted",
        /// Bytes that were copied through a bounce buffer.
        bounced_bytes: "bytes bounced",
    }
}

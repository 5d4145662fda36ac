/// The node's counters under LNet's names (lnet-semantics 17). Counts never run backwards, except for the three that
/// tell how many there are right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages being sent, queued or received right now.
    pub msgs_alloc: u64,
    /// The most that `msgs_alloc` has been.
    pub msgs_max: u64,
    /// ACKs and REPLYs waited for right now.
    pub rst_alloc: u64,
    /// Messages sent or received that failed.
    pub errors: u64,
    /// Messages sent with success: PUT, GET, ACK and REPLY.
    pub send_count: u64,
    /// Messages received with success.
    pub recv_count: u64,
    /// Messages dropped on receipt: nobody wanted them.
    pub drop_count: u64,
    /// ACKs and REPLYs that did not come in time.
    pub response_timeout_count: u64,
    /// Payload bytes of the PUTs and REPLYs sent.
    pub send_length: u64,
    /// Bytes accepted of the PUTs and REPLYs received.
    pub recv_length: u64,
    /// Payload bytes of the messages dropped.
    pub drop_length: u64,
}

//! RPCs that the console hands out.

use lnet_nid::ProcessId;
use lnet_proto::lst::{LstService, MESSAGE_LEN};

/// A request for the caller to send.
///
/// The caller posts a buffer for the reply under [`ConsoleRpc::reply_id`], then the list of destinations
/// if there is one, and then sends the request (lst 2). It gives the outcome to
/// [`Console::answered`](super::Console::answered).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsoleRpc {
    /// The node that the request is sent to, and the only one whose reply counts.
    pub to: ProcessId,
    /// The service, which decides portal and match bits.
    pub service: LstService,
    /// The match bits of the reply. Names the RPC among all of this console.
    pub reply_id: u64,
    /// The payload of the PUT.
    pub request: [u8; MESSAGE_LEN],
    /// What the node fetches before it answers.
    pub destinations: Option<DestinationList>,
}

/// A list of destinations, to be posted as a passive buffer for one GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationList {
    /// The match bits of the GET, which the request carries.
    pub bulk_id: u64,
    /// The list: 12 bytes for each destination.
    pub bytes: Vec<u8>,
}

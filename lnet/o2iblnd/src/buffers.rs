//! The message buffers of a connection: one range of registered memory, receive buffers first.

use std::sync::Arc;

use lnet_api::Errno;
use lnet_proto::ib::MESSAGE_MAX;
use lnet_region::{IoVec, Region, RegionError, WriteVec};

use crate::fabric::{Device, FabricError, Piece, ReceiveWork, RegisteredMemory};
use crate::transmit::TransmitBuffers;

/// Marks the ids of receives; the other bits are the buffer's index. Ids of sends have 48 bits.
const RECEIVE: u64 = 1 << 63;

/// The message buffers of a connection that is being opened, before they are divided into receive
/// and transmit buffers.
pub(crate) struct ConnBuffers {
    pub(crate) memory: Arc<dyn RegisteredMemory>,
    pub(crate) receive: ReceiveBuffers,
    pub(crate) transmit: TransmitBuffers,
}

/// The receive buffers, by index.
pub(crate) struct ReceiveBuffers {
    pub(crate) buffers: Vec<WriteVec>,
    address: u64,
    key: u32,
}

impl ConnBuffers {
    /// Allocates and registers `receives` buffers to receive into and `sends` buffers to send from.
    pub(crate) fn new(
        device: &Arc<dyn Device>,
        receives: usize,
        sends: usize,
    ) -> Result<ConnBuffers, FabricError> {
        let refused = |error: RegionError| FabricError {
            what: format!("memory for {} messages", receives + sends),
            errno: Errno::from_raw(error.errno() as i32),
        };
        let region = Region::pages((receives + sends) * MESSAGE_MAX).map_err(refused)?;
        let memory = device.register(&region, false)?;
        let (address, key) = (region.address_of(0), memory.local_key());
        let vec = IoVec::whole(region);
        let lease = |index: usize| vec.write(index * MESSAGE_MAX..(index + 1) * MESSAGE_MAX);
        let leases = |places: std::ops::Range<usize>| places.map(lease).collect::<Result<Vec<_>, _>>();
        let receive = ReceiveBuffers { buffers: leases(0..receives).map_err(refused)?, address, key };
        let buffers = leases(receives..receives + sends).map_err(refused)?;
        let transmit = TransmitBuffers { buffers, address: address + (receives * MESSAGE_MAX) as u64, key };
        Ok(ConnBuffers { memory, receive, transmit })
    }
}

impl ReceiveBuffers {
    /// Returns the work request that receives into this buffer.
    pub(crate) fn work(&self, index: usize) -> ReceiveWork {
        let address = self.address + (index * MESSAGE_MAX) as u64;
        let piece = Piece { address, length: MESSAGE_MAX as u32, key: self.key };
        ReceiveWork { id: RECEIVE | index as u64, piece }
    }

    /// Returns the first bytes of a buffer.
    pub(crate) fn bytes(&self, index: usize, length: usize) -> Option<&[u8]> {
        self.buffers.get(index)?.as_slice()?.get(..length)
    }
}

/// Returns the buffer index of a receive's id; `None` for the id of a send.
pub(crate) fn receive_index(id: u64) -> Option<usize> {
    (id & RECEIVE != 0).then_some((id & !RECEIVE) as usize)
}

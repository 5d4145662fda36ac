//! The welcome: the reply to a hello.

use nlx_core::Limits;

use crate::layout::WelcomeLayout;
use crate::object::Object;
use crate::{Features, PacketError, VERSION};

const WELCOME: Object = Object("a welcome");

/// The helper's answer to a hello. The descriptors of the submission ring and of its doorbell come
/// with it, in this order.
///
/// Refused: reserved fields that are not 0 (EBADR), and another version than this side's
/// (EPROTONOSUPPORT). Limits beyond LNet's are cut to LNet's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version to use.
    pub version: u16,
    /// Features of both sides.
    pub features: Features,
    /// The helper's name for this client, which the operator sees.
    pub client: u64,
    /// The limits of the Core interface; [`Limits::buffers_max`] is this client's.
    pub limits: Limits,
    /// Largest number of transfer machines at a time.
    pub tms_max: u32,
    /// Largest number of operations in flight, over all transfer machines.
    pub operations_max: u32,
    /// Largest number of events that the operations of one transfer machine may need together.
    pub events_max: u32,
    /// Largest number of arenas at a time.
    pub arenas_max: u32,
    /// Largest size of all arenas together, in bytes.
    pub bytes_max: u64,
    /// The helper's clock when it writes this: the monotonic clock of the host, in nanoseconds.
    pub now_ns: u64,
    /// Largest size of one arena, in bytes.
    pub arena_bytes_max: u64,
}

impl Welcome {
    pub(crate) fn layout(&self) -> WelcomeLayout {
        // The sizes fit: `Limits` are those of LNet or less.
        WelcomeLayout {
            version: self.version.into(),
            reserved: [0.into(); 3],
            features: self.features.bits().into(),
            client: self.client.into(),
            buffer_bytes_max: (self.limits.buffer_bytes_max as u64).into(),
            segment_bytes_max: (self.limits.segment_bytes_max as u64).into(),
            segments_max: (self.limits.segments_max as u32).into(),
            descriptor_bytes_max: (self.limits.descriptor_bytes_max as u32).into(),
            messages_max: self.limits.messages_max.into(),
            buffers_max: (self.limits.buffers_max as u32).into(),
            tms_max: self.tms_max.into(),
            operations_max: self.operations_max.into(),
            events_max: self.events_max.into(),
            arenas_max: self.arenas_max.into(),
            bytes_max: self.bytes_max.into(),
            now_ns: self.now_ns.into(),
            arena_bytes_max: self.arena_bytes_max.into(),
        }
    }

    pub(crate) fn read(body: &[u8]) -> Result<Welcome, PacketError> {
        let layout: &WelcomeLayout = WELCOME.whole(body)?;
        let version = layout.version.get();
        if version != VERSION {
            return Err(PacketError::Version { min: version, max: version, own: VERSION });
        }
        layout.reserved.into_iter().try_for_each(|part| WELCOME.zero(part.get()))?;
        Ok(Welcome {
            version,
            features: Features::from_bits_truncate(layout.features.get()),
            client: layout.client.get(),
            limits: limits(layout),
            tms_max: layout.tms_max.get(),
            operations_max: layout.operations_max.get(),
            events_max: layout.events_max.get(),
            arenas_max: layout.arenas_max.get(),
            bytes_max: layout.bytes_max.get(),
            now_ns: layout.now_ns.get(),
            arena_bytes_max: layout.arena_bytes_max.get(),
        })
    }
}

fn limits(received: &WelcomeLayout) -> Limits {
    let least =
        |own: usize, received: u64| usize::try_from(received).map_or(own, |received| received.min(own));
    let mut limits = Limits::LNET;
    limits.buffer_bytes_max = least(limits.buffer_bytes_max, received.buffer_bytes_max.get());
    limits.segment_bytes_max = least(limits.segment_bytes_max, received.segment_bytes_max.get());
    limits.segments_max = least(limits.segments_max, received.segments_max.get().into());
    limits.descriptor_bytes_max =
        least(limits.descriptor_bytes_max, received.descriptor_bytes_max.get().into());
    limits.messages_max = limits.messages_max.min(received.messages_max.get());
    limits.buffers_max = least(limits.buffers_max, received.buffers_max.get().into());
    limits
}

//! Checks of received bytes, with their errors.

use nlx_core::{Address, Nid, Pid, StartAddress, TmId};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::PacketError;
use crate::layout::AddressLayout;

/// The name of what is being read, for errors.
#[derive(Clone, Copy)]
pub(crate) struct Object(pub(crate) &'static str);

impl Object {
    pub(crate) fn field(self, field: &'static str, value: impl Into<u64>, rule: &'static str) -> PacketError {
        PacketError::Field { object: self.0, field, value: value.into(), rule }
    }

    pub(crate) fn length(self, bytes: usize, expected: usize) -> PacketError {
        PacketError::Length { object: self.0, bytes, expected }
    }

    /// Returns all of the bytes as this layout.
    pub(crate) fn whole<T>(self, bytes: &[u8]) -> Result<&T, PacketError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        T::ref_from_bytes(bytes).map_err(|_| self.length(bytes.len(), size_of::<T>()))
    }

    /// Splits off the first bytes as this layout.
    pub(crate) fn prefix<T>(self, bytes: &[u8]) -> Result<(&T, &[u8]), PacketError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        T::ref_from_prefix(bytes).map_err(|_| self.length(bytes.len(), size_of::<T>()))
    }

    /// Checks that there are no bytes.
    pub(crate) fn empty(self, bytes: &[u8]) -> Result<(), PacketError> {
        if bytes.is_empty() { Ok(()) } else { Err(self.length(bytes.len(), 0)) }
    }

    pub(crate) fn flag(self, field: &'static str, value: u32) -> Result<bool, PacketError> {
        match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.field(field, value, "0 or 1")),
        }
    }

    /// Checks a reserved field, to which a later version may give a meaning.
    pub(crate) fn zero(self, value: impl Into<u64>) -> Result<(), PacketError> {
        match value.into() {
            0 => Ok(()),
            value => Err(self.field("a reserved field", value, "0")),
        }
    }

    /// Decodes the NID of an interface: no wildcard, and in its canonical encoding.
    pub(crate) fn nid(self, bytes: &[u8; Nid::WIRE_LEN]) -> Result<Nid, PacketError> {
        match Nid::from_wire(bytes) {
            Ok(nid) if !nid.is_any() && nid.to_wire() == *bytes => Ok(nid),
            // Its size code and network identify it best.
            _ => Err(self.field(
                "the NID",
                u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                "that of an interface, unused bytes 0",
            )),
        }
    }

    pub(crate) fn address(self, layout: &AddressLayout) -> Result<Address, PacketError> {
        let tmid = layout.tmid.get();
        Ok(Address {
            nid: self.nid(&layout.nid)?,
            pid: Pid(layout.pid.get()),
            portal: layout.portal.get(),
            tmid: TmId::new(tmid).map_err(|_| self.field("the id", tmid, "1 to 4095"))?,
        })
    }

    pub(crate) fn start_address(self, layout: &AddressLayout) -> Result<StartAddress, PacketError> {
        let tmid = match layout.tmid.get() {
            0 => None,
            value => {
                let refused = |_| self.field("the id", value, "1 to 4095, or 0 for any");
                Some(TmId::new(value).map_err(refused)?)
            }
        };
        Ok(StartAddress {
            nid: self.nid(&layout.nid)?,
            pid: Pid(layout.pid.get()),
            portal: layout.portal.get(),
            tmid,
        })
    }
}

impl AddressLayout {
    /// Returns these bytes as an address, if the length is right.
    pub(crate) fn ref_of(bytes: &[u8]) -> Option<&AddressLayout> {
        AddressLayout::ref_from_bytes(bytes).ok()
    }
}

impl From<&StartAddress> for AddressLayout {
    fn from(address: &StartAddress) -> AddressLayout {
        AddressLayout {
            nid: address.nid.to_wire(),
            pid: address.pid.0.into(),
            portal: address.portal.into(),
            tmid: address.tmid.map_or(0, TmId::get).into(),
        }
    }
}

impl From<&Address> for AddressLayout {
    fn from(address: &Address) -> AddressLayout {
        AddressLayout::from(&StartAddress::from(*address))
    }
}

//! The type of a connection: the traffic that its holder sends on it.

use std::fmt;

use crate::ProtoError;

/// The purpose of a connection, in the view of the node that holds it (lnet-wire 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum ConnType {
    /// No connection: only in a hello, which refuses the connection.
    None = -1,
    /// A connection without a type. Kernel nodes accept it but send nothing on it.
    Any = 0,
    /// Small messages in both directions.
    Control = 1,
    /// The peer sends bulk on it; the holder only sends acks and keepalives.
    BulkIn = 2,
    /// The holder sends bulk on it.
    BulkOut = 3,
}

impl ConnType {
    /// Returns the type of the same connection in the view of the node at its other end.
    #[must_use]
    pub const fn inverse(self) -> ConnType {
        match self {
            ConnType::BulkIn => ConnType::BulkOut,
            ConnType::BulkOut => ConnType::BulkIn,
            same => same,
        }
    }

    /// Returns the number on the wire.
    #[must_use]
    pub const fn get(self) -> i32 {
        self as i32
    }
}

impl TryFrom<i32> for ConnType {
    type Error = ProtoError;

    fn try_from(value: i32) -> Result<ConnType, ProtoError> {
        match value {
            -1 => Ok(ConnType::None),
            0 => Ok(ConnType::Any),
            1 => Ok(ConnType::Control),
            2 => Ok(ConnType::BulkIn),
            3 => Ok(ConnType::BulkOut),
            _ => Err(ProtoError::ConnType { value }),
        }
    }
}

impl fmt::Display for ConnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnType::None => "NONE",
            ConnType::Any => "ANY",
            ConnType::Control => "CONTROL",
            ConnType::BulkIn => "BULK_IN",
            ConnType::BulkOut => "BULK_OUT",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_five_numbers_are_types_and_inverting_twice_changes_nothing() {
        for value in i32::from(i16::MIN)..=i32::from(i16::MAX) {
            match ConnType::try_from(value) {
                Ok(conn_type) => {
                    assert_eq!(conn_type.get(), value);
                    assert_eq!(conn_type.inverse().inverse(), conn_type);
                }
                Err(error) => {
                    assert!(!(-1..=3).contains(&value));
                    assert_eq!(error, ProtoError::ConnType { value });
                }
            }
        }
        assert_eq!(ConnType::BulkIn.inverse(), ConnType::BulkOut);
        assert_eq!(ConnType::Control.inverse(), ConnType::Control);
    }
}

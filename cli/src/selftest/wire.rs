//! The codec of the commands: little-endian fields in sequence, written and read within bounds.
//!
//! [`Writer::measure`] is a writer without a buffer: it returns the length of a value. A value that
//! does not fit, or bytes that end early, are errors; an error never leaves bytes that could be
//! taken for a whole message.

use std::collections::HashSet;
use std::time::Duration;

/// Length of the longest text: an address has at most 90 bytes, an error message little more.
pub(super) const TEXT_MAX: usize = 1024;

/// Largest number of elements of a list: far above the nodes, rules or latencies in one message.
pub(super) const LIST_MAX: usize = 4096;

/// The reason why a value could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WireError {
    #[error("{needed} bytes do not fit where {left} are left")]
    Short { needed: usize, left: usize },
    #[error("{object} of {length} is longer than {most}")]
    Long { object: &'static str, length: usize, most: usize },
    #[error("{value} is not a valid {object}")]
    Unknown { object: &'static str, value: u64 },
    #[error("a text is not UTF-8")]
    Text,
    #[error("the message has {bytes} bytes after its end")]
    Trailing { bytes: usize },
}

/// Returns whether no text occurs twice.
pub(super) fn is_unique(texts: &[String]) -> bool {
    let mut seen = HashSet::with_capacity(texts.len());
    texts.iter().all(|text| seen.insert(text))
}

/// A type that commands contain.
pub(super) trait Wire: Sized {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError>;
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError>;
}

/// A writer of fields, or of their length only.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    bytes: Option<&'a mut [u8]>,
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Writer<'a> {
        Writer { bytes: Some(bytes), at: 0 }
    }

    /// Returns a writer that only counts.
    pub(super) fn measure() -> Writer<'static> {
        Writer { bytes: None, at: 0 }
    }

    /// Returns the number of bytes written so far.
    pub(super) fn length(&self) -> usize {
        self.at
    }

    pub(super) fn put(&mut self, field: &[u8]) -> Result<(), WireError> {
        if let Some(bytes) = &mut self.bytes {
            let left = bytes.len() - self.at;
            let short = WireError::Short { needed: field.len(), left };
            bytes[self.at..].get_mut(..field.len()).ok_or(short)?.copy_from_slice(field);
        }
        self.at += field.len();
        Ok(())
    }
}

/// The bytes of a message that have not been read yet.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(super) fn get(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let short = WireError::Short { needed: length, left: self.0.len() };
        let (field, rest) = self.0.split_at_checked(length).ok_or(short)?;
        self.0 = rest;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let mut array = [0; N];
        array.copy_from_slice(self.get(N)?);
        Ok(array)
    }

    /// Checks that no bytes follow the last field.
    pub(super) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Trailing { bytes: self.0.len() }) }
    }
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Wire for $integer {
            fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
                to.put(&self.to_le_bytes())
            }

            fn read(from: &mut Reader<'_>) -> Result<$integer, WireError> {
                Ok(<$integer>::from_le_bytes(from.array()?))
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 u128 i32);

impl Wire for bool {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        u8::from(*self).write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<bool, WireError> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(WireError::Unknown { object: "truth value", value: value.into() }),
        }
    }
}

/// A duration is encoded in nanoseconds: 64 bits hold 584 years.
impl Wire for Duration {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Duration, WireError> {
        u64::read(from).map(Duration::from_nanos)
    }
}

impl Wire for String {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        within("a text", self.len(), TEXT_MAX)?.write(to)?;
        to.put(self.as_bytes())
    }

    fn read(from: &mut Reader<'_>) -> Result<String, WireError> {
        let length = within("a text", u16::read(from)?.into(), TEXT_MAX)?;
        let bytes = from.get(length.into())?;
        std::str::from_utf8(bytes).map(str::to_string).map_err(|_| WireError::Text)
    }
}

/// A list; with texts it is the string list of the commands.
impl<T: Wire> Wire for Vec<T> {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        within("a list", self.len(), LIST_MAX)?.write(to)?;
        self.iter().try_for_each(|element| element.write(to))
    }

    fn read(from: &mut Reader<'_>) -> Result<Vec<T>, WireError> {
        let length = within("a list", u16::read(from)?.into(), LIST_MAX)?;
        // Grows with the elements, so that a length alone takes no memory.
        (0..length).map(|_| T::read(from)).collect()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), WireError> {
        self.0.write(to)?;
        self.1.write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<(A, B), WireError> {
        Ok((A::read(from)?, B::read(from)?))
    }
}

fn within(object: &'static str, length: usize, most: usize) -> Result<u16, WireError> {
    let long = WireError::Long { object, length, most };
    u16::try_from(length).ok().filter(|_| length <= most).ok_or(long)
}

/// Implements `Wire` for the fields of a struct, in this order.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::selftest::wire::Wire for $name {
            fn write(
                &self,
                to: &mut $crate::selftest::wire::Writer<'_>,
            ) -> Result<(), $crate::selftest::wire::WireError> {
                $($crate::selftest::wire::Wire::write(&self.$field, to)?;)*
                Ok(())
            }

            fn read(
                from: &mut $crate::selftest::wire::Reader<'_>,
            ) -> Result<$name, $crate::selftest::wire::WireError> {
                Ok($name { $($field: $crate::selftest::wire::Wire::read(from)?,)* })
            }
        }
    };
}
pub(super) use wire_struct;

/// Implements `Wire` for an enum without data: one byte, the position in this list.
macro_rules! wire_enum {
    ($name:ident as $object:literal { $($variant:ident),* $(,)? }) => {
        impl $name {
            /// In the order of their numbers.
            const ALL: &'static [$name] = &[$($name::$variant),*];
        }

        impl $crate::selftest::wire::Wire for $name {
            fn write(
                &self,
                to: &mut $crate::selftest::wire::Writer<'_>,
            ) -> Result<(), $crate::selftest::wire::WireError> {
                let number = $name::ALL.iter().position(|variant| variant == self).unwrap_or($name::ALL.len());
                (number as u8).write(to)
            }

            fn read(
                from: &mut $crate::selftest::wire::Reader<'_>,
            ) -> Result<$name, $crate::selftest::wire::WireError> {
                let number = u8::read(from)?;
                let unknown =
                    $crate::selftest::wire::WireError::Unknown { object: $object, value: u64::from(number) };
                $name::ALL.get(usize::from(number)).copied().ok_or(unknown)
            }
        }
    };
}
pub(super) use wire_enum;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;

    /// Writes a value at offset 42 of a buffer, as the rows require, reads it, and checks that
    /// nothing else changed.
    fn round_trip<T: Wire + PartialEq + Debug>(value: &T) {
        const AT: usize = 42;
        let mut measured = Writer::measure();
        value.write(&mut measured).unwrap();
        let length = measured.length();
        let mut bytes = vec![0xee; AT + length + 8];
        let mut writer = Writer::new(&mut bytes[AT..]);
        value.write(&mut writer).unwrap();
        assert_eq!(writer.length(), length);
        assert!(bytes[..AT].iter().chain(&bytes[AT + length..]).all(|byte| *byte == 0xee));
        let mut reader = Reader::new(&bytes[AT..AT + length]);
        assert_eq!(&T::read(&mut reader).unwrap(), value);
        reader.end().unwrap();
        // One byte less is too few, for writing and for reading.
        if length > 0 {
            assert!(matches!(
                T::read(&mut Reader::new(&bytes[AT..][..length - 1])),
                Err(WireError::Short { .. })
            ));
            let short = value.write(&mut Writer::new(&mut bytes[..length - 1]));
            assert!(matches!(short, Err(WireError::Short { .. })));
        }
    }

    /// Every integer type, the length without a buffer, the round trip, a buffer that is too short.
    // Covers: MT-135, MT-136
    #[test]
    fn integers_travel() {
        macro_rules! each {
            ($($integer:ty)*) => {$(
                for value in [0, 1, 42, <$integer>::MIN, <$integer>::MAX] {
                    round_trip(&value);
                }
            )*};
        }
        each!(u8 u16 u32 u64 u128 i32);
        round_trip(&-1_i32);
        [false, true].iter().for_each(round_trip);
        round_trip(&Duration::from_nanos(u64::MAX));
        assert_eq!(
            bool::read(&mut Reader::new(&[2])),
            Err(WireError::Unknown { object: "truth value", value: 2 })
        );
    }

    /// 64 bytes are too few for a longer structure, and the writer's position does not change.
    // Covers: MT-136
    #[test]
    fn a_field_that_does_not_fit_is_not_begun() {
        let mut bytes = [0; 64];
        let mut writer = Writer::new(&mut bytes);
        (0..8_u64).for_each(|field| field.write(&mut writer).unwrap());
        assert_eq!(1_u8.write(&mut writer), Err(WireError::Short { needed: 1, left: 0 }));
        assert_eq!(writer.length(), 64);
    }

    /// Texts, including an empty and a longest one.
    // Covers: MT-137
    #[test]
    fn texts_travel() {
        let texts = ["", "a", "127.0.0.1@tcp:12345:42:300", "ein längerer Text", &"x".repeat(TEXT_MAX)];
        texts.iter().for_each(|text| round_trip(&text.to_string()));
        let long = "x".repeat(TEXT_MAX + 1).write(&mut Writer::measure());
        assert_eq!(long, Err(WireError::Long { object: "a text", length: TEXT_MAX + 1, most: TEXT_MAX }));
        assert_eq!(String::read(&mut Reader::new(&[1, 0, 0xff])), Err(WireError::Text));
    }

    /// A pattern that repeats after ten texts.
    // Covers: MT-141
    #[test]
    fn what_occurs_twice_is_found() {
        let texts: Vec<_> = (0..64).map(|number| format!("node{}", number % 10)).collect();
        for count in 0..=64 {
            assert_eq!(is_unique(&texts[..count]), count <= 10, "{count}");
        }
    }

    /// Lists of 0 to 64 texts, and an empty text at the end of one.
    // Covers: MT-138, MT-139, MT-140
    #[test]
    fn lists_of_texts_travel() {
        for count in 0..=64 {
            round_trip(&(0..count).map(|number| format!("node{number}")).collect::<Vec<_>>());
        }
        round_trip(&vec!["one".to_string(), String::new()]);
        let long: Vec<u8> = [u16::MAX.to_le_bytes(), [0, 0]].concat();
        assert!(matches!(Vec::<u8>::read(&mut Reader::new(&long)), Err(WireError::Long { .. })));
    }

    proptest! {
        // Covers: MT-136
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut reader = Reader::new(&bytes);
            if let Ok(value) = Vec::<(String, u32)>::read(&mut reader) {
                let used = bytes.len() - reader.0.len();
                let mut again = vec![0; used];
                value.write(&mut Writer::new(&mut again)).unwrap();
                prop_assert_eq!(&again[..], &bytes[..used]);
            }
        }
    }
}

//! The hello: the first request of a client.

use crate::layout::HelloLayout;
use crate::object::Object;
use crate::{NAME_MAX, PacketError, VERSION};

bitflags::bitflags! {
    /// Capabilities beyond the first version of the protocol. Unknown bits are ignored; a feature
    /// is used if both sides have it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        // 1 was used by version 1.
        /// The helper can provide huge pages.
        const HUGE_PAGES = 2;
    }
}

/// "nlx:nlxd" in ASCII: a program that is not a client is refused at once.
const MAGIC: [u8; 8] = *b"nlx:nlxd";

const HELLO: Object = Object("a hello");

/// A client's introduction. Its bytes stay the same in all versions, so that every helper can
/// refuse every client.
///
/// Refused with EBADR: another magic, a reserved field or bytes behind the end of the name that are
/// not 0; with EPROTONOSUPPORT: a range of versions that does not include this side's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Features of the client.
    pub features: Features,
    /// Name for the operator; a byte that is not printable ASCII is shown as `?`. Padded with 0.
    pub name: [u8; NAME_MAX],
}

impl Hello {
    /// Creates a hello with this name, up to its first NUL and cut to [`NAME_MAX`] bytes.
    #[must_use]
    pub fn new(name: &str) -> Hello {
        let mut bytes = [0; NAME_MAX];
        for (byte, of_name) in bytes.iter_mut().zip(name.bytes().take_while(|&byte| byte != 0)) {
            *byte = of_name;
        }
        Hello { features: Features::all(), name: bytes }
    }

    /// Returns the name as text that is safe for a terminal.
    #[must_use]
    pub fn name(&self) -> String {
        self.name_letters().collect()
    }

    /// Returns the letters of the name, without allocating.
    pub fn name_letters(&self) -> impl Iterator<Item = char> + '_ {
        let named = self.name.iter().take_while(|&&byte| byte != 0);
        named.map(|&byte| if byte.is_ascii_graphic() || byte == b' ' { byte as char } else { '?' })
    }

    pub(crate) fn layout(&self) -> HelloLayout {
        HelloLayout {
            magic: MAGIC,
            version_min: VERSION.into(),
            version_max: VERSION.into(),
            reserved: 0.into(),
            features: self.features.bits().into(),
            name: self.name,
        }
    }

    pub(crate) fn read(body: &[u8]) -> Result<Hello, PacketError> {
        let layout: &HelloLayout = HELLO.whole(body)?;
        if layout.magic != MAGIC {
            return Err(HELLO.field("the magic", u64::from_le_bytes(layout.magic), "\"nlx:nlxd\""));
        }
        let (min, max) = (layout.version_min.get(), layout.version_max.get());
        // Checked before fields that another version may have changed.
        if !(min..=max).contains(&VERSION) {
            return Err(PacketError::Version { min, max, own: VERSION });
        }
        HELLO.zero(layout.reserved.get())?;
        let mut behind_end = layout.name.iter().skip_while(|&&byte| byte != 0);
        if let Some(&byte) = behind_end.find(|&&byte| byte != 0) {
            return Err(HELLO.field("a byte behind the end of the name", byte, "0"));
        }
        Ok(Hello { features: Features::from_bits_truncate(layout.features.get()), name: layout.name })
    }
}

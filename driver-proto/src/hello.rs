//! The first request: who the client is.

use crate::layout::HelloLayout;
use crate::object::Object;
use crate::{NAME_MAX, ProtoError, VERSION};

bitflags::bitflags! {
    /// What one side can beyond the first version. Unknown bits are ignored; what both have holds.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        // 1 was one of version 1.
        /// The helper has huge pages to give.
        const HUGE_PAGES = 2;
    }
}

/// "nlx:nlxd" in ASCII: what is not a client is told so at once.
const MAGIC: [u8; 8] = *b"nlx:nlxd";

const HELLO: Object = Object("a hello");

/// Who the client is. Its bytes stay the same in all versions, so that every helper can refuse every client.
///
/// Refused with EBADR: another magic, a reserved field or bytes behind the name's end that are not 0; with EPROTONOSUPPORT:
/// versions among which ours is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// What it can.
    pub features: Features,
    /// Its name, for an operator; what is not ASCII and printable is shown as `?`. Padded with 0.
    pub name: [u8; NAME_MAX],
}

impl Hello {
    /// A client with this name, cut to what there is room for. It ends at its first NUL, if it has one.
    #[must_use]
    pub fn new(name: &str) -> Hello {
        let mut bytes = [0; NAME_MAX];
        for (byte, of_name) in bytes.iter_mut().zip(name.bytes().take_while(|&byte| byte != 0)) {
            *byte = of_name;
        }
        Hello { features: Features::all(), name: bytes }
    }

    /// The name as text that a terminal can be given.
    #[must_use]
    pub fn name(&self) -> String {
        self.name_letters().collect()
    }

    /// The letters of the name, without allocating.
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

    pub(crate) fn read(body: &[u8]) -> Result<Hello, ProtoError> {
        let layout: &HelloLayout = HELLO.whole(body)?;
        if layout.magic != MAGIC {
            return Err(HELLO.field("the magic", u64::from_le_bytes(layout.magic), "\"nlx:nlxd\""));
        }
        let (min, max) = (layout.version_min.get(), layout.version_max.get());
        // Before what another version may have changed.
        if !(min..=max).contains(&VERSION) {
            return Err(ProtoError::Version { min, max, own: VERSION });
        }
        HELLO.zero(layout.reserved.get())?;
        let mut behind_end = layout.name.iter().skip_while(|&&byte| byte != 0);
        if let Some(&byte) = behind_end.find(|&&byte| byte != 0) {
            return Err(HELLO.field("a byte behind the end of the name", byte, "0"));
        }
        Ok(Hello { features: Features::from_bits_truncate(layout.features.get()), name: layout.name })
    }
}

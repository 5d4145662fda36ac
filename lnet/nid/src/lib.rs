//! LNet's names and numbers: NIDs, networks, process ids, match bits and portals, with their texts.
//!
//! Everything here is a small `Copy` value in its wire layout, and can be printed and parsed; only
//! lists of NIDs, which are never on the wire, own memory. The crate opens nothing, resolves no
//! host name, and has no list of local interfaces.
//!
//! ```
//! use lnet_nid::{Net, Nid, ProcessId};
//!
//! let nid: Nid = "10.0.0.1@tcp1".parse()?;
//! assert_eq!(nid.net().to_string(), "tcp1");
//! assert_eq!(nid.to_nid4(), Some(0x0002_0001_0a00_0001));
//! assert_eq!(Nid::from_wire(&nid.to_wire())?, nid);
//!
//! let process: ProcessId = "12345-fd00::1@tcp".parse()?;
//! assert_eq!(process.nid.net(), Net::TCP);
//! # Ok::<(), lnet_nid::NidError>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `nid` | [`Nid`]: the 20-byte network id of one interface, its wire and legacy forms |
//! | `net` | [`Net`] and [`NetType`]: `tcp1`, `o2ib`, `lo` |
//! | `process` | [`Pid`] and [`ProcessId`]: `12345-10.0.0.1@tcp` |
//! | `list`, `range`, `numbers` | [`NidList`] and [`NidRange`]: `192.168.[1-10].*@tcp`, for rules and groups |
//! | `hash` | the partition of a NID |
//! | `printable` | [`printable`]: foreign text without control characters |
//! | `bits` | [`MatchBits`] and [`Portal`] |
//! | `error` | [`NidError`] |

#![forbid(unsafe_code)]

mod bits;
mod error;
mod hash;
mod list;
mod net;
mod nid;
mod numbers;
mod printable;
mod process;
mod range;
mod text;

pub use bits::{MatchBits, Portal};
pub use error::NidError;
pub use list::NidList;
pub use net::{Net, NetType};
pub use nid::Nid;
pub use printable::{Printable, is_printable, printable};
pub use process::{Pid, ProcessId};
pub use range::NidRange;

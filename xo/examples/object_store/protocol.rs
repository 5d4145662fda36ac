//! The messages of clients and server: JSON, followed by the offer of a buffer if bytes are
//! transferred.

use std::fmt;
use std::str::FromStr;

use nlx::{Errno, Offer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Outcome;

/// The store's portal: not one of those that Lustre uses, and open to any client of a helper.
pub(crate) const PORTAL: u32 = 41;

/// The longest message in bytes: a page of the list, with names of the greatest length.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;

/// Maximum number of bytes of one transfer.
pub(crate) const PIECE: usize = 16 << 20;

/// The objects in a page of the list: this number of the longest names fits into a message.
pub(crate) const PAGE: usize = 128;

/// A request, or the answer with the same number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Numbered<T> {
    pub(crate) number: u64,
    pub(crate) body: T,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Begin an object of `length` bytes.
    Create {
        name: Name,
        length: u64,
    },
    /// Read the next bytes from the offer.
    Write {
        upload: u64,
        offset: u64,
    },
    /// Complete the object.
    Commit {
        upload: u64,
    },
    /// Return the length and the version.
    Stat {
        name: Name,
    },
    /// Write bytes of this version into the offer, up to its length.
    Read {
        name: Name,
        version: u64,
        offset: u64,
    },
    /// List the objects whose names come after this one.
    List {
        after: String,
    },
    Delete {
        name: Name,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Upload { upload: u64 },
    Stat { length: u64, version: u64 },
    Objects { objects: Vec<Object>, more: bool },
    Failed { errno: i32, message: String },
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Object {
    pub(crate) name: Name,
    pub(crate) length: u64,
}

/// The name of an object and of its file. It cannot lead to another directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Name(String);

impl Name {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Name, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 200 || name.starts_with('.') || !name.bytes().all(allowed) {
            return Err(format!("{name:?} names no object: 1 to 200 of A-Z a-z 0-9 . _ -, no dot first"));
        }
        Ok(Name(name))
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(name: &str) -> Result<Name, String> {
        name.to_owned().try_into()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Reply {
    pub(crate) fn failed(errno: Errno, message: impl ToString) -> Reply {
        Reply::Failed { errno: errno as i32, message: message.to_string() }
    }
}

/// Encodes a message: the length of the JSON in 4 bytes, the JSON, the offer.
pub(crate) fn encode<T: Serialize>(message: &Numbered<T>, offer: Option<&Offer>) -> Outcome<Vec<u8>> {
    let json = serde_json::to_vec(message)?;
    let mut bytes = u32::try_from(json.len())?.to_le_bytes().to_vec();
    bytes.extend(json);
    bytes.extend(offer.map_or(&[][..], Offer::as_bytes));
    if bytes.len() > MESSAGE_MAX {
        return Err(format!("a message of {} bytes: at most {MESSAGE_MAX}", bytes.len()).into());
    }
    Ok(bytes)
}

/// Decodes a message; accepts any bytes.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Outcome<(Numbered<T>, Option<Offer>)> {
    let (length, rest) = bytes.split_first_chunk().ok_or("a message without a length")?;
    let length = u32::from_le_bytes(*length) as usize;
    let (json, offer) = rest.split_at_checked(length).ok_or("a message shorter than it says")?;
    let offer = if offer.is_empty() { None } else { Some(Offer::from_bytes(offer)?) };
    Ok((serde_json::from_slice(json)?, offer))
}

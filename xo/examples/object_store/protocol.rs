//! The requests of clients and the answers of the server, in JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The store's portal: not one of those that Lustre uses, and open to any client of a helper.
pub(crate) const PORTAL: u32 = 41;

/// The longest message in bytes: a page of the list, with names of the greatest length.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;

/// Maximum number of bytes of one transfer: one bulk operation.
pub(crate) const PIECE: usize = 1 << 20;

/// The objects in a page of the list: this number of the longest names fits into a message.
pub(crate) const PAGE: usize = 128;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Begin an object of `length` bytes.
    Create {
        name: Name,
        length: u64,
    },
    /// Read the next bytes out of the memory that the call offers.
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
    /// Write bytes of this version into the memory that the call offers, as many as fit.
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

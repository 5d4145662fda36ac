//! The texts and bytes of NIDs, networks and process ids.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use lnet_nid::{Net, Nid, NidError, NidList, Pid, ProcessId};

use super::{Outcome, same};

/// Number of NIDs of a list that are checked one by one.
const MEMBERS: usize = 200;

/// Reads a text as each kind of value, and checks that a value is read back from its printed form.
pub(super) fn nid_text(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    let nid = reread::<Nid>(&text);
    if let Ok(nid) = &nid {
        same(Nid::from_wire(&nid.to_wire()), Ok(*nid), "wire form of what a text gave");
    }
    let list = reread::<NidList>(&text);
    if let Ok(list) = &list {
        for nid in list.members(MEMBERS).iter().flatten() {
            same(list.contains(*nid), true, "a member");
        }
        if let Ok(nid) = &nid {
            same(list.contains(*nid), !nid.is_any(), "a NID as a list");
        }
    }
    let kind = |error: NidError| std::mem::discriminant(&error);
    Outcome::of((
        list.map(|list| list.ranges().len().min(4)).map_err(kind),
        nid.map(|nid| nid.net().net_type()).map_err(kind),
        reread::<Net>(&text).map(|net| net.net_type()).map_err(kind),
        reread::<ProcessId>(&text).map(|process| process.pid.is_userspace()).map_err(kind),
        reread::<Pid>(&text).map(drop).map_err(kind),
    ))
}

/// Reads bytes as NIDs, and checks that every value is canonical.
pub(super) fn nid_wire(bytes: &[u8]) -> Outcome {
    let (Some(bytes), Some(nid4)) = (bytes.first_chunk(), bytes.first_chunk()) else {
        return Outcome::of("short");
    };
    let nid4 = u64::from_be_bytes(*nid4);
    if let Ok(nid) = Nid::try_from_nid4(nid4) {
        same(nid.to_nid4(), Some(nid4), "64-bit form");
        same(reread(&nid.to_string()), Ok(nid), "text of a 64-bit NID");
    }
    match Nid::from_wire(bytes) {
        Ok(nid) => {
            same(Nid::from_wire(&nid.to_wire()), Ok(nid), "wire form");
            same(reread(&nid.to_string()), Ok(nid), "text of a 20-byte NID");
            Outcome::of((nid.net().net_type(), nid.is_nid4()))
        }
        Err(error) => Outcome::of(std::mem::discriminant(&error)),
    }
}

fn reread<T>(text: &str) -> Result<T, NidError>
where
    T: FromStr<Err = NidError> + Display + PartialEq + Debug,
{
    let value: T = text.parse()?;
    same(value.to_string().parse().as_ref(), Ok(&value), "what is printed");
    Ok(value)
}

pub(super) fn text_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "10.0.0.1@tcp",
        "10.0.0.1@tcp1",
        "192.168.5.4@o2ib2",
        "0@lo",
        "fd00::1@tcp",
        "17@gni",
        "0x11@kfi3",
        "*",
        "<?>",
        "12345-10.0.0.1@tcp",
        "U40000-10.0.0.1@tcp",
        "LNET_PID_ANY-fd77::3@tcp",
        "a000001@<17:2>",
        "tcp65535",
        "bxi3f",
        "1.2.3.4",
        "::ffff:1.2.3.4@tcp",
        "00000000000000000000000000000001@<13:1>",
        "*@tcp 192.168.[1-10].*@tcp",
        "10.0.0.[1,3-5,8-20/4] 10.1.0.0/30@o2ib",
        "fd00::/120@tcp2 [1-100/7]@gni",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub(super) fn wire_seeds() -> Vec<Vec<u8>> {
    let nids = text_seeds().into_iter().filter_map(|text| String::from_utf8(text).ok()?.parse::<Nid>().ok());
    nids.map(|nid| nid.to_wire().to_vec()).collect()
}

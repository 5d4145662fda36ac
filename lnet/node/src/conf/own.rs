//! nlx's own form, in TOML: `[[net]]` for each network, and a table of tunables for each module.
//! The table `[helper]` is kept for the helper process.

use super::Reading;
use super::doc::{LineError, LocatedValue, MapEntry, Value};
use super::lnetctl::{cpts, interface, net_named, ni_tunable};
use super::section::{self, Section};
use crate::NetSpec;

pub(super) fn apply(reading: &mut Reading<'_>, whole: &LocatedValue) -> Result<(), LineError> {
    for entry in whole.map().unwrap_or_default() {
        match (entry.key.as_str(), &entry.item.value) {
            ("net", Value::List(nets)) => nets.iter().try_for_each(|net| apply_net(reading, entry, net))?,
            ("net", _) => return Err(entry.fault("each network is a table of its own, [[net]]")),
            (section::HELPER, _) => {
                reading.config.helper = Some(Section::new(reading.file, entry)?);
            }
            _ => reading.module(entry)?,
        }
    }
    Ok(())
}

fn apply_net(reading: &mut Reading<'_>, net: &MapEntry, item: &LocatedValue) -> Result<(), LineError> {
    let entries = item.map().ok_or_else(|| net.fault("each network is a table of its own, [[net]]"))?;
    let name = entries.iter().find(|entry| entry.key == "name");
    let name = name.ok_or_else(|| LineError::new(item.line, "net", "its name is missing: name = \"tcp\""))?;
    let mut spec = NetSpec::plain(net_named(name)?);
    for entry in entries {
        match entry.key.as_str() {
            "name" => {}
            "interfaces" => {
                for (line, word) in entry.words()? {
                    spec.interfaces.push(interface(&spec, line, &entry.key, word)?);
                }
            }
            "cpts" => spec.cpts = cpts(entry)?,
            _ => ni_tunable(reading, &mut spec, entry)?,
        }
    }
    reading.config.push_net(spec).map_err(|error| LineError::new(name.line, &net.key, error.to_string()))
}

//! The form of `lnet.conf`: the output of `lnetctl export` and the input of `lnetctl import`
//! (lnet-semantics 18).

use std::net::IpAddr;

use lnet_nid::{Net, NetType, Nid};

use super::Reading;
use super::doc::{LineError, LocatedValue, MapEntry, Value};
use super::tunables::{LNET, O2IBLND, SOCKLND, Tunable};
use crate::cpts::{CptListError, CptSet};
use crate::networks::{NetInterface, NetSpec, NiTunables};

/// Sections for features that nlx does not have, with the reason why they have no effect.
const IDLE_SECTIONS: [(&str, &str); 6] = [
    ("ip2nets", "name the networks under 'net', or patterns with the option 'ip2nets'"),
    ("route", "nlx uses no routers"),
    ("routing", "nlx does not route"),
    ("buffers", "nlx does not route"),
    ("peer", "nlx learns of peers when it talks with them"),
    ("udsp", "nlx has no selection policies"),
];

/// Keys that `lnetctl` reports for an interface in addition to its configuration.
const REPORTED: [&str; 8] = [
    "status",
    "statistics",
    "sent_stats",
    "received_stats",
    "dropped_stats",
    "health stats",
    "udsp info",
    "dev cpt",
];

/// The keys of `global`, with LNet's tunables.
pub(super) const GLOBAL: [(&str, &str); 13] = [
    ("numa_range", "lnet_numa_range"),
    ("max_interfaces", "lnet_interfaces_max"),
    ("discovery", "lnet_peer_discovery_disabled"),
    ("drop_asym_route", "lnet_drop_asym_route"),
    ("retry_count", "lnet_retry_count"),
    ("transaction_timeout", "lnet_transaction_timeout"),
    ("health_sensitivity", "lnet_health_sensitivity"),
    ("recovery_interval", "lnet_recovery_interval"),
    ("router_sensitivity", "router_sensitivity_percentage"),
    ("lnd_timeout", "lnet_lnd_timeout"),
    ("response_tracking", "lnet_response_tracking"),
    ("recovery_limit", "lnet_recovery_limit"),
    ("max_recovery_ping_interval", "lnet_max_recovery_ping_interval"),
];

/// Values of `lnd_timeout` that LNet computes itself: a transaction's timeout minus one second,
/// divided by its attempts, which are three in 150 s (lnet-measured) or one in 50 s, and three in
/// 50 s.
const LND_TIMEOUTS: [&str; 2] = ["49", "16"];

pub(super) fn apply(reading: &mut Reading<'_>, whole: &LocatedValue) -> Result<(), LineError> {
    let entries = whole
        .map()
        .ok_or_else(|| LineError::new(whole.line, "YAML", "expected 'net:' or another section"))?;
    for entry in entries {
        let idle = IDLE_SECTIONS.iter().find(|(key, _)| *key == entry.key);
        match (entry.key.as_str(), idle) {
            ("net", _) => entry.items().iter().try_for_each(|net| apply_net(reading, entry, net))?,
            ("global", _) => entry.map()?.iter().try_for_each(|entry| apply_global(reading, entry))?,
            ("options", _) => entry.map()?.iter().try_for_each(|module| reading.module(module))?,
            (_, Some(_)) if entry.item.value == Value::Nothing => {}
            (key, Some((_, why))) => reading.warn(entry.line, key, why),
            _ => {
                let idle: Vec<&str> = IDLE_SECTIONS.iter().map(|(key, _)| *key).collect();
                let reason = format!("no such section; there are: net, global, options, {}", idle.join(", "));
                return Err(entry.fault(reason));
            }
        }
    }
    Ok(())
}

fn apply_global(reading: &mut Reading<'_>, entry: &MapEntry) -> Result<(), LineError> {
    let Some((key, tunable)) = GLOBAL.iter().find(|(key, _)| *key == entry.key) else {
        let known: Vec<&str> = GLOBAL.iter().map(|(key, _)| *key).collect();
        return Err(entry.fault(format!("no such key; global has: {}", known.join(", "))));
    };
    let value = entry.text()?;
    let value = match *key {
        // The only key whose meaning is the opposite of its tunable's.
        "discovery" if value == "1" => "0",
        "discovery" => "1",
        "lnd_timeout" if LND_TIMEOUTS.contains(&value) => return Ok(()),
        "lnd_timeout" => {
            reading.warn(entry.line, key, "it follows from other settings; nlx takes `sock_timeout` alone");
            return Ok(());
        }
        _ => value,
    };
    let tunable = Tunable::find(LNET, tunable).ok_or_else(|| entry.fault("no such tunable"))?;
    if !tunable.set(reading.config, value).map_err(|refusal| LineError::refused(entry.line, key, refusal))? {
        reading.warn(entry.line, key, tunable.meaning());
    }
    Ok(())
}

fn apply_net(reading: &mut Reading<'_>, section: &MapEntry, item: &LocatedValue) -> Result<(), LineError> {
    let missing = |reason| LineError::new(item.line, &section.key, reason);
    let entries = item.map().ok_or_else(|| missing("each network begins with '- net type: tcp'"))?;
    let name = entries.iter().find(|entry| entry.key == "net type");
    let name = name.ok_or_else(|| missing("each network begins with '- net type: tcp'"))?;
    let nis = entries.iter().find(|entry| entry.key == "local NI(s)");
    if let Some(other) = entries.iter().find(|entry| !["net type", "local NI(s)"].contains(&&*entry.key)) {
        return Err(other.fault("no such key; a network has: net type, local NI(s)"));
    }
    if name.text()? == "lo" {
        return Ok(());
    }
    let net = net_named(name)?;
    let nis = nis.filter(|nis| nis.item.value != Value::Nothing);
    let specs = match nis {
        Some(nis) => {
            nis.items().iter().map(|item| read_ni(reading, net, nis, item)).collect::<Result<Vec<_>, _>>()?
        }
        None => vec![NetSpec::plain(net)],
    };
    specs.into_iter().try_for_each(|spec| {
        reading.config.push_net(spec).map_err(|error| LineError::new(name.line, &name.key, error.to_string()))
    })
}

fn read_ni(
    reading: &mut Reading<'_>,
    net: Net,
    nis: &MapEntry,
    item: &LocatedValue,
) -> Result<NetSpec, LineError> {
    let entries = item.map().ok_or_else(|| {
        LineError::new(
            item.line,
            &nis.key,
            "an interface begins with '- interfaces:' or '- nid: 10.0.0.7@tcp'",
        )
    })?;
    let mut spec = NetSpec::plain(net);
    let mut nid = None;
    for entry in entries {
        match entry.key.as_str() {
            "nid" => nid = Some(address(net, entry)?),
            "interfaces" => {
                for (line, word) in entry.words()? {
                    spec.interfaces.push(interface(&spec, line, &entry.key, word)?);
                }
            }
            "CPT" => spec.cpts = cpts(entry)?,
            "tunables" | "lnd tunables" => {
                entry.map()?.iter().try_for_each(|entry| ni_tunable(reading, &mut spec, entry))?;
            }
            key if REPORTED.contains(&key) => {}
            _ => {
                let known = "nid, interfaces, tunables, lnd tunables, CPT";
                return Err(
                    entry.fault(format!("no such key; an interface has: {known}, {}", REPORTED.join(", ")))
                );
            }
        }
    }
    let Some(nid) = nid else { return Ok(spec) };
    match spec.interfaces.as_mut_slice() {
        [] => {
            spec.interfaces.push(NetInterface {
                name: nid.to_string(),
                cpts: CptSet::default(),
                address: None,
            });
        }
        [interface] if interface.name.parse().is_ok_and(|address: IpAddr| address != nid) => {
            let reason = format!("it has not the address of its interface, {}", interface.name);
            return Err(LineError::new(item.line, "nid", reason));
        }
        [interface] => interface.address = Some(nid),
        _ => return Err(LineError::new(item.line, "nid", "one NID cannot have several interfaces")),
    }
    Ok(spec)
}

/// Parses a NID and returns its address; the NID must belong to the network.
fn address(net: Net, entry: &MapEntry) -> Result<IpAddr, LineError> {
    let nid: Nid =
        entry.text()?.parse().map_err(|error: lnet_nid::NidError| entry.fault(error.to_string()))?;
    if nid.net() != net {
        return Err(entry.fault(format!("{nid} is not of the network {net} of this entry")));
    }
    nid.ip().ok_or_else(|| entry.fault(format!("{nid} has no IP address")))
}

/// Returns the network that a key names.
pub(super) fn net_named(entry: &MapEntry) -> Result<Net, LineError> {
    let text = entry.text()?;
    let net: Net = text.parse().map_err(|error: lnet_nid::NidError| entry.fault(error.to_string()))?;
    if net.is_any() {
        return Err(entry.fault("one network must be named, not all of them"));
    }
    Ok(net)
}

/// Parses an interface as in `networks`: `eth0`, `10.0.0.7`, `eth0[1]`.
pub(super) fn interface(
    spec: &NetSpec,
    line: usize,
    key: &str,
    word: &str,
) -> Result<NetInterface, LineError> {
    let wrong = |reason: String| LineError::new(line, key, reason);
    let read: NetSpec = format!("{}({word})", spec.net).parse().map_err(|error: crate::NodeError| {
        wrong(format!("'{word}': {}", error.reason().unwrap_or_default()))
    })?;
    match <[NetInterface; 1]>::try_from(read.interfaces) {
        Ok([interface]) if read.cpts.is_empty() => Ok(interface),
        _ => Err(wrong(format!("'{word}': expected the name or address of one interface"))),
    }
}

/// Parses CPU partitions: `"[0,1]"`, `0-1`, or a list of numbers.
pub(super) fn cpts(entry: &MapEntry) -> Result<CptSet, LineError> {
    let words: Vec<&str> = entry.words()?.into_iter().map(|(_, word)| word).collect();
    let text = words.join(",");
    let list = text.strip_prefix('[').and_then(|list| list.strip_suffix(']')).unwrap_or(&text);
    if list.trim().is_empty() {
        return Ok(CptSet::default());
    }
    CptSet::read(list).map_err(|CptListError { reason, .. }| entry.fault(format!("'{list}': {reason}")))
}

/// Sets a tunable of one interface, by its name there.
pub(super) fn ni_tunable(
    reading: &mut Reading<'_>,
    spec: &mut NetSpec,
    entry: &MapEntry,
) -> Result<(), LineError> {
    let net_type = spec.net.net_type();
    let module = if net_type == NetType::O2IB { O2IBLND } else { SOCKLND };
    let text = entry.text()?;
    let named = NiTunables::names(net_type).find(|(name, _)| *name == entry.key);
    let tunable = named.and_then(|(_, name)| Tunable::find(module, name));
    let Some(tunable) = tunable else {
        return Err(entry.fault(no_tunable(net_type, &entry.key)));
    };
    if tunable.acts() {
        let number = tunable.number(text).map_err(|reason| entry.fault(reason))?;
        spec.tunables.set(&entry.key, number);
    } else if !tunable.is_usual(text) {
        reading.warn(entry.line, &entry.key, tunable.meaning());
    }
    Ok(())
}

/// Returns the error text for a tunable that interfaces of this type do not have.
fn no_tunable(net_type: NetType, key: &str) -> String {
    let others = if net_type == NetType::O2IB { NetType::TCP } else { NetType::O2IB };
    let of_others = Tunable::find(if others == NetType::O2IB { O2IBLND } else { SOCKLND }, key).is_some()
        && Tunable::find(if others == NetType::O2IB { SOCKLND } else { O2IBLND }, key).is_none();
    if of_others || NiTunables::lnd(others).iter().any(|(name, _)| *name == key) {
        return format!("it is a tunable of {others} networks, not of {net_type}");
    }
    let known: Vec<&str> = NiTunables::names(net_type).map(|(name, _)| *name).collect();
    format!("no such tunable of an interface; there are: {}", known.join(", "))
}

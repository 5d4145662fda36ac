//! Prints a configuration in the form of `lnetctl export`.

use std::fmt::Write;
use std::net::IpAddr;

use super::tunables::{LNET, NLX, O2IBLND, SOCKLND, Tunable};
use crate::NodeConfig;
use crate::networks::{NetInterface, NetSpec, NiTunables};

/// Tunables that have a place outside of `options`.
const ELSEWHERE: [&str; 3] = ["networks", "ip2nets", "lnet_transaction_timeout"];

pub(super) fn yaml(config: &NodeConfig) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = nets(&mut out, config).and_then(|()| tunables(&mut out, config));
    out
}

fn nets(out: &mut String, config: &NodeConfig) -> std::fmt::Result {
    let mut names: Vec<_> = Vec::new();
    for spec in &config.nets {
        if !names.contains(&spec.net) {
            names.push(spec.net);
        }
    }
    if !names.is_empty() {
        writeln!(out, "net:")?;
    }
    for net in names {
        writeln!(out, "    - net type: {net}")?;
        writeln!(out, "      local NI(s):")?;
        for spec in config.nets.iter().filter(|spec| spec.net == net) {
            if spec.interfaces.is_empty() {
                ni(out, config, spec, None)?;
            }
            spec.interfaces.iter().try_for_each(|interface| ni(out, config, spec, Some(interface)))?;
        }
    }
    Ok(())
}

fn ni(
    out: &mut String,
    config: &NodeConfig,
    spec: &NetSpec,
    interface: Option<&NetInterface>,
) -> std::fmt::Result {
    let mut start = "        - ";
    let mut begin = || std::mem::replace(&mut start, "          ");
    let named = interface.map(|interface| &interface.name);
    let by_address = named.and_then(|name| name.parse::<IpAddr>().ok());
    if let Some(address) = by_address.or(interface.and_then(|interface| interface.address)) {
        writeln!(out, "{}nid: {}", begin(), word(&format!("{address}@{}", spec.net)))?;
    }
    if let Some(name) = named.filter(|_| by_address.is_none()) {
        writeln!(out, "{}interfaces:", begin())?;
        writeln!(out, "              0: {}", word(name))?;
    }
    let net_type = spec.net.net_type();
    let effective = spec.tunables.or(net_type, config);
    for (title, names) in [("tunables", &NiTunables::LNET[..]), ("lnd tunables", NiTunables::lnd(net_type))] {
        writeln!(out, "{}{title}:", begin())?;
        for (name, _) in names {
            if let Some(value) = effective.value(name) {
                writeln!(out, "              {name}: {value}")?;
            }
        }
    }
    let cpts = interface.map_or(&spec.cpts, |interface| spec.cpts_of(interface));
    if !cpts.is_empty() {
        writeln!(out, "{}CPT: \"{cpts}\"", begin())?;
    }
    Ok(())
}

fn tunables(out: &mut String, config: &NodeConfig) -> std::fmt::Result {
    writeln!(out, "global:")?;
    for (key, name) in super::lnetctl::GLOBAL {
        if let Some(tunable) = Tunable::find(LNET, name).filter(|tunable| tunable.acts()) {
            writeln!(out, "    {key}: {}", tunable.value(config))?;
        }
    }
    writeln!(out, "options:")?;
    for module in [LNET, SOCKLND, O2IBLND, NLX] {
        writeln!(out, "    {module}:")?;
        let of_module = Tunable::all().filter(|tunable| tunable.module() == module && tunable.acts());
        for tunable in of_module.filter(|tunable| !ELSEWHERE.contains(&tunable.name())) {
            writeln!(out, "        {}: {}", tunable.name(), word(&tunable.value(config)))?;
        }
    }
    Ok(())
}

/// Returns a word, in quotes if YAML could parse it differently.
fn word(text: &str) -> String {
    let plain =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '@' | '-' | ':');
    let needs_quotes = text.ends_with(':') || ["null", "-", "--", "---"].contains(&text);
    let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '-');
    if begins && !needs_quotes && text.chars().all(plain) {
        return text.to_string();
    }
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() || !letter.is_ascii() => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

//! `nlx net devices`: shows what this host has for networks over RDMA, what it lacks, and what to
//! do.

use std::fmt;

use comfy_table::Table;
use lnet_node::{RdmaPortReport, RdmaProblem, RdmaReport};
use serde_json::{Value, json};

use crate::args::NetDevicesArgs;
use crate::failure::Failure;
use crate::tables::table;
use crate::units::in_bytes;
use crate::{output, ports};

/// The port of o2ib networks by default.
const SERVICE: u16 = 987;

pub(crate) fn run(args: &NetDevicesArgs) -> Result<(), Failure> {
    let mut report = RdmaReport::of_host().map_err(|error| Failure::of_node(&error, SERVICE))?;
    if !report.ports.is_empty() && !ports::may_listen(SERVICE) {
        report.problems.push(of_port());
    }
    let shown = Shown { report, gids: args.gids };
    if args.json {
        output::json(&shown.to_json())?
    } else {
        output::line(&shown)?
    }
    // The output has the reasons.
    if shown.report.is_usable() { Ok(()) } else { Err(Failure::quiet()) }
}

fn of_port() -> RdmaProblem {
    RdmaProblem {
        about: format!("port {SERVICE}"),
        what: "this process may not listen on ports below 1024".to_string(),
        advice:
            "run as root, give the program CAP_NET_BIND_SERVICE, or set a 'service' above 1023 on all nodes"
                .to_string(),
        fatal: false,
    }
}

struct Shown {
    report: RdmaReport,
    gids: bool,
}

impl Shown {
    fn to_json(&self) -> Value {
        let problem = |problem: &RdmaProblem| {
            let RdmaProblem { about, what, advice, fatal } = problem;
            json!({ "about": about, "what": what, "try": advice, "fatal": fatal })
        };
        json!({
            "usable": self.report.is_usable(),
            "ports": self.report.ports.iter().map(port).collect::<Vec<_>>(),
            "problems": self.report.problems.iter().map(problem).collect::<Vec<_>>(),
            "memlock_bytes": self.report.memlock_bytes,
        })
    }

    fn ports(&self) -> Table {
        let mut table = table(["port", "link", "state", "rate", "interface", "NID", "why"]);
        for report in &self.report.ports {
            let port = &report.port;
            let interfaces = report.interfaces.iter().map(|(name, addresses)| {
                let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
                format!(
                    "{name} {}",
                    if addresses.is_empty() { "without IPv4".into() } else { addresses.join(", ") }
                )
            });
            let interfaces = interfaces.collect::<Vec<_>>();
            let nid = report.nid.map_or_else(|| "–".to_string(), |nid| nid.to_string());
            let first = if report.first { "; plain 'o2ib' takes it" } else { "" };
            table.add_row([
                name(report),
                port.link.to_string(),
                port.state.clone(),
                port.rate.clone(),
                if interfaces.is_empty() { "–".to_string() } else { interfaces.join("\n") },
                nid,
                format!("{}{first}", report.why),
            ]);
        }
        table
    }

    fn gids(&self) -> Table {
        let mut table = table(["port", "GID", "address", "kind", "interface", "used"]);
        for report in &self.report.ports {
            for gid in &report.port.gids {
                let used = if report.gid == Some(gid.index) { "yes" } else { "" };
                let netdev = gid.netdev.clone().unwrap_or_else(|| "–".to_string());
                let index = gid.index.to_string();
                table.add_row([
                    name(report),
                    index,
                    gid.gid.to_string(),
                    gid.kind.clone(),
                    netdev,
                    used.into(),
                ]);
            }
        }
        table
    }
}

/// Returns the name as `rdma link` writes it.
fn name(report: &RdmaPortReport) -> String {
    format!("{}/{}", report.device, report.port.number)
}

fn port(report: &RdmaPortReport) -> Value {
    let interfaces = report.interfaces.iter().map(|(name, addresses)| {
        json!({ "name": name, "addresses": addresses.iter().map(ToString::to_string).collect::<Vec<_>>() })
    });
    let gids = report.port.gids.iter().map(|gid| {
        json!({ "index": gid.index, "gid": gid.gid.to_string(), "kind": gid.kind, "interface": gid.netdev })
    });
    json!({
        "device": report.device,
        "port": report.port.number,
        "link": report.port.link.to_string(),
        "state": report.port.state,
        "rate": report.port.rate,
        "interfaces": interfaces.collect::<Vec<_>>(),
        "gids": gids.collect::<Vec<_>>(),
        "nid": report.nid.map(|nid| nid.to_string()),
        "gid": report.gid,
        "first": report.first,
        "why": report.why,
    })
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RdmaReport { ports, problems, memlock_bytes } = &self.report;
        if !ports.is_empty() {
            writeln!(f, "{}", self.ports())?;
            if self.gids {
                writeln!(f, "{}", self.gids())?;
            }
            match memlock_bytes {
                Some(bytes) => writeln!(f, "lockable memory: {} ({bytes} bytes)", in_bytes(*bytes))?,
                None => writeln!(f, "lockable memory: without limit")?,
            }
        }
        for RdmaProblem { about, what, advice, fatal } in problems {
            let mark = if *fatal { "✗" } else { "!" };
            writeln!(f, "{mark} {about}: {what}\n     try: {advice}")?;
        }
        match self.report.is_usable() {
            true => write!(f, "networks over RDMA can be had: 'nlx net show --net o2ib --why'"),
            false => write!(f, "no network over RDMA can be had"),
        }
    }
}

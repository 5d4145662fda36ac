//! Reads the machine from the kernel's files below `/sys`, without trusting their content.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::errno::Errno;
use nix::libc;

use super::{Cpu, Topology};
use crate::{CptError, CpuSet, NodeSet};

/// The maximum length of a file, in bytes: a list of every second one of 8192 CPUs has 20 KiB.
const MAX_FILE_BYTES: u64 = 64 * 1024;

pub(super) fn read(root: &Path, allowed: &CpuSet) -> Result<Topology, CptError> {
    let system = root.join("devices/system");
    let online = value::<CpuSet>(&system.join("cpu/online"))?.unwrap_or_else(|| allowed.clone());
    let usable = online.intersection(allowed);
    let nodes = value::<NodeSet>(&system.join("node/online"))?.filter(|nodes| !nodes.is_empty());
    let numa = nodes.is_some();
    let nodes = match nodes {
        Some(nodes) => nodes,
        None => NodeSet::of([0])?,
    };
    let (node_of, distances) = if numa { read_nodes(&system, &nodes)? } else { Default::default() };
    // The kernel assigns a CPU without a node to the first node.
    let first_node = nodes.first().unwrap_or(0);
    let cpus = usable
        .iter()
        .map(|number| {
            let topology = system.join(format!("cpu/cpu{number}/topology"));
            Ok(Cpu {
                number,
                node: node_of.get(&number).copied().unwrap_or(first_node),
                socket: value(&topology.join("physical_package_id"))?.unwrap_or(0),
                core: core(&topology, number)?,
            })
        })
        .collect::<Result<_, CptError>>()?;
    Topology::of(cpus, nodes, distances, numa)
}

type Nodes = (BTreeMap<usize, usize>, BTreeMap<(usize, usize), u32>);

/// Returns the node of each CPU, and the distances between nodes.
fn read_nodes(system: &Path, nodes: &NodeSet) -> Result<Nodes, CptError> {
    let (mut node_of, mut distances) = Nodes::default();
    for node in nodes.iter() {
        let directory = system.join(format!("node/node{node}"));
        let path = directory.join("cpulist");
        for cpu in value::<CpuSet>(&path)?.unwrap_or_default().iter() {
            if let Some(other) = node_of.insert(cpu, node) {
                return Err(wrong(&path, format!("CPU {cpu} belongs to node {other} already")));
            }
        }
        let path = directory.join("distance");
        let Some(text) = text(&path)? else { continue };
        let row =
            text.split_ascii_whitespace().map(|word| parse(&path, word)).collect::<Result<Vec<u32>, _>>()?;
        if row.len() != nodes.len() {
            return Err(wrong(&path, format!("{} distances for {} nodes", row.len(), nodes.len())));
        }
        distances.extend(nodes.iter().zip(row).map(|(to, distance)| ((node, to), distance)));
    }
    Ok((node_of, distances))
}

/// Returns the lowest hyper-thread of a CPU's core, which identifies the core.
fn core(topology: &Path, number: usize) -> Result<usize, CptError> {
    // The newer name is tried first.
    for name in ["core_cpus_list", "thread_siblings_list"] {
        let path = topology.join(name);
        let Some(siblings) = value::<CpuSet>(&path)? else { continue };
        if !siblings.contains(number) {
            return Err(wrong(&path, format!("the core of CPU {number} has only CPUs {siblings}")));
        }
        return Ok(siblings.first().unwrap_or(number));
    }
    Ok(number)
}

/// Returns the value in a file, or `None` if the file does not exist.
fn value<T: FromStr<Err: ToString>>(path: &Path) -> Result<Option<T>, CptError> {
    text(path)?.map(|text| parse(path, text.trim())).transpose()
}

fn parse<T: FromStr<Err: ToString>>(path: &Path, word: &str) -> Result<T, CptError> {
    word.parse().map_err(|error: T::Err| wrong(path, error.to_string()))
}

fn text(path: &Path) -> Result<Option<String>, CptError> {
    let failed = |error: std::io::Error| CptError::Read {
        path: path.to_owned(),
        errno: error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
    };
    // Non-blocking, so that a pipe in this place does not block.
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(wrong(path, format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| wrong(path, "not text".to_owned()))
}

fn wrong(path: &Path, reason: String) -> CptError {
    CptError::Machine { path: PathBuf::from(path), reason }
}

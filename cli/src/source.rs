//! The NID from which a node is asked, and the node that asks.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use lnet_api::Errno;
use lnet_nid::{NetType, Nid};
use lnet_node::{AcceptPolicy, Node, NodeConfig, holder_of, source_towards};

use crate::args::AskingArgs;
use crate::failure::Failure;
use crate::ports;

/// Time that a tool, once it has its answer, gives to connections that are still being opened to
/// the nodes it asked: a kernel node complains of a handshake that is cut short.
pub(crate) const FINAL_DRAIN: Duration = Duration::from_secs(1);

/// Exists while the kernel's TCP LND is loaded.
const KERNEL_LND: &str = "/sys/module/ksocklnd";

/// Exists while the kernel's verbs LND is loaded.
const KERNEL_VERBS_LND: &str = "/sys/module/ko2iblnd";

/// A node to ask, and the NID to ask from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) target: Nid,
    pub(crate) from: Nid,
}

/// Starts a node that can ask all of them. It only connects, so it needs no privileges even if the
/// others listen on port 988.
pub(crate) fn node_for(questions: &[Question], asking: &AskingArgs) -> Result<Node, Failure> {
    let accept_port = asking.accept_port;
    let mut config = asking.spin.apply(NodeConfig::new().accept_port(accept_port).accept(AcceptPolicy::None));
    let verbs = config.o2ib();
    (verbs.service, verbs.listens) = (asking.service, false);
    // Pings are repeated at intervals, so retries need no further back-off.
    config.tcp().max_reconnect_ms = config.tcp().min_reconnect_ms;
    let mut sources: Vec<Nid> = questions.iter().map(|question| question.from).collect();
    sources.retain(|from| !from.is_loopback());
    sources.sort_by_key(Nid::to_string);
    sources.dedup();
    for from in sources {
        let address = from.ip().ok_or_else(|| Failure::no_driver(from))?;
        let net = config.net(&format!("{}({address})", from.net()));
        config = net.map_err(|error| Failure::of_node(&error, accept_port))?;
    }
    Node::start(&config).map_err(|error| {
        let failure = Failure::of_node(&error, accept_port);
        if error.errno() == Errno::EADDRINUSE {
            failure.hint("name another NID of this host with --from, or stop that program")
        } else {
            failure
        }
    })
}

/// Returns the NID from which to ask a node: the one that is named, or the address from which this
/// host routes there.
pub(crate) fn question(target: Nid, asking: &AskingArgs) -> Result<Question, Failure> {
    route(target, asking).map_err(|failure| failure.about(target))
}

fn route(target: Nid, asking: &AskingArgs) -> Result<Question, Failure> {
    let AskingArgs { from, accept_port, .. } = *asking;
    if target.is_any() {
        return Err(Failure::at(
            "route",
            Errno::EINVAL,
            "only one node can be asked at a time, and '*' names all of them",
        )
        .hint("name the nodes one by one, for instance 10.0.0.1@tcp 10.0.0.2@tcp"));
    }
    if let Some(ip) = target.ip().filter(|&ip| !target.is_loopback() && !is_of_one_host(ip)) {
        let message = format!("{target}: {ip} is not the address of a host");
        return Err(Failure::at("route", Errno::EINVAL, message)
            .hint("ask for a NID that 'lctl list_nids', or 'nlx net show', names on that node"));
    }
    let type_of = |nid: Nid| nid.net().net_type();
    for nid in [Some(target), from].into_iter().flatten() {
        let driven = match type_of(nid) {
            NetType::TCP => nid.ip().is_some(),
            NetType::O2IB => nid.ipv4().is_some(),
            _ => false,
        };
        if !nid.is_loopback() && !driven {
            return Err(Failure::no_driver(nid));
        }
    }
    let from = match from {
        Some(from) if from.net() != target.net() && !target.is_loopback() => {
            let message = format!("{target} is not on the network of {from}: nlx uses no routers");
            return Err(Failure::at("route", Errno::EHOSTUNREACH, message)
                .hint(format!("ask from a NID on {}", target.net())));
        }
        Some(from) => from,
        None if target.is_loopback() => target,
        None => source(target, accept_port)?,
    };
    Ok(Question { target, from })
}

/// Returns whether one host can have this address. 0.0.0.0 means this host, so a connection to it
/// may even succeed.
fn is_of_one_host(ip: IpAddr) -> bool {
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || is_broadcast)
}

fn source(target: Nid, accept_port: u16) -> Result<Nid, Failure> {
    let address = source_towards(target).ok_or_else(|| {
        let message = format!("{target}: no route: no interface of this host leads there");
        Failure::at("route", Errno::ENETUNREACH, message)
            .hint("see 'ip route'; if an interface does lead there, name its NID with --from")
    })?;
    if Some(address) == target.ip() {
        let message = format!("{target} is a NID of this host: the program would only ask itself");
        return Err(Failure::at("route", Errno::EADDRINUSE, message).hint(format!(
            "to reach the program that serves it, ask from another address of this host: --from ADDRESS@{}",
            target.net()
        )));
    }
    let from = Nid::new_ip(target.net(), address);
    let kernels = match target.net().net_type() {
        // Without privileges the listeners of the kernel's LND over RDMA are not visible.
        NetType::O2IB => Path::new(KERNEL_VERBS_LND).exists(),
        _ => has_kernel_nid(Path::new(KERNEL_LND), address, accept_port),
    };
    if kernels && holder_of(from).is_none() {
        return Err(of_kernel(from));
    }
    Ok(from)
}

/// Returns whether an address is, or may be, a NID of the kernel: its LND is loaded, and listens
/// there or on all addresses. A tool that only connects would not notice that the port is in use.
fn has_kernel_nid(lnd: &Path, address: IpAddr, accept_port: u16) -> bool {
    lnd.exists() && ports::listens(address, accept_port)
}

/// Refuses a kernel's NID. Other nodes would take the tool for a restarted kernel node, and drop
/// the connections of the kernel's NID (lnet-wire 24), with Lustre's operations in progress. With
/// --from the user accepts that.
fn of_kernel(from: Nid) -> Failure {
    let message = format!(
        "this host's kernel runs LNet, and {from} may be its NID: other nodes would drop its connections for those of this \
         program"
    );
    Failure::at("claim", Errno::EADDRINUSE, message).hint(
        "use 'lctl ping' or 'lnetctl discover' here, or name the NID to ask from: --from, best one that 'lctl list_nids' \
         does not have",
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_is_the_kernels_if_its_lnd_is_loaded_and_listens_there() {
        let listener = TcpListener::bind("127.44.0.3:0").unwrap();
        let (ip, port) = (listener.local_addr().unwrap().ip(), listener.local_addr().unwrap().port());
        let (loaded, absent) = (Path::new("/proc/self"), Path::new("/proc/self/no-such-module"));
        assert!(has_kernel_nid(loaded, ip, port) && !has_kernel_nid(absent, ip, port));
        assert!(!has_kernel_nid(loaded, "127.44.0.4".parse().unwrap(), port));
        let failure = of_kernel("10.0.0.7@tcp".parse().unwrap()).to_json();
        assert_eq!((&failure["step"], &failure["errno"]), (&"claim".into(), &"EADDRINUSE".into()));
    }
}

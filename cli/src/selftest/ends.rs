//! The two ends of a test on this host: a network with one address for each.

use std::net::IpAddr;

use lnet_nid::NetType;
use lnet_node::{Choice, ChoiceReason, NetSpec, explain};
use nlx::Errno;

use super::process::{CLIENT, SERVER, free_port};
use crate::args::SelftestArgs;
use crate::failure::Failure;

/// The networks of the nodes, and the port on which both listen.
pub(super) struct Ends {
    pub(super) client: String,
    pub(super) server: String,
    pub(super) port: u16,
}

impl Ends {
    /// Returns two loopback addresses for `tcp`, and otherwise two that the network names, or has
    /// beside the one that it names.
    pub(super) fn of(args: &SelftestArgs) -> Result<Ends, Failure> {
        let net: NetSpec = args.net.parse().map_err(|error| Failure::of_node(&error, 0))?;
        let [client, server] = match args.net.as_str() {
            "tcp" => [CLIENT.into(), SERVER.into()],
            _ => two(&net, &explain(&net).map_err(|error| Failure::of_node(&error, 0))?)?,
        };
        let port = match (args.accept_port, net.net().net_type()) {
            // A port that is free over TCP most likely is over RDMA too, where listeners are not
            // visible without privileges.
            (0, NetType::O2IB) => free_port([CLIENT.into(), SERVER.into()])?,
            (0, _) => free_port([client, server])?,
            (port, _) => port,
        };
        let at = |address: IpAddr| format!("{}({address})", net.net());
        Ok(Ends { client: at(client), server: at(server), port })
    }
}

/// Returns two addresses of the network: those that it uses, then others that it could use.
fn two(net: &NetSpec, choices: &[Choice]) -> Result<[IpAddr; 2], Failure> {
    if let Some(error) = choices.iter().find_map(|choice| match &choice.reason {
        ChoiceReason::Refused(error) => Some(error),
        _ => None,
    }) {
        return Err(Failure::of_node(error, 0));
    }
    let taken = choices.iter().filter(|choice| choice.nid.is_some());
    // For a network over RDMA that names one address or none: no other kind of link is used.
    let verbs = net.net().net_type() == NetType::O2IB;
    let near = |choice: &&Choice| {
        matches!(
            choice.reason,
            ChoiceReason::OtherAddress(_) | ChoiceReason::NotNamed | ChoiceReason::Later { .. }
        )
    };
    let same = |choice: &&Choice| {
        let first = choices.iter().find(|choice| choice.nid.is_some());
        first.is_some_and(|first| first.port == choice.port)
    };
    let others = choices.iter().filter(|_| verbs).filter(near).filter(same);
    let addresses: Vec<IpAddr> = taken.chain(others).filter_map(|choice| choice.address).collect();
    match addresses[..] {
        [client, server, ..] => Ok([client, server]),
        _ => Err(one_address(net, addresses.first(), choices)),
    }
}

fn one_address(net: &NetSpec, first: Option<&IpAddr>, choices: &[Choice]) -> Failure {
    let name = net.net();
    let message = match first {
        Some(address) => {
            format!(
                "--net {net}: a self-test on this host alone needs two addresses, and there is one: {address}"
            )
        }
        None => format!("--net {net}: a self-test on this host alone needs two addresses"),
    };
    let taken = choices.iter().find(|choice| choice.nid.is_some());
    let interface = taken.and_then(|choice| choice.interface.as_ref());
    let interface = interface.map_or("IFACE", |interface| interface.name.as_str());
    Failure::at("interface", Errno::EINVAL, message).hint(format!(
        "name two: --net '{name}(ADDRESS,ADDRESS)'; give the interface another: 'ip address add ADDRESS/24 dev {interface}'; or \
         test between hosts, with --server and --client"
    ))
}

#[cfg(test)]
mod tests {
    use lnet_node::HostInterface;

    use super::*;

    fn choice(interface: &str, port: Option<&str>, address: &str, reason: ChoiceReason) -> Choice {
        let address: IpAddr = address.parse().unwrap();
        let taken = matches!(
            reason,
            ChoiceReason::First
                | ChoiceReason::Named
                | ChoiceReason::NamedByAddress
                | ChoiceReason::NamedByDevice
        );
        let interface = HostInterface {
            name: interface.to_string(),
            addresses: vec![address],
            up: true,
            running: true,
            loopback: false,
            point_to_point: false,
            speed_mbps: None,
            numa_node: None,
        };
        Choice {
            interface: Some(interface),
            port: port.map(str::to_string),
            address: Some(address),
            nid: taken.then(|| lnet_nid::Nid::new_ip(lnet_nid::Net::O2IB, address)),
            cpts: Vec::new(),
            reason,
        }
    }

    fn ends(net: &str, choices: &[Choice]) -> Result<[String; 2], String> {
        let found = two(&net.parse().unwrap(), choices).map_err(|failure| failure.to_string())?;
        Ok(found.map(|address| address.to_string()))
    }

    #[test]
    fn two_ends_are_two_addresses_of_one_kind_of_link() {
        let first: IpAddr = "10.77.0.1".parse().unwrap();
        let rxe = Some("rxe0/1");
        let two_of_one = [
            choice("lo", None, "127.0.0.1", ChoiceReason::NoRdma),
            choice("eth0", rxe, "10.77.0.1", ChoiceReason::First),
            choice("eth0", rxe, "10.77.0.2", ChoiceReason::OtherAddress(first)),
        ];
        let expected = ["10.77.0.1".to_string(), "10.77.0.2".to_string()];
        assert_eq!(ends("o2ib", &two_of_one).unwrap(), expected);
        let named = [
            choice("eth0", rxe, "10.77.0.1", ChoiceReason::NotNamed),
            choice("eth0", rxe, "10.77.0.2", ChoiceReason::NamedByAddress),
        ];
        assert_eq!(ends("o2ib(10.77.0.2)", &named).unwrap(), ["10.77.0.2", "10.77.0.1"].map(String::from));
        let both = [
            choice("eth0", rxe, "10.77.0.1", ChoiceReason::NamedByAddress),
            choice("eth1", Some("rxe1/1"), "10.78.0.1", ChoiceReason::Named),
        ];
        assert_eq!(
            ends("o2ib(10.77.0.1,eth1)", &both).unwrap(),
            ["10.77.0.1", "10.78.0.1"].map(String::from)
        );
    }

    #[test]
    fn one_address_is_too_few_and_the_other_kind_of_link_does_not_count() {
        let alone = [
            choice("eth0", Some("rxe0/1"), "10.77.0.1", ChoiceReason::First),
            choice("ib0", Some("mlx5_0/1"), "10.78.0.1", ChoiceReason::Later { first: "eth0".into() }),
        ];
        let message = ends("o2ib", &alone).unwrap_err();
        for word in ["two addresses", "10.77.0.1", "ip address add", "dev eth0", "--server"] {
            assert!(message.contains(word), "{message}");
        }
        let tcp = [choice("eth0", None, "10.77.0.1", ChoiceReason::Named)];
        assert!(ends("tcp(eth0)", &tcp).unwrap_err().contains("two addresses"));
    }
}

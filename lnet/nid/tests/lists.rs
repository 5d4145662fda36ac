//! Lists of NIDs against a plain model, and their texts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use lnet_nid::{Net, NetType, Nid, NidError, NidList, NidRange};
use proptest::prelude::*;

fn list(text: &str) -> NidList {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn nid(text: &str) -> Nid {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Generates an item of a bracket list: its text, and its numbers.
fn item(most: u32) -> impl Strategy<Value = (String, Vec<u32>)> {
    let start = prop_oneof![3 => 0..most.min(20), 1 => 0..most];
    (start, 0..40_u32, 1..9_u32, 0..3).prop_map(move |(first, length, step, form)| {
        let last = first.saturating_add(length).min(most);
        match form {
            0 => (first.to_string(), vec![first]),
            1 => (format!("{first}-{last}"), (first..=last).collect()),
            _ => (format!("{first}-{last}/{step}"), (first..=last).step_by(step as usize).collect()),
        }
    })
}

/// Generates the text of a set of numbers, and the set.
fn numbers(most: u32) -> impl Strategy<Value = (String, BTreeSet<u32>)> {
    prop_oneof![
        (0..most).prop_map(|number| (number.to_string(), BTreeSet::from([number]))),
        prop::collection::vec(item(most), 1..5).prop_map(|items| {
            let texts: Vec<String> = items.iter().map(|(text, _)| text.clone()).collect();
            (format!("[{}]", texts.join(",")), items.into_iter().flat_map(|(_, numbers)| numbers).collect())
        }),
    ]
}

/// Generates an expression with at most some thousand NIDs, and all of them.
fn expression() -> impl Strategy<Value = (String, BTreeSet<Nid>)> {
    let octets = (numbers(255), 0..=255_u32, numbers(255)).prop_map(|((b_text, b), c, (d_text, d))| {
        let small =
            |b, d| Nid::new_v4(Net::new(NetType::TCP, 1), Ipv4Addr::new(10, b as u8, c as u8, d as u8));
        let nids = b.iter().flat_map(|b| d.iter().map(move |d| small(*b, *d))).collect();
        (format!("10.{b_text}.{c}.{d_text}@tcp1"), nids)
    });
    let star = (0..3_usize, any::<[u8; 4]>()).prop_map(|(place, octets)| {
        let mut texts = octets.map(|octet| octet.to_string());
        texts[place] = "*".into();
        let each = |octet| {
            let mut octets = octets;
            octets[place] = octet;
            Nid::new_v4(Net::TCP, Ipv4Addr::from(octets))
        };
        (texts.join("."), (0..=255).map(each).collect())
    });
    let addresses = numbers(u32::MAX).prop_map(|(text, numbers)| {
        let net = Net::new(NetType::GNI, 3);
        let nids = numbers.into_iter().map(|number| Nid::new_numeric(net, number)).collect();
        (format!("{text}@gni3"), nids)
    });
    let prefix4 = (any::<u32>(), 22..=32_u32).prop_map(|(address, bits)| {
        let same = |other: &u32| bits == 0 || (*other ^ address).checked_shr(32 - bits).unwrap_or(0) == 0;
        let around = address.saturating_sub(1 << 10)..=address.saturating_add(1 << 10);
        let nids = around.filter(same).map(|address| Nid::new_v4(Net::O2IB, address.into())).collect();
        (format!("{}/{bits}@o2ib", Ipv4Addr::from(address)), nids)
    });
    let prefix6 = (any::<u128>(), 118..=128_u32).prop_map(|(address, bits)| {
        let same = |other: &u128| (*other ^ address) >> (128 - bits) == 0;
        let around = address.saturating_sub(1 << 10)..=address.saturating_add(1 << 10);
        let nids = around.filter(same).map(|address| Nid::new_v6(Net::TCP, address.into())).collect();
        (format!("{}/{bits}@tcp", Ipv6Addr::from(address)), nids)
    });
    prop_oneof![octets, star, addresses, prefix4, prefix6]
}

proptest! {
    #[test]
    fn a_list_holds_what_its_expressions_name(
        parts in prop::collection::vec(expression(), 0..4),
        blanks in prop::sample::select(vec![" ", "  ", "\t", " \n"]),
        others in prop::collection::vec((any::<u32>(), any::<u128>()), 8),
    ) {
        let texts: Vec<&str> = parts.iter().map(|(text, _)| text.as_str()).collect();
        let list = list(&texts.join(blanks));
        let model: BTreeSet<Nid> = parts.iter().flat_map(|(_, nids)| nids.iter().copied()).collect();

        let members = list.members(NidList::MEMBERS_MAX).unwrap();
        prop_assert_eq!(members.len(), model.len(), "each once");
        prop_assert_eq!(members.iter().copied().collect::<BTreeSet<_>>(), model.clone());

        // The members, their neighbours, and similar NIDs on other networks.
        let near = model.iter().step_by(7).flat_map(|nid| {
            let Some(nid4) = nid.to_nid4() else { return vec![*nid] };
            [0, 1, 2, 1 << 8, 1 << 16, 1 << 32, 1 << 48].map(|bit| Nid::from_nid4(nid4 ^ bit)).to_vec()
        });
        let far = others.iter().flat_map(|(small, large)| {
            [Nid::new_v4(Net::TCP, (*small).into()), Nid::new_v6(Net::TCP, (*large).into())]
        });
        for nid in near.chain(far).chain([Nid::ANY, Nid::LOOPBACK]) {
            prop_assert_eq!(list.contains(nid), model.contains(&nid), "{} in {}", nid, list);
        }
    }

    #[test]
    fn a_list_reads_what_it_prints(parts in prop::collection::vec(expression(), 0..4), net in 0..20_u8) {
        let texts: Vec<String> = parts.into_iter().map(|(text, _)| text).collect();
        let all = NidRange::all_of(Net::new(NetType(net), 2));
        let read = list(&format!("{} {all}", texts.join(" ")));
        let printed = read.to_string();
        prop_assert_eq!(list(&printed).to_string(), printed.as_str(), "canonical");
        prop_assert_eq!(list(&printed), read);
    }

    #[test]
    fn every_nid_is_a_range_of_its_own(id in any::<u32>(), small in any::<u32>(), large in any::<u128>()) {
        let net = Net::from_id(id & 0x001f_ffff);
        for nid in [Nid::new_numeric(net, small), Nid::new_v6(net, large.into())] {
            if let Ok(nid) = nid.canonical() {
                let range = NidRange::from(nid);
                prop_assert!(range.contains(nid));
                prop_assert_eq!(NidList::from(range.clone()).members(1).unwrap(), [nid]);
                prop_assert_eq!(range.to_string(), nid.to_string());
                prop_assert_eq!(nid.to_string().parse::<NidRange>().unwrap(), range);
            }
        }
    }

    #[test]
    fn no_text_panics_and_errors_point_into_it(text in "[0-9a-f\\[\\],/*.:@<> tcpgnilo-]{0,60}|\\PC*") {
        match text.parse::<NidList>() {
            Ok(read) => prop_assert_eq!(list(&read.to_string()), read),
            Err(NidError::Expression { value, position, .. }) => {
                prop_assert!(text[position..].starts_with(&value), "{} at {}", value, position);
            }
            Err(error) => prop_assert_eq!(error.errno(), 22),
        }
    }
}

#[test]
fn canonical_texts() {
    let table = [
        ("", ""),
        ("  ", ""),
        ("*", "*"),
        ("<?>", "*"),
        ("*@tcp", "*@tcp"),
        ("*@tcp0 *@tcp1", "*@tcp *@tcp1"),
        ("*@lo anything@lo 0@lo", "0@lo 0@lo 0@lo"),
        ("10.0.0.1", "10.0.0.1@tcp"),
        ("10.0.0.1/32@efa", "10.0.0.1@efa"),
        ("10.0.0.77/24@tcp", "10.0.0.0/24@tcp"),
        ("1.2.3.4/0@tcp", "0.0.0.0/0@tcp"),
        ("[3,1,2,7-9,8-12].[0-255].*.[5]@gip", "[1-3,7-12].*.*.5@gip"),
        ("[9-10/4,1-9/2,1-9/2,5-5/3]@kfi", "[1-9/2,5,9]@kfi"),
        ("[0x10-0X1f]@gni", "[16-31]@gni"),
        ("0x11@gni", "17@gni"),
        ("[0-4294967295]@ptlf", "[0-4294967295]@ptlf"),
        ("fd00::/64@tcp", "fd00::/64@tcp"),
        ("fd00::5/64@tcp", "fd00::/64@tcp"),
        ("fd00::5@tcp fd00::5/128", "fd00::5@tcp fd00::5@tcp"),
        ("::/0@o2ib", "::/0@o2ib"),
        ("a000001@<17:2> *@<17:2>", "a000001@<17:2> *@<17:2>"),
        ("a000001@<2:2>", "10.0.0.1@tcp2"),
    ];
    for (text, canonical) in table {
        assert_eq!(list(text).to_string(), canonical, "{text}");
        assert_eq!(list(canonical), list(text));
    }
}

#[test]
fn wildcards() {
    let everything = list("*");
    let tcp = list("*@tcp");
    for (text, on_tcp) in
        [("10.0.0.1@tcp", true), ("fd00::1@tcp", true), ("10.0.0.1@tcp1", false), ("0@lo", false)]
    {
        assert!(everything.contains(nid(text)), "{text}");
        assert_eq!(tcp.contains(nid(text)), on_tcp, "{text}");
    }
    assert!(!everything.contains(Nid::ANY), "it names no interface");
    assert!(!list("*.*.*.*@tcp").contains(nid("fd00::1@tcp")));
    assert!(!list("::/0@tcp").contains(nid("10.0.0.1@tcp")));
    assert!(list("").is_empty() && !list("").contains(Nid::LOOPBACK));
    assert_eq!(list("*@lo").members(1).unwrap(), [Nid::LOOPBACK]);
}

#[test]
fn malformed_lists_are_refused_with_the_part_that_is_wrong() {
    let octet = "a decimal number of 0 to 255";
    let ip = "an IPv4 or IPv6 address";
    let table = [
        ("10.0.0.1@tcp 10.0.0.256@tcp", 20, "256", octet),
        ("10.0.[1-300].1@tcp", 8, "300", octet),
        ("10.0.[1,,2].1@tcp", 8, "", octet),
        ("10.0.[].1@tcp", 6, "", octet),
        ("10.0.[1.1@tcp", 5, "[1", octet),
        ("10.0.[1-2-3].1", 8, "2-3", octet),
        ("10.0.[[1]].1", 6, "[1]", octet),
        ("10.0.010.1", 5, "010", octet),
        ("10.0.[*].1", 6, "*", octet),
        ("10.0.+1.1", 5, "+1", octet),
        ("10.0.[1, 2].1", 5, "[1,", octet),
        ("10.0.[5-3].1", 6, "5-3", "a range that rises"),
        ("10.0.[1-9/0].1", 10, "0", "a step of 1 to 4294967295"),
        ("10.0.0.0/33@tcp", 9, "33", "a prefix length of 0 to 32"),
        ("10.0.0.0/", 9, "", "a prefix length of 0 to 32"),
        ("10.0.0/8", 0, "10.0.0", "an IPv4 address"),
        ("fd00::/129@tcp", 7, "129", "a prefix length of 0 to 128"),
        ("fd00:::/64@tcp", 0, "fd00:::", ip),
        ("10.0.0", 0, "10.0.0", ip),
        ("10.0.0.1.2", 0, "10.0.0.1.2", ip),
        ("@tcp", 0, "", ip),
        ("host", 0, "host", ip),
        ("fd00::1@gip", 0, "fd00::1", "an IPv4 address"),
        ("[1-4294967296]@gni", 3, "4294967296", "a number of 0 to 4294967295"),
        ("[*]@gni", 1, "*", "a number of 0 to 4294967295"),
        ("*@mx", 2, "mx", "a network's name and number"),
        ("*@", 2, "", "a network's name and number"),
        ("0@lo 10.0.0.1@tcp65536", 14, "tcp65536", "a network's name and number"),
        ("10.0.0.1@tcp@tcp", 9, "tcp@tcp", "a network's name and number"),
        ("g@<17:2>", 0, "g", "a hexadecimal number of 1 to 8 or 32 digits"),
    ];
    for (text, position, value, expected) in table {
        let error = text.parse::<NidList>().unwrap_err();
        match &error {
            NidError::Expression { position: p, value: v, expected: e, .. } => {
                assert_eq!((*p, v.as_str(), *e), (position, value, expected), "{text}");
            }
            other => panic!("{text}: {other}"),
        }
        assert_eq!(error.errno(), 22);
        let words = format!("\"{value}\" at byte {position} of the NID list");
        assert!(error.to_string().starts_with(&words) && error.to_string().ends_with(expected), "{error}");
    }
}

#[test]
fn hostile_lists_are_refused_and_quoted_in_part() {
    let many = "* ".repeat(NidList::EXPRESSIONS_MAX);
    assert_eq!(list(&many).ranges().len(), NidList::EXPRESSIONS_MAX);
    let limit = NidList::EXPRESSIONS_MAX;
    let refused = |text: String| text.parse::<NidList>().unwrap_err();
    let (what, position) = ("expressions", many.len());
    assert_eq!(refused(format!("{many}*")), NidError::ListTooLong { what, position, limit });

    let items = "1,".repeat(256);
    assert_eq!(list(&format!("[{items}]@gni").replace(",]", "]")).to_string(), "1@gni");
    let (what, position, limit) = ("items of a list", 513, 256);
    assert_eq!(refused(format!("[{items}1]@gni")), NidError::ListTooLong { what, position, limit });

    let (what, position, limit) = ("bytes of an expression", 5, 16384);
    assert_eq!(
        refused(format!("0@lo {}", "[".repeat(1 << 20))),
        NidError::ListTooLong { what, position, limit }
    );

    let error = refused(format!("{}@tcp", "\u{e9}".repeat(8000)));
    assert!(error.to_string().len() < 400, "{error}");
}

#[test]
fn members_are_named_up_to_a_limit() {
    let group = list("10.0.0.[1-4]@tcp 10.0.0.4@tcp 7@gni");
    assert_eq!(group.members(6).unwrap().len(), 5, "one comes twice");
    let error = group.members(5).unwrap_err();
    assert_eq!(error, NidError::Members { text: "7@gni".into(), limit: 5 });
    for text in ["*", "*@tcp", "*.*.*.*@tcp", "::/0@tcp", "[0-4294967295]@gni", "10.0.0.0/15@tcp"] {
        let error = list(text).members(usize::MAX).unwrap_err();
        assert!(matches!(error, NidError::Members { limit: NidList::MEMBERS_MAX, .. }), "{error}");
    }
    assert_eq!(list("10.0.0.0/16@tcp").members(usize::MAX).unwrap().len(), 1 << 16);
}

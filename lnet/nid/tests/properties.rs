//! Properties of every name and every text.

use std::net::{Ipv4Addr, Ipv6Addr};

use lnet_nid::{Net, NetType, Nid, Pid, ProcessId};
use proptest::prelude::*;

fn any_net() -> impl Strategy<Value = Net> {
    let named = [2, 5, 13, 14, 15, 16, 17, 18, 19].map(NetType);
    let net_type =
        prop_oneof![3 => proptest::sample::select(named.to_vec()), 1 => (0..9_u8).prop_map(NetType)];
    let number = prop_oneof![Just(0_u16), any::<u16>()];
    (net_type, number).prop_map(|(net_type, number)| Net::new(net_type, number))
}

fn any_nid() -> impl Strategy<Value = Nid> {
    prop_oneof![
        1 => Just(Nid::ANY),
        1 => Just(Nid::LOOPBACK),
        8 => (any_net(), any::<u32>()).prop_map(|(net, address)| Nid::new_v4(net, Ipv4Addr::from(address))),
        8 => (any_net(), any::<u128>()).prop_map(|(net, address)| Nid::new_v6(net, Ipv6Addr::from(address))),
    ]
}

proptest! {
    #[test]
    fn every_nid_reads_what_it_prints(nid in any_nid()) {
        prop_assert_eq!(nid.to_string().parse(), Ok(nid));
    }

    #[test]
    fn every_process_reads_what_it_prints(nid in any_nid(), pid in any::<u32>().prop_map(Pid)) {
        let process = ProcessId::new(nid, pid);
        prop_assert_eq!(process.to_string().parse(), Ok(process));
    }

    #[test]
    fn every_net_reads_what_it_prints(net in any::<u32>().prop_map(|id| Net::from_id(id & 0x001f_ffff))) {
        prop_assert_eq!(net.to_string().parse(), Ok(net));
        prop_assert_eq!(Net::from_id(net.id()), net);
    }

    #[test]
    fn every_nid_survives_its_wire_form(nid in any_nid()) {
        prop_assert_eq!(Nid::from_wire(&nid.to_wire()), Ok(nid));
        prop_assert_eq!(nid.canonical(), Ok(nid));
        if let Some(nid4) = nid.to_nid4() {
            prop_assert_eq!(Nid::from_nid4(nid4), nid);
            prop_assert_eq!(Nid::try_from_nid4(nid4), Ok(nid));
        }
    }

    #[test]
    fn what_is_read_strictly_is_written_back(nid4 in any::<u64>(), top in 0..64_u32, bytes in any::<[u8; 20]>()) {
        for value in [nid4, nid4 >> top] {
            if let Ok(nid) = Nid::try_from_nid4(value) {
                prop_assert_eq!(nid.to_nid4(), Some(value));
            }
        }
        if let Ok(nid) = Nid::from_wire(&bytes) {
            prop_assert_eq!(Nid::from_wire(&nid.to_wire()), Ok(nid));
        }
    }

    #[test]
    fn the_order_is_that_of_the_bytes(a in any_nid(), b in any_nid()) {
        prop_assert_eq!(a.cmp(&b), a.to_wire().cmp(&b.to_wire()));
        if let (Some(a4), Some(b4), false) = (a.to_nid4(), b.to_nid4(), a.is_any() || b.is_any()) {
            prop_assert_eq!(a.cmp(&b), a4.cmp(&b4));
        }
    }

    #[test]
    fn no_text_panics_and_what_is_read_is_stable(text in "[0-9a-fx.:@<>*a-z-]{0,90}|\\PC*") {
        if let Ok(nid) = text.parse::<Nid>() {
            prop_assert_eq!(nid.to_string().parse(), Ok(nid));
        }
        let _ = text.parse::<ProcessId>();
        let _ = text.parse::<Net>();
    }
}

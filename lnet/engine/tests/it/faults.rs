//! Deliberate losses and delays.

use lnet::{FaultRule, FaultStatistics};
use lnet_api::EventKind::{Ack, Put, Reply, Send};
use lnet_api::{AckRequest, Arrival, Errno, LNet, MdOptions, RxContext, Threshold, Unlink, Upcalls, Verdict};
use lnet_nid::ProcessId;
use nlx_testkit::buffers;
use proptest::prelude::*;
use std::sync::Arc;

use super::common::*;

const MS: u64 = 1_000_000;

fn pair() -> (Arc<Network>, Node, Node) {
    let (network, a, b) = two_nodes();
    b.engine.advance(1000 * MS);
    (network, a, b)
}

fn add(node: &Node, rule: &str) -> lnet::FaultId {
    node.engine.add_fault(rule.parse().unwrap()).unwrap()
}

fn only(node: &Node) -> FaultStatistics {
    let [found] = &node.engine.faults()[..] else { panic!("one rule") };
    found.clone()
}

/// Sends a message whose bytes have this value.
fn send(from: &Node, to: ProcessId, value: u8, ack: AckRequest) {
    let memory = memory(4);
    buffers::fill(&memory, &[value; 4]);
    from.put(from.bind(&memory, 2), to, 1, ack).unwrap();
}

/// Posts a buffer for any number of messages; returns a function that returns the first bytes of
/// the received messages.
fn inbox(node: &Node) -> impl Fn() -> Vec<u8> {
    let memory = memory(4000);
    let md = lnet_api::Md { threshold: Threshold::Infinite, ..node.md(&memory, MdOptions::OP_PUT, 0) };
    node.engine.md_attach(node.post(1), md, Unlink::Auto).unwrap();
    let log = node.log.clone();
    move || {
        let puts = log.take().into_iter().filter(|event| event.kind == Put);
        puts.map(|event| content(&memory)[event.offset as usize]).collect()
    }
}

#[test]
fn every_third_message_is_lost_and_counted() {
    let (network, a, b) = pair();
    add(&b, "drop every 3 put portal 34");
    let received = inbox(&b);
    (0..9).for_each(|seed| send(&a, b.id(), seed, AckRequest::Ack));
    network.run();
    assert_eq!(received(), [0, 1, 3, 4, 6, 7]);
    let found = only(&b);
    assert_eq!((found.matched, found.dropped, found.delayed), (9, 3, 0));
    assert_eq!(b.engine.counters().drop_count, 3);
    assert_eq!(a.events().iter().filter(|event| event.kind == Ack).count(), 6);
    b.engine.audit().unwrap();
}

#[test]
fn only_what_a_rule_is_for_is_touched() {
    let (network, a, b) = pair();
    for rule in [
        "drop put portal 35",
        "drop get",
        "drop ack,reply",
        "drop put from 10.77.0.9@tcp",
        "drop put to 10.77.0.2@tcp",
        "drop 1/1 ack portal 34",
    ] {
        let id = add(&b, rule);
        let buffer = memory(4);
        b.expect(1, &buffer, MdOptions::OP_PUT);
        send(&a, b.id(), 7, AckRequest::NoAck);
        network.run();
        assert_eq!(b.events().len(), 1, "{rule}");
        let found = b.engine.remove_fault(id).unwrap();
        assert_eq!((found.matched, found.rule), (0, rule.parse::<FaultRule>().unwrap()));
        assert_eq!(errno(b.engine.remove_fault(id)), Errno::ENOENT);
    }
    for rule in ["drop", "drop put portal 34 from 10.77.0.2@tcp to 10.77.0.3@tcp", "drop from *"] {
        let id = add(&b, rule);
        let md = b.expect(1, &memory(4), MdOptions::OP_PUT);
        send(&a, b.id(), 7, AckRequest::NoAck);
        network.run();
        b.engine.md_unlink(md).unwrap();
        assert_eq!(b.engine.remove_fault(id).unwrap().dropped, 1, "{rule}");
    }
}

/// The rule that was applied last is the first to act on a message; a message on which it does not
/// act goes to the rule before.
#[test]
fn rules_are_asked_in_order() {
    let (network, a, b) = pair();
    let ids = ["drop every 2", "drop every 2", "drop"].map(|rule| add(&b, rule));
    (0..4).for_each(|seed| send(&a, b.id(), seed, AckRequest::NoAck));
    network.run();
    let found = ids.map(|id| b.engine.remove_fault(id).unwrap());
    assert_eq!(found.map(|found| (found.matched, found.dropped)), [(4, 2), (2, 1), (1, 1)]);
}

/// A lost answer has the same effect as a lost request: the initiator's operation ends at its
/// deadline.
#[test]
fn lost_answers_end_at_the_deadline_of_the_waiter() {
    let (network, a, b) = pair();
    a.engine.advance(0);
    add(&a, "drop ack,reply");
    let received = inbox(&b);
    send(&a, b.id(), 1, AckRequest::Ack);
    b.expect(2, &pattern(4, 1), MdOptions::OP_GET);
    a.get(a.bind(&memory(4), 2), b.id(), 2).unwrap();
    network.run();
    assert_eq!(received(), [1]);
    assert_eq!(a.events().iter().filter(|event| event.kind == Send).count(), 2);
    assert_eq!(only(&a).dropped, 2);
    a.engine.advance(1_000_000 * MS);
    let mut late: Vec<_> = a.events().iter().map(|event| (event.kind, event.status)).collect();
    late.sort_by_key(|(kind, _)| *kind as u32);
    assert_eq!(late, [(Reply, Err(Errno::ETIMEDOUT)), (Ack, Err(Errno::ETIMEDOUT))]);
    assert!(a.is_quiet() && b.is_quiet());
}

/// A delayed message is invisible until it is due.
#[test]
fn a_late_message_arrives_when_its_time_has_come() {
    let (network, a, b) = pair();
    add(&b, "delay 5ms");
    let received = inbox(&b);
    (0..2).for_each(|seed| send(&a, b.id(), seed, AckRequest::Ack));
    network.run();
    assert_eq!((b.engine.held(), network.verdicts().delayed), (2, 2));
    b.engine.audit().unwrap();
    // The delay starts with this call, because the clock may not have been advanced before.
    assert_eq!(b.engine.advance(2000 * MS), Some(2005 * MS));
    assert_eq!(b.engine.advance(2005 * MS - 1), Some(2005 * MS));
    assert!(received().is_empty());
    b.engine.advance(2005 * MS);
    assert_eq!(received(), [0, 1]);
    network.run();
    assert_eq!(a.events().iter().filter(|event| event.kind == Ack).count(), 2);
    assert_eq!((b.engine.held(), only(&b).delayed), (0, 2));
    assert!(a.is_quiet() && b.is_quiet());
}

/// Delayed messages are dispatched in the order of their due times; those due at one time, in the
/// order of their arrival.
#[test]
fn late_messages_come_in_the_order_of_their_moments() {
    let (network, a, b) = pair();
    let received = inbox(&b);
    for (seed, rule) in [(1, "delay 9ms"), (2, "delay 5ms"), (3, "delay 9ms"), (4, "delay 1ms")] {
        let id = add(&b, rule);
        send(&a, b.id(), seed, AckRequest::NoAck);
        network.run();
        b.engine.remove_fault(id).unwrap();
    }
    b.engine.advance(2000 * MS);
    b.engine.advance(3000 * MS);
    assert_eq!(received(), [4, 2, 1, 3]);
}

/// GETs, ACKs and REPLYs can be delayed, and messages of the node to itself.
#[test]
fn all_kinds_can_be_late() {
    let (network, a, b) = pair();
    for node in [&a, &b] {
        add(node, "delay 1ms");
    }
    let mut now_ns = 2000 * MS;
    let mut settle = || {
        for _ in 0..6 {
            network.run();
            for node in [&a, &b] {
                node.engine.audit().unwrap();
                node.engine.advance(now_ns);
            }
            now_ns += MS;
        }
    };
    let received = inbox(&b);
    send(&a, b.id(), 3, AckRequest::Ack);
    b.expect(2, &pattern(4, 5), MdOptions::OP_GET);
    let sink = memory(4);
    a.get(a.bind(&sink, 2), b.id(), 2).unwrap();
    settle();
    assert_eq!((received(), content(&sink)), (vec![3], pattern_bytes(4, 5)));
    assert_eq!(a.events().len(), 4);
    // Each node delays a request and an answer.
    assert_eq!((only(&a).delayed, only(&b).delayed), (2, 2));
    send(&b, b.id(), 8, AckRequest::Ack);
    settle();
    let own: Vec<_> = b.events().iter().map(|event| event.kind).collect();
    assert_eq!(own, [Send, Put, Ack]);
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn late_messages_go_with_their_interface() {
    let (network, a, b) = pair();
    add(&b, "delay 1ms");
    send(&a, b.id(), 1, AckRequest::NoAck);
    network.run();
    send(&b, b.id(), 2, AckRequest::NoAck);
    assert_eq!(b.engine.held(), 2);
    b.engine.remove_ni(b.nid).unwrap();
    assert_eq!(b.engine.held(), 0);
    // The message of the node to itself was dispatched without another call of `advance`.
    assert_eq!(b.events().iter().map(|event| event.kind).collect::<Vec<_>>(), [Send]);
    b.engine.audit().unwrap();
    assert!(b.is_quiet());
}

#[test]
fn a_node_whose_time_does_not_pass_delays_nothing() {
    let engine = lnet::Engine::new(partitioned(lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1)));
    engine.add_fault("delay 1ms".parse().unwrap()).unwrap();
    let node = Node::over(engine, lnet_nid::Nid::LOOPBACK);
    let received = inbox(&node);
    send(&node, node.id(), 3, AckRequest::NoAck);
    assert_eq!((received(), only(&node).passed, node.engine.held()), (vec![3], 1, 0));
}

#[test]
fn only_so_many_are_late() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1);
    config.limits.held = 3;
    let (a, b) = (Node::new(&network, 2), Node::with_config(&network, 3, config));
    let received = inbox(&b);
    add(&b, "delay 1ms");
    (0..5).for_each(|seed| send(&a, b.id(), seed, AckRequest::NoAck));
    network.run();
    let found = only(&b);
    assert_eq!((received(), found.delayed, found.passed), (vec![3, 4], 3, 2));
}

/// The connection of a delayed message is lost during the delay, or while it waits for a buffer
/// afterwards, on a lazy portal.
#[test]
fn late_messages_go_with_their_connection() {
    let (_network, a, b) = pair();
    b.engine.set_lazy(portal(), true);
    add(&b, "delay 1ms");
    let Packet { header, .. } = put_from(&b, a.nid, 1, vec![0; 4]);
    let arrive = || {
        let arrival = Arrival { ni: b.nid, from: a.id(), header: &header, host: None, rx: RxContext(9) };
        let Verdict::Stay(token) = b.engine.parse(&arrival) else { panic!("it is late") };
        token
    };
    let [first, second, third] = [(); 3].map(|()| arrive());
    // The token of a delayed message is not that of a receive.
    b.engine.finalize_rx(first, Ok(()));
    assert!(b.engine.forget_delayed(first) && !b.engine.forget_delayed(first));
    b.engine.advance(2000 * MS);
    assert!(b.engine.forget_delayed(second) && !b.engine.forget_delayed(second));
    b.engine.advance(2001 * MS);
    assert_eq!((b.engine.held(), b.engine.waiting(portal())), (0, 1));
    b.engine.audit().unwrap();
    assert!(b.engine.forget_delayed(third) && !b.engine.forget_delayed(third));
    assert_eq!((b.engine.waiting(portal()), b.engine.counters().drop_count), (0, 3));
    assert!(b.is_quiet());
}

#[test]
fn there_are_only_so_many_rules() {
    let (_network, _, b) = pair();
    let rule: FaultRule = "drop 1/9 reply".parse().unwrap();
    let ids: Vec<_> = (0..lnet::FAULT_RULES_MAX).map(|_| b.engine.add_fault(rule).unwrap()).collect();
    assert_eq!(errno(b.engine.add_fault(rule)), Errno::ENOMEM);
    b.engine.remove_fault(ids[7]).unwrap();
    let next = b.engine.add_fault(rule).unwrap();
    assert!(!ids.contains(&next));
    let nothing = FaultRule { kinds: lnet::MessageKinds::empty(), ..rule };
    assert_eq!(errno(b.engine.add_fault(nothing)), Errno::EINVAL);
}

/// A rule of the plain program: it drops (or delays, by milliseconds) the last of every `every`
/// messages from `source`.
#[derive(Debug, Clone)]
struct Plain {
    late_ms: Option<u64>,
    every: u64,
    source: Option<u8>,
}

impl Plain {
    fn text(&self) -> String {
        let action = self.late_ms.map_or("drop".to_string(), |ms| format!("delay {ms}ms"));
        let from = self.source.map_or(String::new(), |last| format!(" from {}", nid(last)));
        format!("{action} every {} put{from}", self.every)
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let (late_ms, source) = (prop::option::of(1u64..50), prop::option::of(10u8..13));
    (late_ms, 1u64..5, source).prop_map(|(late_ms, every, source)| Plain { late_ms, every, source })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With any rules and messages: each message gets the fault of the plain program, delayed
    /// messages are dispatched when they are due and in order, and nothing is left.
    #[test]
    fn faults_are_what_a_plain_program_says(
        rules in prop::collection::vec(plain(), 0..5), sources in prop::collection::vec(10u8..13, 0..40),
    ) {
        let (network, _, b) = pair();
        let received = inbox(&b);
        let _ids: Vec<_> = rules.iter().map(|rule| add(&b, &rule.text())).collect();
        let mut asked = vec![0; rules.len()];
        // The time at which a message is due; none if it is lost.
        let mut due: Vec<(u64, u8)> = Vec::new();
        for (number, &source) in (0u8..).zip(&sources) {
            let met = rules.iter().zip(&mut asked).find_map(|(rule, asked)| {
                let meant = rule.source.is_none_or(|last| last == source);
                *asked += u64::from(meant);
                (meant && *asked % rule.every == 0).then_some(rule)
            });
            match met {
                None => due.push((0, number)),
                Some(rule) => due.extend(rule.late_ms.map(|late_ms| (late_ms, number))),
            }
            network.arrive(put_from(&b, nid(source), 1, vec![number; 4]));
        }
        due.sort_unstable();
        let mut next = 0;
        for ms in 0..50 {
            if ms > 0 {
                b.engine.advance((2000 + ms) * MS);
            } else {
                // The delays start with the next call of `advance`.
                prop_assert_eq!(b.engine.held(), due.iter().filter(|(late_ms, _)| *late_ms > 0).count());
            }
            b.engine.audit().unwrap();
            let here: Vec<u8> = due[next..].iter().take_while(|(late_ms, _)| *late_ms <= ms).map(|(_, n)| *n).collect();
            next += here.len();
            prop_assert_eq!(received(), here);
            if ms == 0 {
                b.engine.advance(2000 * MS);
            }
        }
        let found = b.engine.faults();
        prop_assert_eq!(found.iter().map(|found| found.matched).collect::<Vec<_>>(), asked);
        let struck: u64 = found.iter().map(|found| found.dropped + found.delayed).sum();
        prop_assert_eq!(struck, (sources.len() - due.iter().filter(|(late_ms, _)| *late_ms == 0).count()) as u64);
        prop_assert!(b.is_quiet());
    }
}

//! Polled event queues, which keep a number of events (S-311).

use lnet_api::{EQ_COUNT_MAX, EqHandle, Errno, LNet, MdOptions, Polled, Unlink};
use lnet_cpt::with_partition;

use super::PARTITIONS;
use super::common::*;

/// Causes one event in a queue, with this `user_ptr`.
fn event(node: &Node, eq: EqHandle, user_ptr: u64) {
    let md = lnet_api::Md { eq: Some(eq), user_ptr, ..node.md(&memory(8), MdOptions::empty(), 1) };
    let md = node.engine.md_bind(md, Unlink::Auto).unwrap();
    node.engine.md_unlink(md).unwrap();
}

/// Returns the `user_ptr` of the next event, and the number of events missed before it.
fn poll(node: &Node, eq: EqHandle) -> Option<(u64, u64)> {
    let Polled { eq: of, event, missed } = node.engine.eq_poll(&[eq]).unwrap()?;
    assert_eq!(of, eq);
    Some((event.user_ptr, missed))
}

// Covers: S-311
#[test]
fn a_count_is_rounded_up_to_a_power_of_two_and_the_oldest_events_are_missed() {
    let (_network, node) = one_node();
    for (count, kept) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (100, 128)] {
        let eq = node.engine.eq_alloc_polled(count, None).unwrap();
        assert_eq!(poll(&node, eq), None);
        (0..kept).for_each(|number| event(&node, eq, number));
        assert_eq!(poll(&node, eq), Some((0, 0)));
        // One place is free; the two further events replace the oldest.
        (kept..kept + 3).for_each(|number| event(&node, eq, number));
        let rest: Vec<_> = std::iter::from_fn(|| poll(&node, eq)).collect();
        let first = 3;
        let expected: Vec<_> = (first..kept + 3).map(|number| (number, 0)).collect();
        assert_eq!(rest[0].1, 2);
        assert_eq!(rest.iter().map(|&(number, _)| (number, 0)).collect::<Vec<_>>(), expected);
        assert!(rest[1..].iter().all(|&(_, missed)| missed == 0));
        node.engine.eq_free(eq).unwrap();
    }
}

// Covers: S-311
#[test]
fn a_polled_queue_may_have_a_callback_as_well() {
    let (_network, node) = one_node();
    let eq = node.engine.eq_alloc_polled(8, Some(node.log.clone())).unwrap();
    for number in 0..3 {
        event(&node, eq, number);
    }
    let called = node.events();
    let polled: Vec<_> =
        std::iter::from_fn(|| node.engine.eq_poll(&[eq]).unwrap()).map(|polled| polled.event).collect();
    assert_eq!(called, polled);
    assert_eq!(called.len(), 3);
}

#[test]
fn polling_refuses_what_cannot_be_polled() {
    let (_network, node) = one_node();
    for count in [0, EQ_COUNT_MAX + 1, usize::MAX] {
        assert_eq!(errno(node.engine.eq_alloc_polled(count, None)), Errno::EINVAL);
    }
    let eq = node.engine.eq_alloc_polled(EQ_COUNT_MAX, None).unwrap();
    assert_eq!(errno(node.engine.eq_poll(&[node.eq])), Errno::EINVAL);
    assert_eq!(errno(node.engine.eq_poll(&[eq, node.eq])), Errno::EINVAL);
    assert_eq!(node.engine.eq_poll(&[]).unwrap(), None);
    node.engine.eq_free(eq).unwrap();
    assert_eq!(errno(node.engine.eq_poll(&[eq])), Errno::ENOENT);
    assert_eq!(errno(node.engine.eq_free(eq)), Errno::ENOENT);
    let md = lnet_api::Md { eq: Some(eq), ..node.md(&memory(8), MdOptions::empty(), 1) };
    assert_eq!(errno(node.engine.md_bind(md, Unlink::Auto)), Errno::ENOENT);
}

#[test]
fn of_several_queues_the_first_that_has_an_event_gives_it() {
    let (_network, node) = one_node();
    let eqs = [(); 3].map(|()| node.engine.eq_alloc_polled(4, None).unwrap());
    event(&node, eqs[2], 20);
    event(&node, eqs[1], 10);
    event(&node, eqs[1], 11);
    let order: Vec<_> = std::iter::from_fn(|| node.engine.eq_poll(&eqs).unwrap())
        .map(|polled| (polled.eq, polled.event.user_ptr))
        .collect();
    assert_eq!(order, [(eqs[1], 10), (eqs[1], 11), (eqs[2], 20)]);
}

/// Each partition counts the users of a queue.
// Covers: S-311
#[test]
fn a_queue_is_in_use_whatever_partition_its_users_are_in() {
    let (_network, node) = one_node();
    for here in 0..PARTITIONS {
        for posted in [false, true] {
            let eq = node.engine.eq_alloc_polled(4, None).unwrap();
            let options = if posted { MdOptions::OP_PUT } else { MdOptions::empty() };
            let md = lnet_api::Md { eq: Some(eq), ..node.md(&memory(8), options, 1) };
            let md = with_partition(here, || {
                if !posted {
                    return node.engine.md_bind(md, Unlink::Auto).unwrap();
                }
                let me = lnet_api::MeSpec { position: lnet_api::Position::Local, ..spec(1) };
                node.engine.md_attach(node.engine.me_attach(&me).unwrap(), md, Unlink::Auto).unwrap()
            });
            assert_eq!(errno(node.engine.eq_free(eq)), Errno::EBUSY);
            node.engine.md_unlink(md).unwrap();
            assert!(poll(&node, eq).is_some());
            node.engine.eq_free(eq).unwrap();
        }
    }
}

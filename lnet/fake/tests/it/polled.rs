//! Polled event queues (S-311).

use lnet_api::{EQ_COUNT_MAX, Polled};
use lnet_fake::ScriptedEvent;

use super::*;

#[test]
fn a_polled_queue_keeps_the_last_events_and_tells_how_many_were_missed() {
    let rig = Rig::new();
    let eq = rig.lnet.eq_alloc_polled(3, None).unwrap();
    let md = Md { eq: Some(eq), ..rig.md(64, MdOptions::OP_PUT, 9) };
    let md = rig.lnet.md_attach(rig.post(), md, Unlink::Auto).unwrap();
    let poll = || rig.lnet.eq_poll(&[eq]).unwrap();
    assert_eq!(poll(), None);
    let event = rig.lnet.inject(md, ScriptedEvent::put().length(1));
    assert_eq!(poll(), Some(Polled { eq, event, missed: 0 }));
    for _ in 0..6 {
        rig.lnet.inject(md, ScriptedEvent::put().length(1));
    }
    // The queue of three events keeps four: the count is rounded up.
    let polled: Vec<(u64, u64)> =
        std::iter::from_fn(poll).map(|polled| (polled.event.offset, polled.missed)).collect();
    assert_eq!(polled, [(3, 2), (4, 0), (5, 0), (6, 0)]);
}

#[test]
fn a_polled_queue_may_have_a_handler_too() {
    let rig = Rig::new();
    let eq = rig.lnet.eq_alloc_polled(1, Some(rig.log.clone())).unwrap();
    let md = rig.lnet.md_bind(Md { eq: Some(eq), ..rig.md(8, MdOptions::empty(), 1) }, Unlink::Auto).unwrap();
    rig.lnet.md_unlink(md).unwrap();
    let expected = [(EventKind::Unlink, Ok(()), true)];
    assert_eq!(rig.brief(), expected);
    assert_eq!(rig.log.wakes(), 1);
    assert_eq!(rig.lnet.eq_poll(&[eq]).unwrap().unwrap().event.kind, EventKind::Unlink);
}

#[test]
fn the_first_queue_with_an_event_is_taken() {
    let rig = Rig::new();
    let queues = [(); 3].map(|()| rig.lnet.eq_alloc_polled(1, None).unwrap());
    for eq in [queues[2], queues[1]] {
        let md = rig.lnet.md_bind(Md { eq: Some(eq), ..rig.md(8, MdOptions::empty(), 1) }, Unlink::Auto);
        rig.lnet.md_unlink(md.unwrap()).unwrap();
    }
    let taken = [(); 3].map(|()| rig.lnet.eq_poll(&queues).unwrap().map(|polled| polled.eq));
    assert_eq!(taken, [Some(queues[1]), Some(queues[2]), None]);
}

#[test]
fn queues_that_cannot_be_polled_are_refused() {
    let rig = Rig::new();
    for count in [0, EQ_COUNT_MAX + 1] {
        assert_eq!(errno(rig.lnet.eq_alloc_polled(count, None)), Errno::EINVAL);
    }
    assert!(rig.lnet.eq_alloc_polled(EQ_COUNT_MAX, None).is_ok());
    assert_eq!(errno(rig.lnet.eq_poll(&[rig.eq])), Errno::EINVAL);
    assert_eq!(errno(rig.lnet.eq_poll(&[EqHandle(1000)])), Errno::ENOENT);
}

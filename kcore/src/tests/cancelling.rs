//! A cancel in a moment that only threads can hit (S-414).

use super::*;

// A cancel between `md_attach` and the moment its handle is known: the submitting thread does the unlink.
#[test]
fn a_cancel_before_the_md_is_known_is_done_by_who_learns_of_it() {
    let rig = Rig::new();
    let buffer = rig.tm.domain().buffers.find(rig.buffer).unwrap();
    let new = crate::shared::NewOp {
        queue: Queue::PassiveBulkReceive,
        buffer: buffer.clone(),
        cookie: COOKIE,
        events: 1,
        started_ns: 0,
        counter: None,
    };
    let entered = rig.tm.shared().enter(new).unwrap();
    assert_eq!(rig.tm.shared().cancel(&buffer, COOKIE), Ok(None));
    assert!(rig.tm.shared().set_md(entered.key, MdHandle(77)), "it is to be unlinked");
    assert!(rig.tm.shared().withdraw(entered.key));
}

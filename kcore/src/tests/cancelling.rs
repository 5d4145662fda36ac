//! A cancel at a moment that only concurrent threads can hit (S-414).

use nlx_core::DescriptorForm;

use super::*;
use crate::lnet_tm::Naming;

// A cancel between `md_attach` and the moment its handle is stored: the submitting thread does the
// unlink.
// Covers: S-414
#[test]
fn a_cancel_before_the_md_is_known_is_done_when_it_is() {
    let rig = Rig::new();
    let buffer = rig.tm.domain().buffers.find(rig.buffer).unwrap();
    let operation = Operation { buffer: rig.buffer, cookie: COOKIE, kind: OperationKind::PassiveReceive };
    let naming = Naming::Here(DescriptorForm::Extended);
    let (key, _) = rig.tm.shared().enter(&operation, buffer.clone(), naming, 0).unwrap();
    assert_eq!(rig.tm.shared().cancel(&buffer, COOKIE), Ok(None));
    assert!(rig.tm.shared().set_md(key, MdHandle(77)), "it is to be unlinked");
    assert!(rig.tm.shared().withdraw(key));
}

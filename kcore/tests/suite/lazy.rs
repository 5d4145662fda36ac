//! Lazy portals, as kcore requests them of LNet (S-109).

use lnet_fake::Call;
use nlx_core::{Core, CoreTm, TmOptions};
use nlx_kcore::Kcore;

use super::bed;
use crate::bed::*;

const OTHER_PORTAL: u32 = PORTAL + 1;

fn begin(core: &Kcore, portal: u32, lazy: bool) -> Box<dyn CoreTm> {
    let options = TmOptions::default().lazy(lazy);
    core.tm_start(&start(&format!("{OWN_NID}:12345:{portal}:*")), &options).unwrap()
}

/// Returns the changes of portals since the last call.
fn changes<W: World>(bed: &Bed<W>) -> Vec<(u32, bool)> {
    let change =
        |call| if let Call::SetLazy { portal, lazy } = call { Some((portal.get(), lazy)) } else { None };
    bed.spy.take_calls().into_iter().filter_map(change).collect()
}

/// Whichever machine ends first, however it ends, and whatever domain it belongs to.
#[test]
fn a_portal_is_lazy_while_one_that_wants_it_lives() {
    let bed = bed();
    let second = Kcore::new(bed.spy.clone(), bed.drive.clone());
    let lazy = [begin(&bed.core, PORTAL, true), begin(&second, PORTAL, true)];
    assert_eq!(changes(&bed), [(PORTAL, true)]);
    let others = [begin(&second, PORTAL, false), begin(&bed.core, OTHER_PORTAL, true)];
    assert_eq!(changes(&bed), [(OTHER_PORTAL, true)]);
    let [first, last] = lazy;
    first.stop().unwrap();
    first.stop().unwrap();
    drop(first);
    assert_eq!(changes(&bed), []);
    drop(last);
    assert_eq!(changes(&bed), [(PORTAL, false)]);
    drop(others);
    assert_eq!(changes(&bed), [(OTHER_PORTAL, false)]);
    begin(&second, PORTAL, true).stop().unwrap();
    assert_eq!(changes(&bed), [(PORTAL, true), (PORTAL, false)]);
}

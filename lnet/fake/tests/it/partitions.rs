//! Events delivered on the threads of CPU partitions (S-308, S-311).

use std::thread::ThreadId;

use lnet_cpt::CptTable;
use lnet_fake::events::on_both;
use lnet_fake::{CallKind, ScriptedEvent};
use parking_lot::Mutex;

use super::*;

/// The thread and the partition of each event and each wake-up.
type Places = Arc<Mutex<Vec<(ThreadId, Option<usize>)>>>;

fn rig(partitions: usize) -> (Rig, Places) {
    let lnet = FakeLnet::with_partitions(&["10.0.0.1@tcp", "0@lo"], partitions);
    let table = CptTable::virtual_parts(partitions).unwrap();
    let places = Places::default();
    let (table, noted) = (Arc::new(table), places.clone());
    let note = move || noted.lock().push((std::thread::current().id(), table.current(true)));
    let noting = note.clone();
    let eq = lnet.eq_alloc(on_both(move |_| noting(), note)).unwrap();
    (Rig { lnet, log: EventLog::new(), eq }, places)
}

// Covers: S-7
#[test]
fn what_is_injected_comes_on_a_thread_of_the_peers_partition() {
    for partitions in [1, 2, 4] {
        let (rig, places) = rig(partitions);
        let md = rig.expect(MdOptions::OP_PUT, 16);
        for last in 2..10 {
            let from: ProcessId = format!("12345-10.0.0.{last}@tcp").parse().unwrap();
            rig.lnet.inject(md, ScriptedEvent::put().from(from).length(1));
            let noted = std::mem::take(&mut *places.lock());
            let partition = from.nid.cpt_of(partitions);
            assert_eq!(noted.iter().map(|place| place.1).collect::<Vec<_>>(), [Some(partition); 2]);
            assert!(noted.iter().all(|place| place.0 != std::thread::current().id()));
        }
    }
}

#[test]
fn what_completes_inside_a_call_comes_on_the_callers_thread() {
    let (rig, places) = rig(2);
    rig.lnet.complete_inside(CallKind::Put, [ScriptedEvent::send()]);
    rig.put(rig.bind(1), AckRequest::NoAck).unwrap();
    rig.lnet.on_put(|_, _| lnet_fake::Answer::Done(()));
    rig.put(rig.bind(1), AckRequest::NoAck).unwrap();
    rig.lnet.md_unlink(rig.expect(MdOptions::OP_PUT, 1)).unwrap();
    let here = std::thread::current().id();
    assert_eq!(places.lock().iter().map(|place| place.0).collect::<Vec<_>>(), [here; 6]);
}

#[test]
fn what_cannot_happen_panics_where_it_was_injected() {
    let (rig, _) = rig(4);
    let text = panic_of(|| rig.lnet.inject(rig.bind(1), ScriptedEvent::send()));
    assert!(text.contains("no PUT or GET of it is still to be sent"), "{text}");
    let text = panic_of(|| FakeLnet::with_partitions(&["10.0.0.1@tcp"], 0));
    assert!(text.contains("at least one partition"), "{text}");
}

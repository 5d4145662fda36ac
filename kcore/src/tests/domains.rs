//! Several domains of one node, and several nodes of one process (S-404).

use super::*;

fn begin(core: &Kcore, text: &str) -> Result<KcoreTm, Errno> {
    core.start_machine(&start(text), &TmOptions::default().events_max(1)).map_err(|error| error.errno())
}

/// Returns domains of one node.
fn domains<const COUNT: usize>() -> [Arc<Kcore>; COUNT] {
    let (lnet, drive) = (FakeLnet::new(&["10.0.0.1@tcp", "0@lo"]), FakeDrive::new());
    std::array::from_fn(|_| Kcore::new(lnet.clone(), drive.clone()))
}

// Covers: S-404, MT-59, MT-60, MT-209
#[test]
fn dynamic_ids_fall_across_the_domains_of_a_node() {
    let cores = domains::<3>();
    let wanted = "10.0.0.1@tcp:12345:30:*";
    let tms = cores.each_ref().map(|core| begin(core, wanted).unwrap());
    assert_eq!(tms.each_ref().map(|tm| tm.address().tmid.get()), [4095, 4094, 4093]);
    let middle = tms[1].address();
    tms[1].stop().unwrap();
    // The freed id is assigned to a domain other than its previous one.
    assert_eq!(begin(&cores[2], wanted).unwrap().address(), middle);
}

// Covers: MT-221
#[test]
fn a_fixed_address_is_one_domains() {
    let [first, second] = domains();
    let tm = begin(&first, "0@lo:12345:30:101").unwrap();
    assert_eq!(begin(&second, "0@lo:12345:30:101").err(), Some(Errno::EADDRINUSE));
    for other in ["0@lo:12345:31:101", "10.0.0.1@tcp:12345:30:101", "0@lo:12345:30:102"] {
        begin(&second, other).unwrap();
    }
    drop(tm);
    begin(&second, "0@lo:12345:30:101").unwrap();
}

/// Two domains start 4,095 transfer machines on one portal by turns; the next one is refused.
// Covers: MT-222
#[test]
fn all_ids_of_a_portal_are_given_across_domains_and_then_none() {
    let cores = domains::<2>();
    let wanted = "10.0.0.1@tcp:12345:30:*";
    let tms: Vec<_> = (0..4095).map(|number| begin(&cores[number % 2], wanted).unwrap()).collect();
    let ids = tms.iter().map(|tm| tm.address().tmid.get());
    assert!(ids.eq((1..=4095).rev()), "each once, and never 0");
    for core in &cores {
        assert_eq!(begin(core, wanted).err(), Some(Errno::EADDRNOTAVAIL));
        begin(core, "10.0.0.1@tcp:12345:31:*").unwrap();
    }
    tms[1000].stop().unwrap();
    assert_eq!(begin(&cores[1], wanted).unwrap().address(), tms[1000].address());
}

#[test]
fn an_address_outlives_the_domain_it_was_started_in() {
    let [first, second] = domains();
    let tm = begin(&first, "0@lo:12345:30:*").unwrap();
    drop(first);
    assert_eq!(begin(&second, &tm.address().to_string()).err(), Some(Errno::EADDRINUSE));
}

/// Objects that LNet does not release keep their address, even if the node has no domain any more.
// Covers: S-404
#[test]
fn what_lnet_holds_keeps_its_address_from_the_next_domain() {
    let Rig { lnet, drive, core, tm, buffer, .. } = Rig::new();
    let address = tm.address().to_string();
    tm.submit(&Operation { buffer, cookie: COOKIE, kind: RECEIVE }).unwrap();
    lnet.set_busy(true);
    drop((tm, core));
    let next = Kcore::new(lnet.clone(), drive);
    assert_eq!(begin(&next, &address).err(), Some(Errno::EADDRINUSE));
}

/// Each node has its own 0@lo.
// Covers: S-404
#[test]
fn two_nodes_in_one_process_do_not_meet() {
    let [first, second] = [(); 2].map(|()| domains::<1>());
    let tms = [&first[0], &second[0]].map(|core| begin(core, "0@lo:12345:30:*").unwrap());
    assert_eq!(tms.each_ref().map(|tm| tm.address().tmid), [TmId::MAX; 2]);
}

/// Threads of several domains start machines at once, and no id is assigned twice.
// Covers: S-404
#[test]
fn domains_that_start_at_once_get_different_ids() {
    let cores = domains::<4>();
    let mut ids: Vec<u32> = std::thread::scope(|scope| {
        let threads = cores.each_ref().map(|core| {
            scope.spawn(move || {
                let tms: Vec<_> = (0..200).map(|_| begin(core, "0@lo:12345:30:*").unwrap()).collect();
                (tms.iter().map(|tm| tm.address().tmid.get()).collect::<Vec<_>>(), tms)
            })
        });
        // All machines run until the last id is assigned.
        let given = threads.map(|thread| thread.join().unwrap());
        given.iter().flat_map(|(ids, _)| ids.clone()).collect()
    });
    ids.sort_unstable();
    assert!(ids.into_iter().eq(4095 - 799..=4095));
}

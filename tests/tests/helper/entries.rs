//! Entries of the submission ring with each field wrong.

use nix::errno::Errno;
use nlx_testkit::Rng;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{Address, Entry, queue};
use nlx_tests::client::{Arena, Client, TIME_LIMIT, Tm};

use crate::scene::{Helper, Work};

/// The size of each buffer in bytes.
const BYTES: u64 = 4096;

/// A client with buffers 0 to 3, the last of which receives, and a transfer machine.
struct Outfit {
    client: Client,
    _arena: Arena,
    tm: Tm,
}

impl Outfit {
    fn new(helper: &Helper) -> Outfit {
        let mut client = helper.client("entries");
        let arena = client.arena(1 << 20, false).unwrap();
        let mut tm = client.start_tm(helper.nid(), PORTAL, 1024).unwrap();
        for place in 0..4 {
            let register = Entry::register(handle(place), arena.number, place * BYTES, BYTES);
            client.submit(&register).unwrap();
        }
        let receive = Entry::receive(tm.handle, handle(3), 3, BYTES, 1);
        client.operate(&mut tm, &receive).unwrap();
        client.sync().unwrap();
        Outfit { client, _arena: arena, tm }
    }
}

/// Returns a valid entry of each kind.
fn right(tm: &Tm) -> Vec<Entry> {
    let (tm, own) = (tm.handle, tm.address);
    let there = |queue| Address { tmid: own.tmid ^ 1, ..own }.descriptor(9, queue, BYTES);
    vec![
        Entry::receive(tm, handle(0), 1, BYTES, 1),
        Entry::send(tm, handle(0), 1, 64, &own),
        Entry::passive(queue::PASSIVE_RECEIVE, tm, handle(0), 1, 5, BYTES),
        Entry::passive(queue::PASSIVE_SEND, tm, handle(0), 1, 5, BYTES),
        Entry::active(queue::ACTIVE_RECEIVE, tm, handle(0), 1, BYTES, &there(queue::PASSIVE_SEND)),
        Entry::active(queue::ACTIVE_SEND, tm, handle(0), 1, BYTES, &there(queue::PASSIVE_RECEIVE)),
        Entry::cancel(tm, handle(0), 1),
        Entry::register(handle(9), 0, 0, BYTES),
        Entry::deregister(handle(0)),
    ]
}

/// The name of a fault, and the function that makes an entry have it.
type NamedFault = (String, Box<dyn Fn(&mut Entry)>);

/// The name of a fault, and the function that makes an entry with it.
type FaultyEntry = (&'static str, fn(&Outfit) -> Entry);

/// An entry that cannot be parsed ends only its client's connection.
// Covers: MT-219, MT-232
#[test]
fn entries_that_end_the_connection() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut cases: Vec<NamedFault> = vec![
        ("kind 0".into(), Box::new(|entry| entry.kind = 0)),
        ("kind 5".into(), Box::new(|entry| entry.kind = 5)),
        ("any kind".into(), Box::new(|entry| entry.kind = u32::MAX)),
        ("a queue that is none".into(), Box::new(|entry| entry.queue = 6)),
        ("any queue".into(), Box::new(|entry| entry.queue = u32::MAX)),
        ("what is reserved".into(), Box::new(|entry| entry.reserved = 1)),
        ("a target longer than its room".into(), Box::new(|entry| entry.target_length = Some(57))),
        ("a target of any length".into(), Box::new(|entry| entry.target_length = Some(u32::MAX))),
        ("a target of a strange length".into(), Box::new(|entry| entry.target_length = Some(47))),
    ];
    for value in [1 << 52, u64::MAX] {
        cases.push((format!("counter {value:#x}"), Box::new(move |entry| entry.counter_or_offset = value)));
    }
    let kinds = {
        let outfit = Outfit::new(&helper);
        right(&outfit.tm).len()
    };
    for (what, spoil) in &cases {
        for number in 0..kinds {
            let mut outfit = Outfit::new(&helper);
            let mut entry = right(&outfit.tm).swap_remove(number);
            spoil(&mut entry);
            outfit.client.operate(&mut outfit.tm, &entry).unwrap();
            assert!(outfit.client.socket.ends(TIME_LIMIT), "{what}: {entry:?} is taken");
        }
    }
    let spoilt: [FaultyEntry; 6] = [
        ("no counter", |o| Entry::passive(queue::PASSIVE_RECEIVE, o.tm.handle, handle(0), 1, 0, 1)),
        ("a counter too many", |o| Entry {
            counter_or_offset: 1,
            ..Entry::receive(o.tm.handle, handle(0), 1, 1, 1)
        }),
        ("to an unused id", |o| {
            Entry::send(o.tm.handle, handle(0), 1, 1, &Address { tmid: 0, ..o.tm.address })
        }),
        ("to any node", |o| {
            let mut to = o.tm.address;
            to.nid[1] = 0xff;
            Entry::send(o.tm.handle, handle(0), 1, 1, &to)
        }),
        ("a name without generation", |_| Entry::register(7, 0, 0, 64)),
        ("a name beyond all limits", |_| Entry::register(1 << 32 | 1 << 20, 0, 0, 64)),
    ];
    for (what, spoil) in spoilt {
        let mut outfit = Outfit::new(&helper);
        let entry = spoil(&outfit);
        outfit.client.operate(&mut outfit.tm, &entry).unwrap();
        assert!(outfit.client.socket.ends(TIME_LIMIT), "{what}: {entry:?} is taken");
    }
    work.advance(1);
    work.stop();
    helper.is_clean();
}

/// Operations that can be parsed but not executed end with an event that has the reason and returns
/// the reserved resources; the client continues.
// Covers: MT-232
#[test]
fn operations_that_are_refused() {
    use Errno::{EBUSY, EFBIG, EINVAL, ENOENT, EPERM};
    let helper = Helper::start();
    let mut outfit = Outfit::new(&helper);
    let (tm, own) = (outfit.tm.handle, outfit.tm.address);
    let there = Address { tmid: own.tmid ^ 1, ..own };
    let (take, give) = (queue::PASSIVE_RECEIVE, queue::PASSIVE_SEND);
    let mut corrupt = there.descriptor(9, give, BYTES);
    corrupt[0] ^= 1;
    let table = [
        (Entry::receive(tm, handle(77), 1, 1, 1), &[ENOENT][..]),
        (Entry::receive(tm, handle(0) | 1 << 33, 1, 1, 1), &[ENOENT]),
        (Entry::receive(tm, handle(3), 1, 1, 1), &[EBUSY]),
        (Entry::receive(tm, handle(0), 1, 0, 1), &[EINVAL]),
        (Entry::receive(tm, handle(0), 1, BYTES + 1, 1), &[EINVAL, EFBIG]),
        (Entry::receive(tm, handle(0), 1, u64::MAX, 1), &[EINVAL, EFBIG]),
        (Entry::send(tm, handle(0), 1, 0, &own), &[EINVAL]),
        (Entry::send(tm, handle(0), 1, BYTES + 1, &own), &[EINVAL, EFBIG]),
        (Entry::send(tm, handle(0), 1, u64::MAX, &own), &[EINVAL, EFBIG]),
        (Entry::send(tm, handle(0), 1, 1, &Address { portal: 64, ..own }), &[EINVAL]),
        (Entry::send(tm, handle(0), 1, 1, &Address { portal: 0, ..own }), &[EINVAL]),
        (Entry::passive(give, tm, handle(0), 1, 5, 0), &[EINVAL]),
        (Entry::passive(give, tm, handle(0), 1, 5, BYTES + 1), &[EINVAL, EFBIG]),
        (Entry::active(queue::ACTIVE_RECEIVE, tm, handle(0), 1, 0, &corrupt), &[EINVAL]),
        (Entry::active(queue::ACTIVE_RECEIVE, tm, handle(0), 1, 0, &[0; 48]), &[EINVAL]),
        (Entry::active(queue::ACTIVE_RECEIVE, tm, handle(0), 1, 0, &[0xff; 56]), &[EINVAL]),
        (Entry::active(queue::ACTIVE_RECEIVE, tm, handle(0), 1, 0, &there.descriptor(9, take, 64)), &[EPERM]),
        (Entry::active(queue::ACTIVE_SEND, tm, handle(0), 1, 64, &there.descriptor(9, give, 64)), &[EPERM]),
        (
            Entry::active(queue::ACTIVE_RECEIVE, tm, handle(0), 1, 0, &there.descriptor(9, give, BYTES + 1)),
            &[EFBIG],
        ),
        (Entry::active(queue::ACTIVE_SEND, tm, handle(0), 1, 65, &there.descriptor(9, take, 64)), &[EFBIG]),
        (Entry::active(queue::ACTIVE_SEND, tm, handle(0), 1, 0, &there.descriptor(9, take, 64)), &[EINVAL]),
    ];
    for (entry, errnos) in table {
        outfit.client.operate(&mut outfit.tm, &entry).unwrap();
        let event = outfit.client.event(&mut outfit.tm).unwrap_or_else(|errno| panic!("{entry:?}: {errno}"));
        let errno = Errno::from_raw(-event.status);
        assert!(event.status < 0 && errnos.contains(&errno), "{entry:?}: {event:?}, not {errnos:?}");
        assert_eq!((event.buffer, event.cookie, event.last), (entry.buffer, entry.cookie, true), "{event:?}");
        assert_eq!(event.released, 1, "{event:?}");
    }
    // Cancelling an operation that does not exist has no effect.
    for (buffer, cookie) in [(0, 1), (3, 4), (77, 1)] {
        outfit.client.submit(&Entry::cancel(tm, handle(buffer), cookie)).unwrap();
    }
    // Buffer 0 is still free, and buffer 3 still receives.
    let send = Entry::send(tm, handle(0), 8, 64, &own);
    outfit.client.operate(&mut outfit.tm, &send).unwrap();
    let mut came = [0; 2].map(|_| outfit.client.event(&mut outfit.tm).unwrap());
    came.sort_by_key(|event| event.cookie);
    assert_eq!(
        came.each_ref().map(|event| (event.cookie, event.status, event.length)),
        [(3, 0, 64), (8, 0, 64)]
    );
    drop(outfit);
    helper.is_clean();
}

/// Entries without a possible reply, which a correct client never sends, have no effect: another
/// client's or no transfer machine, a handle in use, memory beyond the arena, no buffer, a buffer
/// in flight.
// Covers: MT-232, MT-233, MT-235
#[test]
fn entries_that_do_nothing() {
    let helper = Helper::start();
    let mut outfit = Outfit::new(&helper);
    let tm = outfit.tm.handle;
    for entry in [
        Entry::receive(tm ^ 1 << 40, handle(0), 1, 1, 1),
        Entry::receive(u64::MAX, handle(0), 1, 1, 1),
        Entry::cancel(tm ^ 1 << 40, handle(3), 3),
        Entry::register(handle(0), 0, 0, 64),
        Entry::register(handle(9), 0, (1 << 20) - 63, 64),
        Entry::register(handle(9), 77, 0, 64),
        Entry::deregister(handle(77)),
        Entry::deregister(handle(0) | 1 << 33),
        Entry::deregister(handle(3)),
    ] {
        let refused = helper.number("/list/0/totals/refused");
        outfit.client.submit(&entry).unwrap();
        outfit.client.sync().unwrap();
        assert!(outfit.tm.events.take(&mut outfit.client.points).is_none(), "{entry:?}");
        let counted = helper.number("/list/0/totals/refused") - refused;
        assert!(counted == 1 || entry.kind == 2, "{entry:?} is not counted");
    }
    assert_eq!([helper.number("/list/0/buffers"), helper.number("/list/0/operations")], [4, 1]);
}

/// Entries of random bytes and entries with random words, in an otherwise valid ring.
// Covers: MT-219
#[test]
fn random_entries() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let mut random = Rng::new(7);
    for _ in 0..300 {
        let mut outfit = Outfit::new(&helper);
        outfit.client.patience = TIME_LIMIT;
        for _ in 0..10 {
            let entries = right(&outfit.tm);
            let mut bytes = entries[random.index(entries.len())].bytes();
            for _ in 0..random.below(3) {
                let at = random.below(15) as usize * 8;
                let word =
                    [random.next_u64(), random.below(300), 1 << random.below(64)][random.below(3) as usize];
                bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            // Room for the events that it may produce, if it is valid.
            outfit.tm.events.provision(4, &mut outfit.client.points);
            if outfit.client.submit_bytes(&bytes).is_err() || outfit.client.sync().is_err() {
                break;
            }
        }
    }
    work.advance(1);
    work.stop();
    helper.is_clean();
}

//! The entries of a client's ring are carried out in slices: limited units of work, and limited
//! time.

use lnet_fake::{Answer, FakeDrive, FakeLnet};
use nlx_core::{BufferHandle, Limits, OperationKind};
use nlx_helper::{BULK_UNITS_MAX, Drained, Host, HostConfig, SLICE};

use crate::client::{Client, ROOT, Tm, operation};
use crate::worlds::scripted_client;

const ADDRESS: &str = "10.0.0.1@tcp:12345:40:*";

/// Units of a turn.
const SHARE: usize = 64;

/// Registers `count` buffers, the first one at this index.
fn buffers(client: &mut Client, arena: u32, first: u32, count: u32) -> Vec<BufferHandle> {
    let bytes = Limits::LNET.buffer_bytes_max as u64;
    (first..first + count).map(|place| client.register(place, arena, 0, bytes)).collect()
}

/// Submits a message of this length from each of the buffers.
fn send(client: &mut Client, tm: &mut Tm, buffers: &[BufferHandle], length: u64) {
    let to = "10.0.0.9@tcp:12345:40:9".parse().unwrap();
    for &buffer in buffers {
        tm.events.provision(1).unwrap();
        client.push(&operation(tm, buffer, OperationKind::Send { length, to }, 0));
    }
}

fn slice(client: &mut Client) -> Drained {
    client.session.drain_slice(SHARE).unwrap()
}

/// An entry that moves a whole buffer counts like many small entries. Impossible lengths
/// count as the longest possible one.
#[test]
fn an_entry_is_as_much_work_as_the_bytes_that_it_moves() {
    let (_lnet, _host, mut client) = scripted_client(ROOT);
    let bulk = Limits::LNET.buffer_bytes_max as u64;
    let arena = client.arena(bulk).handle;
    let mut tm = client.start(ADDRESS, 100);
    let whole = 1 + BULK_UNITS_MAX;
    let half = 1 + BULK_UNITS_MAX / 2;
    let cases = [(8, 1), (bulk / 2, half), (bulk, whole), (u64::MAX, whole)];
    for (place, (length, units)) in (0..).zip(cases) {
        let buffer = buffers(&mut client, arena, place, 1);
        client.drain().unwrap();
        send(&mut client, &mut tm, &buffer, length);
        assert_eq!(slice(&mut client), Drained { entries: 1, units, is_over: true }, "{length}");
    }
    let buffers = buffers(&mut client, arena, 10, 3);
    assert_eq!(slice(&mut client), Drained { entries: 3, units: 3, is_over: true });
    send(&mut client, &mut tm, &buffers, bulk);
    assert_eq!(slice(&mut client), Drained { entries: 2, units: 2 * whole, is_over: false });
    assert_eq!(slice(&mut client), Drained { entries: 1, units: whole, is_over: true });
    assert_eq!(slice(&mut client), Drained { entries: 0, units: 0, is_over: true });
}

/// An entry that takes long, for instance because its memory is removed, ends the turn: the whole
/// share is used up.
#[test]
fn a_slice_is_over_when_it_has_lasted_long_enough() {
    let (lnet, drive) = (FakeLnet::new(&["10.0.0.1@tcp"]), FakeDrive::new());
    let host = Host::new(lnet.clone(), drive.clone(), HostConfig::default());
    lnet.on_put(move |_, _| {
        drive.clock().advance_ns(SLICE.as_nanos() as u64 / 2);
        Answer::Hold
    });
    let mut client = Client::connect(&host, ROOT);
    let arena = client.arena(Limits::LNET.buffer_bytes_max as u64).handle;
    let mut tm = client.start(ADDRESS, 100);
    let buffers = buffers(&mut client, arena, 0, 5);
    client.drain().unwrap();
    send(&mut client, &mut tm, &buffers, 8);
    for _ in 0..2 {
        assert_eq!(slice(&mut client), Drained { entries: 2, units: SHARE, is_over: false });
    }
    assert_eq!(slice(&mut client), Drained { entries: 1, units: 1, is_over: true });
}

//! A node that connects to the stranger, and the stranger's answers.

use lnet_api::{Errno, EventKind};
use lnet_o2iblnd::fabric::ConnectOptions;
use nlx_testkit::buffers::{filled, whole};
use nlx_testkit::lnds::S;

use super::bytes::{CONNACK, NOOP, changed, message, params};
use super::stranger::{Line, Scene};

const OPTIONS: ConnectOptions = ConnectOptions { retry_count: 5, rnr_retry_count: 6 };

/// Makes the node send a message that fails after the stranger's answer; returns its error.
fn fails(scene: &Scene, answer: impl FnOnce(&Scene, &mut Line)) -> Errno {
    let listener = scene.listen();
    let put = scene.victim().put_unasked(scene.id(), &filled(whole(5000), 1), 7);
    let mut line = scene.asked();
    line.receive();
    answer(scene, &mut line);
    let outcome = || scene.victim().outcome(EventKind::Send, put);
    scene.until(|| {
        while scene.channel.next().is_some() {}
        outcome().is_some()
    });
    drop((line, listener));
    let errno = outcome().unwrap().unwrap_err();
    assert!(scene.victim().lnd.last_failure(scene.id().nid).is_some());
    scene.victim().take();
    // After a failure the node does not try the peer again for a while.
    scene.later(60 * S);
    errno
}

/// A reject record that is invalid fails the attempt; the honest peer is still served.
#[test]
fn wrong_rejections() {
    let scene = Scene::new();
    for record in [vec![0xff; 24], vec![1; 3], vec![0x91, 0x1b, 0xe9, 0x0b, 0x12, 0, 77, 0]] {
        fails(&scene, |_, line| line.endpoint.reject(&record));
    }
    // The reason FATAL.
    fails(&scene, |_, line| line.endpoint.reject(&[0x91, 0x1b, 0xe9, 0x0b, 0x12, 0, 3, 0]));
    scene.end();
}

/// A CONNACK that is wrong in each field ends its connection.
#[test]
fn wrong_acceptances() {
    let scene = Scene::new();
    let stamp = stamp_of_victim(&scene);
    let other = super::bytes::End { stamp, ..scene.other() };
    let right = message(CONNACK, scene.own(), other, &params(8, 257, 4096));
    let wrong: [(&str, Vec<u8>); 9] = [
        ("nothing", Vec::new()),
        ("magic", changed(&right, 0, &[0])),
        ("version", changed(&right, 4, &[0x13])),
        ("type", changed(&right, 6, &[NOOP])),
        ("to another node", changed(&right, 32, &[9])),
        ("to another life", changed(&right, 40, &[9; 8])),
        ("deeper than asked for", changed(&right, 48, &[9])),
        ("more fragments than asked for", changed(&right, 50, &[2, 1])),
        ("larger messages", changed(&right, 52, &8192u32.to_le_bytes())),
    ];
    for (what, data) in &wrong {
        let errno = fails(&scene, |_, line| line.endpoint.accept(data, &OPTIONS).unwrap());
        assert_ne!(errno, Errno::ETIMEDOUT, "{what}");
    }
    scene.end();
}

/// Returns the node's incarnation, which it sends to each peer.
fn stamp_of_victim(scene: &Scene) -> u64 {
    let (line, other) = scene.connected();
    line.endpoint.disconnect();
    scene.until(|| scene.victim().lnd.conn_stats().connections == 1);
    other.stamp
}

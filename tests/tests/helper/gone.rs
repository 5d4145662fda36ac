//! The helper ends: killed, or asked to.

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nlx_tests::client::pair::{PORTAL, handle};
use nlx_tests::client::wire::{self, Entry, kind};

use crate::scene::{Helper, Other, Silence, Work, exists};

/// S-6: the helper is killed while clients wait, have everything in flight and ask for things: each wait and each request
/// ends; the next helper takes the socket over though its name is still there, and all can begin anew.
#[test]
fn a_helper_that_is_killed() {
    let mut helper = Helper::start();
    let silence = Silence::new();
    for life in 0..3 {
        let waiting: Vec<_> = (0..4).map(|_| Other::start("wait", &helper, &[])).collect();
        let mut client = helper.client("asks");
        let arena = client.arena(1 << 20, false).unwrap();
        let mut tm = client.start_tm(helper.nid(), PORTAL, 16).unwrap();
        client.submit(&Entry::register(handle(0), arena.number, 0, 4096)).unwrap();
        let receive = Entry::receive(tm.handle, handle(0), 1, 1, 1);
        client.operate(&mut tm, &receive).unwrap();
        client.sync().unwrap();
        let hold = Other::start("hold", &helper, &[&silence.address.to_string()]);
        helper.signal(Signal::SIGKILL);
        assert!(!helper.ends());
        assert!(exists(&helper.socket()), "a helper that is killed leaves its socket's name");
        for other in waiting {
            assert_eq!(other.line(), "ended ENOTCONN");
        }
        assert_eq!(client.event(&mut tm).unwrap_err(), Errno::ENOTCONN);
        assert!(client.request(kind::SYNC, &[]).is_err());
        assert!(nlx_tests::client::Client::connect(&helper.socket(), "too early").is_err());
        // The memory is the client's as long as it wants to have it.
        arena.memory.write(0, &life_bytes(life));
        assert_eq!(arena.memory.read(0, 8), life_bytes(life));
        drop(hold);
        helper = helper.restart();
        let work = Work::start(&helper);
        work.advance(2);
        work.stop();
        helper.is_clean();
    }
}

fn life_bytes(life: u64) -> [u8; 8] {
    life.to_ne_bytes()
}

/// S-6: asked to end, the helper lets what is under way come to its end, tells its clients by closing their connections, and
/// takes its socket's name away.
#[test]
fn a_helper_that_is_asked_to_end() {
    let mut helper = Helper::start();
    let silence = Silence::new();
    let waiting = Other::start("wait", &helper, &[]);
    let hold = Other::start("hold", &helper, &[&silence.address.to_string()]);
    let mut traffic = Other::start("traffic", &helper, &[&silence.address.to_string()]);
    traffic.lives();
    helper.signal(Signal::SIGTERM);
    assert!(helper.ends(), "{}", helper.log());
    assert_eq!(waiting.line(), "ended ENOTCONN");
    let last = traffic.line();
    assert!(last.starts_with("failed"), "{last}");
    drop(hold);
    assert!(!exists(&helper.socket()));
    let helper = helper.restart();
    let work = Work::start(&helper);
    work.stop();
}

/// S-6: there is one helper at a socket: a second one is refused and leaves the first alone.
#[test]
fn a_second_helper_at_the_same_socket() {
    let helper = Helper::start();
    let work = Work::start(&helper);
    let output = helper.rival();
    assert!(!output.status.success(), "two helpers at one socket");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("nlxd.sock"), "{words}");
    work.advance(2);
    let reply = helper.client("still there").request(kind::NIDS, &[]).unwrap();
    assert_eq!(reply.body[..20], wire::nid(helper.address));
    work.stop();
}

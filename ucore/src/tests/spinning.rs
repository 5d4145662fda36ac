//! The spin limit of a client's waits: for the helper, for events, and in an event loop.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use lnet_node::{Node, NodeConfig};
use nlx_core::TmOptions;
use nlx_helper::service::{ServiceConfig, ServingThreads, bind};
use nlx_helper::{Host, HostConfig};
use nlx_sync::{DEFAULT_SPIN, MAX_SPIN, Spin};
use tempfile::TempDir;

use crate::machine::UcoreTm;
use crate::{HelperOptions, Ucore};

/// A helper in this process.
struct Helper {
    directory: TempDir,
    _service: ServingThreads,
    _node: Node,
}

impl Helper {
    fn start() -> Helper {
        let directory = TempDir::new().unwrap();
        let node = Node::start(&NodeConfig::new()).unwrap();
        let host = Host::new(node.lnet(), node.drive(), HostConfig::default());
        let listener = bind(&directory.path().join("nlxd.sock")).unwrap();
        let service = ServingThreads::start(host, listener, ServiceConfig::default()).unwrap();
        Helper { directory, _service: service, _node: node }
    }

    /// Returns a client and a machine of it. Spin limits that are `None` are not set.
    fn client(&self, of_domain: Option<Duration>, of_machine: Option<Duration>) -> (Arc<Ucore>, UcoreTm) {
        let options = HelperOptions::at(self.directory.path().join("nlxd.sock"));
        let options = of_domain.into_iter().fold(options, HelperOptions::spin);
        let domain = Ucore::connect(&options).unwrap();
        let options = of_machine.into_iter().fold(TmOptions::default(), TmOptions::spin);
        let address = "0@lo:12345:41:*".parse().unwrap();
        let machine = UcoreTm::start(domain.domain.clone(), &address, &options).unwrap();
        (domain, machine)
    }
}

/// Waits for the helper have the domain's limit. Waits for events, in both ways, have the machine's,
/// or else the domain's.
#[test]
fn waits_spin_for_as_long_as_was_asked_for() {
    const ZERO: Duration = Duration::ZERO;
    const SHORT: Duration = Duration::from_micros(7);
    const LONG: Duration = Duration::from_micros(20);
    let helper = Helper::start();
    for (of_domain, of_machine, [submit, events]) in [
        (None, None, [DEFAULT_SPIN; 2]),
        (None, Some(SHORT), [DEFAULT_SPIN, SHORT]),
        (Some(LONG), None, [LONG; 2]),
        (Some(LONG), Some(SHORT), [LONG, SHORT]),
        (Some(LONG), Some(ZERO), [LONG, ZERO]),
        (Some(ZERO), None, [ZERO; 2]),
        (Some(ZERO), Some(SHORT), [ZERO, SHORT]),
    ] {
        let (domain, machine) = helper.client(of_domain, of_machine);
        let limits = [
            domain.domain.link().submit_waiter.sleeper.lock().spin_limit(),
            machine.sleeper.lock().spin_limit(),
            machine.get_loop_handle().unwrap().events.spin_limit(),
        ];
        // With one processor, nothing spins.
        let expected = [submit, events, events].map(|limit| Spin::new(limit).limit());
        assert_eq!(limits, expected, "{of_domain:?}, {of_machine:?}");
    }
}

/// A wait with a spin limit checks for events repeatedly before it sleeps. A wait without one
/// checks only before it announces that it will sleep, and afterwards.
#[test]
fn a_wait_sleeps_at_once_without_a_limit_and_spins_with_one() {
    /// More than the checks of a wait that does not spin.
    const MANY: u32 = 100;
    /// A wait that is preempted stops spinning; that many in a row are not.
    const TRIES: u32 = 100;
    let helper = Helper::start();
    // Returns the number of checks that a wait for the helper and an event loop make, each until it
    // finds news at check number `MANY`, or has slept or announced sleep; `MANY` at most.
    let looks = |limit| {
        let (domain, machine) = helper.client(Some(limit), None);
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            looks.get() >= MANY
        };
        let link = domain.domain.link();
        link.submit_waiter.sleeper.lock().ignore_load();
        let is_over = link.submit_waiter.wait(u64::MAX, look);
        let of_submit = looks.take().min(MANY);
        let event_loop = machine.get_loop_handle().unwrap();
        event_loop.events.ignore_load();
        let is_armed = event_loop.arm(None, look).unwrap();
        event_loop.disarm();
        let looks = [of_submit, looks.get().min(MANY)];
        assert_eq!([is_over, !is_armed], looks.map(|looks| looks == MANY));
        looks
    };
    // Two before the sleep, one after it is announced, one after the sleep; an event loop sleeps
    // elsewhere.
    let at_once = [4, 1];
    assert_eq!(looks(Duration::ZERO), at_once);
    if Spin::new(MAX_SPIN).limit().is_zero() {
        // There is one processor.
        return assert_eq!(looks(MAX_SPIN), at_once);
    }
    assert!((0..TRIES).any(|_| looks(MAX_SPIN) == [MANY; 2]));
}

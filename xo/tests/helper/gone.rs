//! The loss of a helper, as its clients see it.

use std::time::Duration;

use nlx::{Domain, Errno, Error, Node, NodeConfig, Op, Queue, Stop, TmEvent, TmOptions, TmState};

use super::support::Helper;

const HUNG: Option<Duration> = Some(Duration::from_secs(60));

fn machine(domain: &Domain) -> nlx::TransferMachine {
    domain.transfer_machine("0@lo:12345:41:*", TmOptions::default()).unwrap()
}

/// Waits end; operations in flight end with ENOTCONN and their buffers; calls are refused; drops
/// report no error; and the program opens its domain anew.
// Covers: S-1, S-6, MT-167
#[test]
fn a_helper_that_goes_ends_everything_of_its_clients_and_nothing_else() {
    let node = Node::start(&NodeConfig::new()).unwrap();
    let (helper, other) = (Helper::over(&node), Helper::over(&node));
    let (domain, bystander) = (helper.domain(), other.domain());
    let (tm, witness) = (machine(&domain), machine(&bystander));
    let (tx, rx) = std::sync::mpsc::channel();
    let states = tx.clone();
    let called = domain
        .machine()
        .observer(move |_, event| {
            if let TmEvent::State { state, .. } = event {
                let _ = states.send(format!("{state:?}"));
            }
        })
        .callbacks(move |_, event| drop(tx.send(format!("{:?} {}", event.status, event.buffer.is_some()))))
        .start("0@lo:12345:41:7")
        .unwrap();
    called.start(Op::receive(domain.allocate(64).unwrap())).unwrap();
    let mut written = domain.allocate(64).unwrap();
    written.write().unwrap().fill(7);
    tm.start(Op::receive(domain.allocate(64).unwrap())).unwrap();
    tm.start(Op::passive_send(domain.allocate(3 << 20).unwrap())).unwrap();

    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut ended: Vec<_> = (0..2).map(|_| tm.wait(HUNG).unwrap().expect("it hangs")).collect();
            ended.sort_by_key(|event| event.queue != Queue::MessageReceive);
            for (event, bytes) in ended.iter().zip([64, 3 << 20]) {
                assert_eq!(event.status, Err(Errno::ENOTCONN), "{event:?}");
                assert_eq!(event.buffer.as_ref().map(nlx::Buffer::len), Some(bytes));
            }
            assert_eq!(tm.wait(HUNG).unwrap_err(), Error::Ended);
        });
        drop(helper);
        waiter.join().unwrap();
    });

    let refused = tm.start(Op::receive(written)).unwrap_err();
    assert_eq!(refused.error.errno(), Errno::ENOTCONN);
    assert!(refused.buffer.read().unwrap().iter().all(|&byte| byte == 7), "its bytes stay");
    assert_eq!(domain.allocate(64 << 20).unwrap_err().errno(), Errno::ENOTCONN);
    assert_eq!(
        domain.transfer_machine("0@lo:12345:41:*", TmOptions::default()).unwrap_err().errno(),
        Errno::ENOTCONN
    );
    tm.stop(Stop::Abort, HUNG).unwrap();
    assert_eq!((tm.state(), tm.in_flight()), (TmState::Stopped, 0));
    // Its event thread delivers the event, and then finds the machine ended.
    let mut reports: Vec<_> = (0..3).map(|_| rx.recv_timeout(HUNG.unwrap()).expect("it hangs")).collect();
    reports.sort();
    assert_eq!(reports, ["Err(ENOTCONN) true", "Failed", "Started"]);
    called.stop(Stop::Abort, HUNG).unwrap();
    drop((refused, tm, called, domain));

    // Clients of another helper are not disturbed, and a new helper can be used.
    let next = Helper::over(&node);
    let domain = next.domain();
    let tm = machine(&domain);
    witness.start(Op::receive(bystander.allocate(64).unwrap())).unwrap();
    let to = tm.end_point(&witness.address().to_string()).unwrap();
    tm.start(Op::send(domain.buffer_of(b"anew").unwrap(), &to)).unwrap();
    assert_eq!(witness.wait(HUNG).unwrap().expect("it hangs").message.as_deref(), Some(&b"anew"[..]));
}

//! Requests that carry an offer: the offered buffer can be read once.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use nlx::request::{Delivery, RequestError, ResponderCounters};
use nlx::{Errno, NodeConfig, Offer, OpId, Queue, TransferMachine};

use super::*;

const LENGTH: usize = (2 << 20) + 5;

const AT_LEAST_ONCE: RequestOptions = RequestOptions {
    deadline: Duration::from_secs(60),
    retry_after: Duration::from_millis(20),
    retry_max: Duration::from_millis(100),
    delivery: Delivery::AtLeastOnce,
    ..OPTIONS
};

/// A client that loses every other answer, and the domains of both sides.
struct Ends {
    here: Domain,
    there: Domain,
    client: Requester,
    to: EndPoint,
}

impl Ends {
    fn new(number: u8) -> Ends {
        let [ours, theirs] = [1, 2].map(|last| format!("127.69.{number}.{last}"));
        let port = TcpListener::bind((&*ours, 0)).unwrap().local_addr().unwrap().port();
        let config = |nid: &str| NodeConfig::new().net(&format!("tcp({nid})")).unwrap().accept_port(port);
        let losing = config(&ours).fault("drop every 2 put portal 31".parse().unwrap());
        let [here, there] = [losing, config(&theirs)].map(|config| helper::domain(module_path!(), &config));
        let tm = here.transfer_machine(&format!("{ours}@tcp:12345:31:*"), TmOptions::default()).unwrap();
        let client = Requester::new(tm, AT_LEAST_ONCE).unwrap();
        let to = client.machine().end_point(&format!("{theirs}@tcp:12345:31:1")).unwrap();
        Ends { here, there, client, to }
    }
}

/// Creates the transfer machine for bulk.
fn bulk(domain: &Domain) -> TransferMachine {
    domain.transfer_machine(&format!("{}:12345:32:*", domain.nids()[0]), TmOptions::default()).unwrap()
}

/// Runs a server that reads the offer of each request, and answers with a byte of the data, until
/// the client is done.
fn serve(domain: &Domain, to: &EndPoint, done: &AtomicBool) -> ResponderCounters {
    let tm = domain.transfer_machine(&to.to_string(), TmOptions::default()).unwrap();
    let mut server = Responder::new(tm, RESPONDER).unwrap();
    let bulk = bulk(domain);
    while !done.load(Ordering::Relaxed) {
        let Some(request) = server.next(Some(10 * MS)).unwrap() else { continue };
        match read(&bulk, domain, &request) {
            Ok(byte) => server.answer(&request, &[byte]).unwrap(),
            Err(errno) => server.refuse(&request, errno).unwrap(),
        }
    }
    server.counters()
}

/// Reads a request's offer, and returns its last byte.
fn read(bulk: &TransferMachine, domain: &Domain, request: &Request) -> Result<u8, Errno> {
    let offer = Offer::from_bytes(request).unwrap();
    let op = bulk.start(Op::active_receive(domain.allocate(LENGTH).unwrap(), &offer)).unwrap().op;
    let event = bulk.wait(None).unwrap().unwrap();
    assert_eq!(event.op, op);
    event.status.map(|()| event.buffer.unwrap().read().unwrap()[LENGTH - 1])
}

/// Ends the server when the test ends, also by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stages an offer of bytes of this value.
fn stage(bulk: &TransferMachine, domain: &Domain, value: u8) -> (OpId, Vec<u8>) {
    let mut buffer = domain.allocate(LENGTH).unwrap();
    buffer.write().unwrap().fill(value);
    let Started { op, offer } = bulk.start(Op::passive_send(buffer).length(LENGTH)).unwrap();
    (op, offer.as_bytes().to_vec())
}

/// The answers are lost, and the requests repeated; but the offers of those that have run are used.
#[test]
fn a_request_with_an_offer_is_answered_though_its_first_answers_are_lost() {
    const CALLS: u8 = 6;
    let Ends { here, there, mut client, to } = Ends::new(1);
    let (bulk, done) = (bulk(&here), AtomicBool::new(false));
    let served = std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(&there, &to, &done));
        let finished = Done(&done);
        for value in 0..CALLS {
            let mut staged = 0;
            let answer = client.call_offering(&to, || {
                staged += 1;
                Ok(stage(&bulk, &here, value).1)
            });
            assert_eq!((&answer.unwrap()[..], staged), (&[value][..], 1));
            assert_eq!(bulk.wait(None).unwrap().unwrap().queue, Queue::PassiveBulkSend);
        }
        drop(finished);
        served.join().unwrap()
    });
    assert_eq!(served.requests, u64::from(CALLS), "each runs once");
    assert!(client.counters().retries > 0 && served.repeated > 0, "no answer was lost");
}

/// A request that runs twice, as its delivery allows: its offer works once, and the second run gets
/// an error at once.
#[test]
fn a_request_that_runs_again_with_the_same_offer_is_refused() {
    let Ends { here, there, mut client, to } = Ends::new(2);
    let (bulk, done) = (bulk(&here), AtomicBool::new(false));
    let (op, request) = stage(&bulk, &here, 7);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&there, &to, &done));
        let _done = Done(&done);
        // The first answer arrives, and every other one after it.
        let outcomes = [(); 2].map(|()| client.call(&to, &request).map(|answer| answer.to_vec()));
        assert_eq!(outcomes[0], Ok(vec![7]));
        assert_eq!(outcomes[1], Err(RequestError::Refused { errno: Errno::ENODATA }));
    });
    assert_eq!(bulk.wait(None).unwrap().unwrap().op, op);
}

/// A server that has read the offer is restarted before it answers: the request is repeated with a
/// new offer.
#[test]
fn a_server_that_is_started_anew_is_asked_again_with_a_fresh_offer() {
    let Ends { here, there, mut client, to } = Ends::new(3);
    let (bulk, done) = (bulk(&here), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let tm = there.transfer_machine(&to.to_string(), TmOptions::default()).unwrap();
            let mut first = Responder::new(tm, RESPONDER).unwrap();
            let request = first.next(None).unwrap().unwrap();
            assert_eq!(read(&self::bulk(&there), &there, &request), Ok(0));
            drop((request, first));
            serve(&there, &to, &done)
        });
        let _done = Done(&done);
        let mut staged = Vec::new();
        let answer = client.call_offering(&to, || {
            let (op, request) = stage(&bulk, &here, staged.len() as u8);
            staged.push(op);
            Ok(request)
        });
        assert_eq!((&answer.unwrap()[..], staged.len()), (&[1][..], 2));
        for op in staged {
            assert_eq!(bulk.wait(None).unwrap().unwrap().op, op);
        }
    });
}

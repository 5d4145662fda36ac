//! Requests and answers: over a network in memory that loses, delays and duplicates messages, with
//! a simulated clock; and over TCP.

// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use nlx::request::{Finished, Request, RequestOptions, Requester, Responder, ResponderOptions};
use nlx::{Domain, EndPoint, Op, Started, TmOptions};

use lossy::{Fate, Lossy, Sent, arrives};

#[path = "../support/helper.rs"]
mod helper;

mod at_most_once;
mod lossy;
mod network;
mod offers;
mod retries;
mod unwanted;

const SERVER: &str = "0@lo:12345:31:1";
const MS: Duration = Duration::from_millis(1);
const MS_NS: u64 = 1_000_000;

/// The offset of a message's kind.
const KIND: usize = 5;
const OPEN: u8 = 1;
const ONCE: u8 = 3;
const OFTEN: u8 = 4;
const ANSWER: u8 = 5;

const OPTIONS: RequestOptions = RequestOptions {
    deadline: Duration::from_secs(10),
    deadline_max: Duration::from_secs(60),
    retry_after: Duration::from_millis(100),
    retry_max: Duration::from_secs(2),
    message_max: 256,
    in_flight_max: 8,
    delivery: nlx::request::Delivery::AtMostOnce,
    patient: false,
};

const RESPONDER: ResponderOptions =
    ResponderOptions { message_max: 256, sessions_max: 4, session_idle: Duration::from_secs(60) };

/// A client and a server, in one thread.
struct Rig {
    network: Lossy,
    domain: Domain,
    client: Requester,
    server: Option<Responder>,
    to: EndPoint,
}

impl Rig {
    fn new(options: RequestOptions, fate: impl FnMut(&Sent) -> Fate + Send + 'static) -> Rig {
        let network = Lossy::new(fate);
        let domain = Domain::over(network.core());
        let client = requester(&domain, options);
        let to = client.machine().end_point(SERVER).unwrap();
        let mut rig = Rig { network, domain, client, server: None, to };
        rig.start_server(RESPONDER);
        rig
    }

    /// Starts the server, or restarts it.
    fn start_server(&mut self, options: ResponderOptions) {
        self.server = None;
        let tm = self.domain.transfer_machine(SERVER, TmOptions::default()).unwrap();
        self.server = Some(Responder::new(tm, options).unwrap());
    }

    fn server(&mut self) -> &mut Responder {
        self.server.as_mut().unwrap()
    }

    /// Returns the next request that has arrived.
    fn request(&mut self) -> Option<Request> {
        self.server().next(Some(Duration::ZERO)).unwrap()
    }

    /// Answers the requests that have arrived; returns those that ran.
    fn serve(&mut self) -> Vec<Vec<u8>> {
        let mut ran = Vec::new();
        while let Some(request) = self.request() {
            self.server().answer(&request, &answer_to(&request)).unwrap();
            ran.push(request.to_vec());
        }
        ran
    }

    /// Lets client and server work until a call has ended; returns the requests that ran.
    fn run(&mut self) -> (Finished, Vec<Vec<u8>>) {
        let mut ran = Vec::new();
        loop {
            ran.extend(self.serve());
            if let Some(finished) = self.client.wait(Some(10 * MS)).unwrap() {
                return (finished, ran);
            }
        }
    }

    /// Lets the server handle the requests that have arrived, and the client the answers.
    fn settle(&mut self) {
        self.serve();
        assert!(self.client.wait(Some(Duration::ZERO)).unwrap().is_none());
    }
}

fn requester(domain: &Domain, options: RequestOptions) -> Requester {
    let tm = domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap();
    Requester::new(tm, options).unwrap()
}

fn answer_to(request: &[u8]) -> Vec<u8> {
    request.iter().rev().copied().collect()
}

fn is(kind: u8) -> impl Fn(&Sent) -> bool {
    move |sent| sent.bytes[KIND] == kind
}

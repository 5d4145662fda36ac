//! Over TCP, with lost messages.

use std::net::TcpListener;

use nlx::NodeConfig;

use super::*;

const PATIENT: RequestOptions = RequestOptions {
    deadline: Duration::from_secs(60),
    retry_after: Duration::from_millis(20),
    retry_max: Duration::from_millis(100),
    ..OPTIONS
};

fn domain(nid: &str, port: u16) -> Domain {
    let config = NodeConfig::new().net(&format!("tcp({nid})")).unwrap().accept_port(port);
    helper::domain(module_path!(), &config)
}

fn start(domain: &Domain, address: &str) -> Responder {
    Responder::new(domain.transfer_machine(address, TmOptions::default()).unwrap(), RESPONDER).unwrap()
}

/// A server whose node runs before it does, whose session is forgotten, and which several clients
/// call at once.
#[test]
fn messages_that_find_no_server_are_sent_again_over_tcp() {
    let port = TcpListener::bind("127.68.1.1:0").unwrap().local_addr().unwrap().port();
    let (there, here) = (domain("127.68.1.1", port), domain("127.68.1.2", port));
    let address = "127.68.1.1@tcp:12345:31:1";
    let tm = here.transfer_machine("127.68.1.2@tcp:12345:31:*", TmOptions::default()).unwrap();
    let mut client = Requester::new(tm, PATIENT).unwrap();
    let to = client.machine().end_point(address).unwrap();
    client.start(&to, b"early").unwrap();
    // There is no server yet: the node drops the messages.
    while client.counters().opens < 3 {
        assert!(client.wait(Some(10 * MS)).unwrap().is_none());
    }
    let mut server = start(&there, address);
    let mut ran = Vec::new();
    let serve = |server: &mut Responder, ran: &mut Vec<Vec<u8>>| {
        while let Some(request) = server.next(Some(Duration::ZERO)).unwrap() {
            ran.push(request.to_vec());
            server.answer(&request, &answer_to(&request)).unwrap();
        }
    };
    let next = |client: &mut Requester, server: &mut Responder, ran: &mut Vec<Vec<u8>>| loop {
        serve(server, ran);
        if let Some(finished) = client.wait(Some(MS)).unwrap() {
            return finished.outcome;
        }
    };
    assert_eq!(next(&mut client, &mut server, &mut ran).unwrap()[..], *b"ylrae");

    for number in 0..PATIENT.in_flight_max as u8 {
        client.start(&to, &[number, number, 0]).unwrap();
    }
    for _ in 0..PATIENT.in_flight_max {
        let answer = next(&mut client, &mut server, &mut ran).unwrap();
        assert_eq!((answer[0], answer[1]), (0, answer[2]));
    }
    // The server is restarted without its sessions: it reports that, or it gets the request after
    // the client has opened a new session.
    drop(server);
    client.start(&to, b"again").unwrap();
    let mut server = start(&there, address);
    match next(&mut client, &mut server, &mut ran) {
        Ok(answer) => assert_eq!(answer[..], *b"niaga"),
        Err(error) => assert_eq!(error.errno(), nlx::Errno::ESTALE),
    }
    ran.sort();
    assert!(ran.windows(2).all(|pair| pair[0] != pair[1]), "{ran:?}");
}

/// One message in four is lost on each side: every call is answered all the same, and no request
/// runs twice.
#[test]
fn requests_and_answers_that_are_lost_over_tcp_are_made_up_for() {
    const CALLS: u32 = 60;
    let port = TcpListener::bind("127.68.2.1:0").unwrap().local_addr().unwrap().port();
    let lossy = |nid: &str, seed: u32| {
        let rule = format!("drop 1/4 put portal 31 seed {seed}").parse().unwrap();
        let config = NodeConfig::new().net(&format!("tcp({nid})")).unwrap().accept_port(port).fault(rule);
        helper::domain(module_path!(), &config)
    };
    let (there, here) = (lossy("127.68.2.1", 1), lossy("127.68.2.2", 2));
    let mut server = start(&there, "127.68.2.1@tcp:12345:31:1");
    let tm = here.transfer_machine("127.68.2.2@tcp:12345:31:*", TmOptions::default()).unwrap();
    let mut client = Requester::new(tm, PATIENT).unwrap();
    let to = client.machine().end_point("127.68.2.1@tcp:12345:31:1").unwrap();
    let (mut ran, mut begun, mut answered) = (Vec::new(), 0_u32, 0);
    while answered < CALLS {
        while begun < CALLS && client.in_flight() < PATIENT.in_flight_max {
            client.start(&to, &begun.to_le_bytes()).unwrap();
            begun += 1;
        }
        while let Some(request) = server.next(Some(Duration::ZERO)).unwrap() {
            ran.push(request.to_vec());
            server.answer(&request, &answer_to(&request)).unwrap();
        }
        if let Some(finished) = client.wait(Some(MS)).unwrap() {
            assert_eq!(finished.outcome.unwrap().len(), 4);
            answered += 1;
        }
    }
    ran.sort();
    ran.dedup();
    // The number of different requests is that of requests passed to the program: each ran once.
    assert_eq!((ran.len() as u64, server.counters().requests), (u64::from(CALLS), u64::from(CALLS)));
    // Over a helper the node is the helper's; there, the retries show that messages were lost.
    for node in [&there, &here].into_iter().filter_map(|domain| domain.node()) {
        assert!(node.faults()[0].dropped > 0);
    }
    assert!(client.counters().retries > 0 && server.counters().repeated > 0);
}

/// No node listens at the server's address: the call reports that before its deadline.
#[test]
fn a_node_that_refuses_connections_is_named_with_the_reason() {
    let port = TcpListener::bind("127.68.3.1:0").unwrap().local_addr().unwrap().port();
    let here = domain("127.68.3.2", port);
    let tm = here.transfer_machine("127.68.3.2@tcp:12345:31:*", TmOptions::default()).unwrap();
    let mut client =
        Requester::new(tm, RequestOptions { deadline: Duration::from_secs(3600), ..OPTIONS }).unwrap();
    let to = client.machine().end_point("127.68.3.1@tcp:12345:31:1").unwrap();
    let error = client.call(&to, b"anybody?").unwrap_err();
    assert_eq!(error.errno(), nlx::Errno::ECONNREFUSED, "{error}");
    assert!(error.to_string().contains("127.68.3.1@tcp"), "{error}");
}

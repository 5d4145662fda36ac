//! Tests how a program handles failures, without a network: the program's code runs over a scripted
//! LNet, where waiting for a deadline takes no time.
//!
//! ```text
//! cargo run -p nlx --features fake --example retry
//! cargo test -p nlx --features fake --example retry
//! ```

use std::time::Duration;

use nlx::{Buffer, Domain, EndPoint, Errno, Error, NodeConfig, Op, Started, TmOptions, TransferMachine};

/// The code under test. Sends a message, at most `attempts` times while its peer cannot be reached.
/// Returns the buffer and the number of attempts.
fn send_with_retry(
    tm: &TransferMachine,
    mut buffer: Buffer,
    to: &EndPoint,
    attempts: u32,
) -> Result<(Buffer, u32), Error> {
    let mut last = Errno::EINVAL;
    for attempt in 1..=attempts {
        match tm.start(Op::send(buffer, to).timeout(Duration::from_secs(1))) {
            // Refused at once: no event follows.
            Err(refused) => (buffer, last) = (refused.buffer, refused.error.errno()),
            Ok(Started { op, .. }) => {
                let event = loop {
                    if let Some(event) = tm.wait(None)?.filter(|event| event.op == op) {
                        break event;
                    }
                };
                buffer = event.buffer.ok_or(Error::TimeoutPassed)?;
                match event.status {
                    Ok(()) => return Ok((buffer, attempt)),
                    Err(errno) => last = errno,
                }
            }
        }
        if !matches!(last, Errno::EHOSTUNREACH | Errno::ETIMEDOUT | Errno::ENOMEM) {
            break;
        }
    }
    Err(nlx::CoreError::Transport { action: "send with retry", reason: last.to_string(), errno: last }.into())
}

/// Runs the same code over a real node: a message to itself.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::in_process(&NodeConfig::new())?;
    let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    tm.start(Op::receive(domain.allocate(64)?))?;
    let (_, attempts) = send_with_retry(&tm, domain.buffer_of(b"hello")?, tm.own_end_point(), 3)?;
    println!("sent in {attempts} attempt");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nlx::fake::{Answer, CallKind, Clock, EventKind, FakeDrive, FakeLnet, ScriptedEvent};
    use nlx::request::{RequestError, RequestOptions, Requester, Responder, ResponderOptions};

    use super::*;

    /// Returns the number of attempts to reach a peer over this LNet, at most five.
    fn attempts(lnet: &Arc<FakeLnet>, drive: &Arc<FakeDrive>) -> Result<u32, Errno> {
        let domain = Domain::over_fake(lnet.clone(), drive.clone());
        let tm = domain.transfer_machine("10.0.0.1@tcp:12345:31:*", TmOptions::default()).unwrap();
        let to = tm.end_point("10.0.0.2@tcp:12345:31:1").unwrap();
        let outcome = send_with_retry(&tm, domain.buffer_of(b"hello").unwrap(), &to, 5);
        // In any case, each attempt sent the whole message, to the right node.
        assert!(lnet.puts().iter().all(|put| put.target.nid == to.address().nid));
        drop(tm);
        lnet.assert_quiet();
        outcome.map(|(_, attempts)| attempts).map_err(|error| error.errno())
    }

    fn fake() -> (Arc<FakeLnet>, Arc<FakeDrive>) {
        (FakeLnet::new(&["10.0.0.1@tcp"]), FakeDrive::new())
    }

    #[test]
    fn a_peer_that_is_back_at_the_third_attempt_is_reached() {
        let (lnet, drive) = fake();
        // The first attempt is refused by the call, the second fails in transit.
        lnet.fail(CallKind::BindPut, Errno::ENOMEM);
        lnet.complete_inside(CallKind::BindPut, [ScriptedEvent::send().failed(Errno::EHOSTUNREACH)]);
        lnet.complete_inside(CallKind::BindPut, [ScriptedEvent::send()]);
        assert_eq!(attempts(&lnet, &drive), Ok(3));
    }

    #[test]
    fn a_peer_that_stays_away_is_given_up() {
        let (lnet, drive) = fake();
        for _ in 0..5 {
            lnet.complete_inside(CallKind::BindPut, [ScriptedEvent::send().failed(Errno::EHOSTUNREACH)]);
        }
        assert_eq!(attempts(&lnet, &drive), Err(Errno::EHOSTUNREACH));
    }

    #[test]
    fn what_no_retry_can_mend_is_not_tried_again() {
        let (lnet, drive) = fake();
        lnet.complete_inside(CallKind::BindPut, [ScriptedEvent::send().failed(Errno::EIO)]);
        assert_eq!(attempts(&lnet, &drive), Err(Errno::EIO));
        assert_eq!(lnet.puts().len(), 1);
    }

    /// Completes the messages sent so far; delivers them if `arrives`. Returns their number.
    fn carry(lnet: &FakeLnet, arrives: bool) -> usize {
        let puts = lnet.puts();
        lnet.take_calls();
        for put in &puts {
            let bytes = lnet.payload(put.md);
            lnet.inject(put.md, ScriptedEvent::send());
            if arrives {
                let posted = lnet.matching(EventKind::Put, put.target, put.portal, put.match_bits).unwrap();
                let message =
                    ScriptedEvent::put().bytes(bytes).hdr_data(put.hdr_data).match_bits(put.match_bits);
                lnet.inject(posted, message.from(put.target));
            }
        }
        puts.len()
    }

    /// Creates a requester and its server on one node, so that each message arrives at the node
    /// that sent it.
    fn ends(lnet: &Arc<FakeLnet>, drive: &Arc<FakeDrive>) -> (Requester, Responder, EndPoint) {
        let domain = Domain::over_fake(lnet.clone(), drive.clone());
        let tm = |address| domain.transfer_machine(address, TmOptions::default()).unwrap();
        let client = Requester::new(tm("10.0.0.1@tcp:12345:31:1"), RequestOptions::default()).unwrap();
        let server = Responder::new(tm("10.0.0.1@tcp:12345:31:2"), ResponderOptions::default()).unwrap();
        let to = client.machine().end_point("10.0.0.1@tcp:12345:31:2").unwrap();
        (client, server, to)
    }

    #[test]
    fn a_request_whose_first_messages_are_lost_is_sent_again_and_runs_once() {
        let (lnet, drive) = fake();
        let (mut client, mut server, to) = ends(&lnet, &drive);
        let call = client.start(&to, b"hello").unwrap();
        let (mut messages, mut ran) = (0, 0);
        let finished = loop {
            messages += carry(&lnet, messages >= 3);
            while let Some(request) = server.next(Some(Duration::ZERO)).unwrap() {
                assert_eq!(&*request, b"hello");
                server.answer(&request, b"world").unwrap();
                ran += 1;
            }
            carry(&lnet, true);
            // While no message arrives, time passes in steps of at most this length.
            if let Some(finished) = client.wait(Some(Duration::from_millis(10))).unwrap() {
                break finished;
            }
        };
        assert_eq!((finished.call, &*finished.outcome.unwrap(), ran), (call, &b"world"[..], 1));
        // Four requests for a session, with delays of 500, 1,000 and 2,000 ms between them, each up
        // to a quarter shorter.
        assert!(finished.after > Duration::from_millis(2_625) && client.counters().opens == 4);
        drop((client, server));
        lnet.assert_quiet();
    }

    #[test]
    fn a_request_that_is_never_answered_ends_at_its_deadline() {
        let (lnet, drive) = fake();
        let (mut client, server, to) = ends(&lnet, &drive);
        let began_ns = drive.now_ns();
        lnet.on_put(|_, _| Answer::Lose);
        let error = client.call(&to, b"anybody?").unwrap_err();
        assert_eq!(error, RequestError::Unanswered { sent: 0, failure: None });
        assert!(client.counters().opens > 3);
        assert_eq!(drive.now_ns() - began_ns, RequestOptions::default().deadline.as_nanos() as u64);
        drop((client, server));
        lnet.assert_quiet();
    }
}

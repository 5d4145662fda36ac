//! Testing what a program makes of failures, without a network: the program's own code runs over a scripted LNet.
//!
//! ```text
//! cargo run -p nlx --features fake --example retry
//! cargo test -p nlx --features fake --example retry
//! ```

use std::time::Duration;

use nlx::{Buffer, Domain, EndPoint, Errno, Error, NodeConfig, Receive, TmOptions, TransferMachine};

/// What is to be tested: sends a message, again if its peer could not be reached, but no more than `attempts` times. Gives the
/// buffer back, and how many attempts it took.
fn send_with_retry(
    tm: &TransferMachine,
    mut buffer: Buffer,
    length: usize,
    to: &EndPoint,
    attempts: u32,
) -> Result<(Buffer, u32), Error> {
    let mut last = Errno::EINVAL;
    for attempt in 1..=attempts {
        match tm.send(buffer, length, to, Some(Duration::from_secs(1))) {
            // Refused at once: no event comes.
            Err(refused) => (buffer, last) = (refused.buffer, refused.error.errno()),
            Ok(op) => {
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

/// The same code over a real node: a message to itself.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let domain = Domain::in_process(&NodeConfig::new())?;
    let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    tm.receive(domain.allocate(64)?, Receive { min_receive_size: 64, max_messages: 1 }, None)?;
    let (_, attempts) = send_with_retry(&tm, domain.buffer_of(b"hello")?, 5, tm.own_end_point(), 3)?;
    println!("sent in {attempts} attempt");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nlx::fake::{CallKind, FakeDrive, FakeLnet, Happening};

    use super::*;

    /// Attempts to reach a peer of this LNet, five at the most.
    fn attempts(lnet: &Arc<FakeLnet>, drive: &Arc<FakeDrive>) -> Result<u32, Errno> {
        let domain = Domain::over_fake(lnet.clone(), drive.clone());
        let tm = domain.transfer_machine("10.0.0.1@tcp:12345:31:*", TmOptions::default()).unwrap();
        let to = tm.end_point("10.0.0.2@tcp:12345:31:1").unwrap();
        let outcome = send_with_retry(&tm, domain.buffer_of(b"hello").unwrap(), 5, &to, 5);
        // Whatever came, every attempt sent the whole message, and to the right place.
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
        // The first is refused by the call, the second fails on its way.
        lnet.fail(CallKind::Put, Errno::ENOMEM);
        lnet.complete_inside(CallKind::Put, [Happening::send().failed(Errno::EHOSTUNREACH)]);
        lnet.complete_inside(CallKind::Put, [Happening::send()]);
        assert_eq!(attempts(&lnet, &drive), Ok(3));
    }

    #[test]
    fn a_peer_that_stays_away_is_given_up() {
        let (lnet, drive) = fake();
        for _ in 0..5 {
            lnet.complete_inside(CallKind::Put, [Happening::send().failed(Errno::EHOSTUNREACH)]);
        }
        assert_eq!(attempts(&lnet, &drive), Err(Errno::EHOSTUNREACH));
    }

    #[test]
    fn what_no_retry_can_mend_is_not_tried_again() {
        let (lnet, drive) = fake();
        lnet.complete_inside(CallKind::Put, [Happening::send().failed(Errno::EIO)]);
        assert_eq!(attempts(&lnet, &drive), Err(Errno::EIO));
        assert_eq!(lnet.puts().len(), 1);
    }
}

//! The honest client during an attack: it works all the time, and records how long each round
//! takes. It also plays new clients, which attach, work a round and leave.

use std::io::BufRead;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use hdrhistogram::Histogram;
use nix::sys::socket::{Shutdown, shutdown};
use nlx_tests::client::TIME_LIMIT;
use nlx_tests::client::pair::Pair;
use nlx_tests::client::points::Points;

use crate::roles::nid;
use crate::say;

/// The number of exact digits in the recorded times.
const DIGITS: u8 = 3;

/// Works until it reads `end`. It answers each line of its input:
///
/// ```text
/// advance N   `advanced N` after N more rounds
/// figures     `figures ROUNDS P50 P99 MAX`, in microseconds, of the rounds since the last `figures`
/// end         `ended`, when everything is released
/// ```
pub(crate) fn measure(sockets: [&str; 2], addresses: [&str; 2]) -> Result<(), String> {
    let nids = [nid(addresses[0])?, nid(addresses[1])?];
    let mut pair = Pair::connect(sockets.map(Path::new), nids, "honest", Points::harmless())?;
    pair.round()?;
    say("ready");
    let questions = questions();
    let mut times = Histogram::<u64>::new(DIGITS).map_err(|error| error.to_string())?;
    let (mut rounds, mut goal) = (0_u64, None);
    loop {
        let begun = Instant::now();
        pair.round()?;
        let took = begun.elapsed().as_micros() as u64;
        times.record(took).map_err(|error| error.to_string())?;
        rounds += 1;
        if let Some((_, count)) = goal.take_if(|(goal, _)| rounds >= *goal) {
            say(&format!("advanced {count}"));
        }
        while let Some(line) = questions.try_iter().next() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["advance", count] => {
                    let count: u64 = count.parse().map_err(|_| format!("{count} rounds"))?;
                    goal = Some((rounds + count, count));
                }
                ["figures"] => {
                    let [p50, p99] = [0.5, 0.99].map(|part| times.value_at_quantile(part));
                    say(&format!("figures {} {p50} {p99} {}", times.len(), times.max()));
                    times.reset();
                }
                ["end"] => {
                    pair.end()?;
                    say("ended");
                    return Ok(());
                }
                _ => return Err(format!("unknown command {line:?}")),
            }
        }
    }
}

/// Returns the lines of the input; `end` after the last.
fn questions() -> Receiver<String> {
    let (sender, questions) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        let _ = sender.send("end".to_string());
    });
    questions
}

/// Runs a new client: it attaches, works a round, and releases everything; the helper then closes
/// the socket.
pub(crate) fn visit(sockets: [&str; 2], addresses: [&str; 2]) -> Result<(), String> {
    let nids = [nid(addresses[0])?, nid(addresses[1])?];
    say("ready");
    let mut pair = Pair::connect(sockets.map(Path::new), nids, "visit", Points::harmless())?;
    pair.round()?;
    for side in pair.sides {
        let socket = side.client.socket;
        shutdown(std::os::fd::AsFd::as_fd(&socket).as_raw_fd(), Shutdown::Write)
            .map_err(|errno| format!("cannot close the connection: {errno}"))?;
        if !socket.ends(TIME_LIMIT) {
            return Err("the helper does not close the socket".into());
        }
    }
    say("done");
    Ok(())
}

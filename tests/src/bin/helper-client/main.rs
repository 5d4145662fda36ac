//! `helper-client`: a client of the helper in a process of its own, so that it can be killed, stopped and starved.
//!
//! ```text
//! helper-client traffic SOCKET ADDRESS SILENT [POINT NTH]   lives again and again: attaches, works, gives everything back
//! helper-client wait SOCKET ADDRESS                         waits for a message that does not come; says how that ended
//! helper-client hold SOCKET ADDRESS SILENT                  has an operation of each queue in flight, and sleeps
//! helper-client greedy SOCKET ADDRESS                       touches as much memory as it can have; says how that ended
//! helper-client scribble SOCKET ADDRESS                     works, and writes over all that it shares at the same time
//! helper-client measure SOCKET ADDRESS SOCKET ADDRESS       works for the other one, and answers questions on its input
//! helper-client visit SOCKET ADDRESS SOCKET ADDRESS         attaches, works a round, and leaves
//! helper-client busy SOCKET ADDRESS                         works, and writes as much over memory of its own
//! ```
//!
//! It says `ready` once it has begun, and where it is killed, if it is to kill itself.

#![forbid(unsafe_code)]

mod measure;
mod roles;
mod scribble;

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["traffic", socket, address, silent] => roles::traffic(socket, address, silent, None),
        ["traffic", socket, address, silent, point, nth] => {
            roles::traffic(socket, address, silent, Some((point, nth)))
        }
        ["wait", socket, address] => roles::wait(socket, address),
        ["hold", socket, address, silent] => roles::hold(socket, address, silent),
        ["greedy", socket, address] => roles::greedy(socket, address),
        ["scribble", socket, address] => scribble::scribble(socket, address),
        ["measure", one, here, other, there] => measure::measure([one, other], [here, there]),
        ["visit", one, here, other, there] => measure::visit([one, other], [here, there]),
        ["busy", socket, address] => scribble::busy(socket, address),
        _ => Err(format!("what is {words:?}?")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            say(&format!("failed: {words}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells the test something.
fn say(line: &str) {
    println!("{line}");
    // A test that does not listen any more has ended.
    let _ = std::io::stdout().flush();
}

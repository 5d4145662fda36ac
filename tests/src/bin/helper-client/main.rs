//! `helper-client`: a client of the helper in a separate process, so that it can be killed, stopped
//! and starved.
//!
//! ```text
//! helper-client traffic SOCKET ADDRESS SILENT [POINT NTH]   repeats: attaches, works, releases everything
//! helper-client wait SOCKET ADDRESS                         waits for a message that does not come; prints how that ended
//! helper-client hold SOCKET ADDRESS SILENT                  has an operation of each queue in flight, and sleeps
//! helper-client greedy SOCKET ADDRESS                       touches as much memory as it can get; prints how that ended
//! helper-client scribble SOCKET ADDRESS                     works, and overwrites all memory that it shares at the same time
//! helper-client measure SOCKET ADDRESS SOCKET ADDRESS       works for the other client, and answers commands on its input
//! helper-client visit SOCKET ADDRESS SOCKET ADDRESS         attaches, works a round, and leaves
//! helper-client busy SOCKET ADDRESS                         works, and writes at the same rate to private memory
//! ```
//!
//! It prints `ready` once it has started, and the point at which it kills itself, if it does.

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
        _ => Err(format!("unknown arguments {words:?}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            say(&format!("failed: {words}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints a line for the test.
fn say(line: &str) {
    println!("{line}");
    // An error means that the test has ended.
    let _ = std::io::stdout().flush();
}

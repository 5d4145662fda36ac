//! The commands of `lst`, each by itself: `nlx lst new_session`, `nlx lst add_group`, ….
//!
//! `new_session` starts a background process with the console, and the other commands find it by the
//! variable `LST_SESSION`, as those of the kernel's `lst` find theirs. It ends with its session: with
//! `end_session`, or when the session has expired.

mod background;
mod exchange;
mod place;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Command as Process, Stdio};

use lnet_api::Errno;
use nlx_lst::print::{Printed, REFUSED};
use serde_json::Value;

use super::commands;
use crate::args::LstArgs;
use crate::failure::{Context, Failure};
use crate::output;

pub(super) use background::run as run_background;
use exchange::{Answer, Request};
use place::Place;

/// The hidden command of the background process.
const BACKGROUND: &str = "session-console";

/// Maximum length in bytes of what a background process reports of its start.
const REPORT_MAX: u64 = 64 << 10;

/// Sends a command to the console of the session, and prints its results.
pub(super) fn run(args: &LstArgs, words: &[String]) -> Result<(), Failure> {
    let (line, name) = (words.join(" "), words.first().map_or("", String::as_str));
    let place = Place::of_environment(name)?;
    let stream = match (place.connect()?, name) {
        (Some(stream), _) => stream,
        (None, "new_session") => {
            start(args, words, &place)?;
            place.connect()?.ok_or_else(|| gone(&place))?
        }
        // Success without a session, as with the kernel's lst.
        (None, "end_session") => return place.take_last_words().map_or(Ok(()), warn_of),
        (None, _) => return Err(no_session(&place, name)),
    };
    exchange::send(&stream, &Request { words: words.to_vec() })?;
    show_answers(stream, &line, args.json, &place)
}

fn show_answers(stream: UnixStream, line: &str, json: bool, place: &Place) -> Result<(), Failure> {
    let (mut reader, mut status) = (BufReader::new(stream), 0);
    while let Some(answer) = exchange::receive::<Answer>(&mut reader)? {
        match answer {
            Answer::Printed { output, errors, code } => {
                status = code;
                commands::print(line, &Printed { output, errors, code }, json)?;
            }
            Answer::Warning { text } => output::print_error(format_args!("nlx: {text}")),
            Answer::Failed { message } => return Err(Failure::new(message)),
            Answer::End if status == 0 => return Ok(()),
            Answer::End => return Err(Failure::quiet().exit(status)),
        }
    }
    Err(gone(place))
}

fn warn_of(words: String) -> Result<(), Failure> {
    output::print_error(format_args!("nlx: {words}"));
    Ok(())
}

fn no_session(place: &Place, command: &str) -> Failure {
    let why = place.take_last_words().map_or(String::new(), |words| format!(": {words}"));
    let message = format!("{command}: LST_SESSION={} has no session{why}", place.key());
    Failure::at("lst", Errno::ESRCH, message)
        .hint("'nlx lst new_session' opens one, in a shell with the same LST_SESSION")
        .exit(REFUSED)
}

fn gone(place: &Place) -> Failure {
    let message = format!("the console of LST_SESSION={} has ended before the command", place.key());
    Failure::at("lst", Errno::ECONNRESET, message).exit(REFUSED)
}

/// Starts the background process with the options of this one, and waits until it listens.
fn start(args: &LstArgs, words: &[String], place: &Place) -> Result<(), Failure> {
    drop(place.take_last_words());
    let program = std::env::current_exe().context("cannot find this program's file")?;
    // The words of the command are the last arguments.
    let all: Vec<_> = std::env::args_os().skip(1).collect();
    let options = &all[..all.len().saturating_sub(words.len())];
    let mut process = Process::new(program);
    process.args(options).args((!args.json).then_some("--json"));
    process.arg(BACKGROUND).arg(place.key().to_string());
    // It holds none of this process's files, so that a pipe of the shell ends with this process.
    process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = process.spawn().context("cannot start the console of the session")?;
    let mut report = String::new();
    if let Some(output) = child.stdout.take() {
        let read = BufReader::new(output.take(REPORT_MAX)).read_line(&mut report);
        read.context("cannot read what the console of the session reports")?;
    }
    let report: Value = serde_json::from_str(&report).unwrap_or_default();
    if report[background::LISTENS].is_u64() {
        return Ok(());
    }
    let _ = child.wait();
    let text = |member: &str| report["error"][member].as_str();
    let failure = Failure::new(text("message").unwrap_or("the console of the session has not started"));
    Err(text("try").into_iter().fold(failure, |failure, advice| failure.hint(advice)))
}

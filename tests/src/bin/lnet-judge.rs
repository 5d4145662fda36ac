//! `lnet-judge`: judges an LNet node over TCP, of nlx or of a kernel.
//!
//! ```text
//! lnet-judge active --to ADDR:PORT --nid NID --own NID [--from ADDR] [--unprivileged] [--accept POLICY]
//!                   [--buffer PORTAL:BITS] [--check NAME]…
//! lnet-judge passive --listen ADDR:PORT --nid NID [--unprivileged] [--cookies] [--race]
//! lnet-judge --list
//! ```
//!
//! Over IPv6 the NIDs are large (`fd00::1@tcp`) and sockets are written `[fd00::1]:988`; the checks
//! follow the form of the node's NID.
//!
//! As the active side it connects to a node and runs every check, or those named. `--from` is the
//! address that it connects from, if that is not its NID's address; checks for which the node must
//! connect to the judge are then left out. As the passive side it plays a kernel node, discovers
//! each peer that opens three connections, and judges until its standard input ends.
//! `--unprivileged` accepts connections from every port, `--cookies` lets peers request zero-copy
//! acks, as kernel nodes do, `--race` connects to each peer while that connects.
//!
//! It prints a line per check, with the line of the measured page that the check enforces. Exit
//! status: 0 if all pass, 1 if one fails, 2 if the arguments are wrong.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use nlx_tests::judge::passive::{Passive, Play};
use nlx_tests::judge::report::line;
use nlx_tests::judge::rules::RULES;
use nlx_tests::judge::{CHECKS, Outcome, Policy, Target};

const USAGE: &str = "lnet-judge active --to ADDR:PORT --nid NID --own NID [--from ADDR] [--unprivileged]
                  [--accept secure|all|hello] [--buffer PORTAL:BITS] [--check NAME]…
lnet-judge passive --listen ADDR:PORT --nid NID [--unprivileged] [--cookies] [--race]
lnet-judge --list";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("--list") => list(),
        Some("active") => active(&args[1..]),
        Some("passive") => passive(&args[1..]),
        _ => Err(USAGE.to_string()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(words) => {
            eprintln!("{words}");
            ExitCode::from(2)
        }
    }
}

fn list() -> Result<bool, String> {
    for check in CHECKS {
        println!("active  {:<16} {}", check.name, check.enforces);
    }
    for (name, enforces) in RULES {
        println!("passive {name:<16} {enforces}");
    }
    Ok(true)
}

fn passive(args: &[String]) -> Result<bool, String> {
    let options = Options::read(args, &["--listen", "--nid"])?;
    let play = Play::new(options.must("--listen")?, options.must("--nid")?);
    let policy = if options.has("--unprivileged") { Policy::Hello } else { Policy::Secure };
    let play = Play {
        policy,
        copies: !options.has("--cookies"),
        eager: true,
        race: options.has("--race"),
        pushes_back: true,
        ..play
    };
    let (listen, nid) = (play.listen, play.nid);
    let passive = Passive::start(play).map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    println!("judging as {nid} on {listen} until the input ends");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).map_err(|error| error.to_string())?;
    let report = passive.report();
    print!("{report}");
    Ok(report.failures().is_empty())
}

fn active(args: &[String]) -> Result<bool, String> {
    let options =
        Options::read(args, &["--to", "--nid", "--own", "--from", "--accept", "--buffer", "--check"])?;
    let mut target = Target::new(options.must("--to")?, options.must("--nid")?, options.must("--own")?);
    target.from = options.may("--from")?.unwrap_or(target.from);
    target.privileged = !options.has("--unprivileged");
    target.policy = options.may("--accept")?.unwrap_or(Policy::Secure);
    target.buffer = options.may::<Buffer>("--buffer")?.map(|Buffer(portal, bits)| (portal, bits));
    let names: Vec<&str> = options.all("--check").collect();
    if let Some(unknown) = names.iter().find(|name| CHECKS.iter().all(|check| check.name != **name)) {
        return Err(format!("there is no check '{unknown}': see lnet-judge --list"));
    }
    let mut passed = true;
    for check in CHECKS.iter().filter(|check| names.is_empty() || names.contains(&check.name)) {
        let outcome = check.run(&target);
        passed &= !matches!(outcome, Outcome::Fail(_));
        println!("{}", line(check.name, check.enforces, &outcome));
    }
    Ok(passed)
}

/// `PORTAL:BITS`.
struct Buffer(u32, u64);

impl std::str::FromStr for Buffer {
    type Err = String;

    fn from_str(text: &str) -> Result<Buffer, String> {
        let (portal, bits) = text.split_once(':').ok_or("PORTAL:BITS")?;
        let bits = bits.trim_start_matches("0x");
        Ok(Buffer(
            portal.parse().map_err(|_| "no portal")?,
            u64::from_str_radix(bits, 16).map_err(|_| "no match bits in hexadecimal")?,
        ))
    }
}

/// The arguments of the command line.
struct Options<'a> {
    values: Vec<(&'a str, &'a str)>,
    flags: Vec<&'a str>,
}

impl<'a> Options<'a> {
    fn read(args: &'a [String], known: &[&str]) -> Result<Options<'a>, String> {
        let mut options = Options { values: Vec::new(), flags: Vec::new() };
        let mut args = args.iter();
        while let Some(name) = args.next() {
            if ["--unprivileged", "--cookies", "--race"].contains(&name.as_str()) {
                options.flags.push(name);
                continue;
            }
            if !known.contains(&name.as_str()) {
                return Err(format!("unknown: {name}\n{USAGE}"));
            }
            let value = args.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
            options.values.push((name, value));
        }
        Ok(options)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(given, _)| *given == name).map(|&(_, value)| value)
    }

    fn may<T: std::str::FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let read = |value: &str| value.parse().map_err(|error| format!("{name} {value}: {error}"));
        self.all(name).last().map(read).transpose()
    }

    fn must<T: std::str::FromStr<Err: std::fmt::Display>>(&self, name: &str) -> Result<T, String> {
        self.may(name)?.ok_or_else(|| format!("{name} is missing\n{USAGE}"))
    }
}

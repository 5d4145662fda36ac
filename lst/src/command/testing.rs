//! Commands of batches and tests.

use std::fmt;

use lnet_proto::lst::{Check, Direction, Name};

use super::groups::listed_states;
use super::options::{self, Args, Opt};
use super::{Command, CommandError, Defaults, Plan, operation};
use crate::console::{AddTest, BrwTest, ConsoleOperation, Distribution, TestKind};

const BATCH: &str = "the name of a batch";

/// Bytes of a transfer if the command does not say it.
const SIZE: u32 = 4096;

/// Returns the batch that every session begins with.
pub(super) fn default_batch() -> Result<Name, CommandError> {
    options::name("batch")
}

pub(super) fn add_batch(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[])?;
    let name = args.next_name(BATCH)?;
    args.end()?;
    Ok(operation(ConsoleOperation::AddBatch { name }))
}

pub(super) fn add_test(words: &[String]) -> Result<Command, CommandError> {
    let table = ["batch", "loop", "concurrency", "distribute", "from", "to"].map(Opt::Value);
    let mut args = Args::sort(words, &table)?;
    let (kind, concurrency) = test(&mut args)?;
    let add = AddTest {
        batch: args.value("batch").map_or_else(default_batch, options::name)?,
        from: args.required_name("from")?,
        to: args.required_name("to")?,
        kind,
        repeats: repeats(&args)?,
        concurrency: args.number("concurrency", concurrency)?,
        distribution: distribution(&args)?,
    };
    Ok(operation(ConsoleOperation::AddTest(add)))
}

pub(super) fn run(words: &[String], defaults: &Defaults) -> Result<Command, CommandError> {
    if words.iter().any(|word| word.starts_with("--from") || word.starts_with("--to")) {
        return Plan::parse(words, defaults).map(Command::Plan);
    }
    let mut args = Args::sort(words, &[Opt::Value("timeout")])?;
    let batch = args.next().map_or_else(default_batch, options::name)?;
    args.end()?;
    Ok(operation(ConsoleOperation::Run { batch, timeout_s: args.number("timeout", 0)? }))
}

pub(super) fn stop(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[Opt::Flag("force")])?;
    let batch = args.next().map_or_else(default_batch, options::name)?;
    args.end()?;
    Ok(operation(ConsoleOperation::Stop { batch, force: args.has("force") }))
}

pub(super) fn list_batch(words: &[String]) -> Result<Command, CommandError> {
    let table = [
        Opt::Value("test"),
        Opt::Flag("server"),
        Opt::Flag("active"),
        Opt::Flag("invalid"),
        Opt::Flag("all"),
    ];
    let mut args = Args::sort(words, &table)?;
    let batch = args.next().map(options::name).transpose()?;
    args.end()?;
    let (test, servers) = (args.number("test", 0)?, args.has("server"));
    Ok(Command::ListBatch { batch, test, servers, states: listed_states(&args) })
}

/// Reads a test and its parameters from the operands. `concurrency=` is a parameter, too; it is 1
/// without.
pub(super) fn test(args: &mut Args<'_>) -> Result<(TestKind, u32), CommandError> {
    let mut brw = BrwTest { direction: Direction::READ, check: Check::NONE, length: SIZE, offset: 0 };
    let mut concurrency = 1;
    let is_brw = match args.next() {
        Some("ping") => false,
        Some("brw") => true,
        Some(word) => return Err(CommandError::word(word, "a test: ping or brw")),
        None => return Err(CommandError::missing("a test: ping or brw")),
    };
    while let Some(word) = args.next() {
        match word.split_once('=') {
            Some(("concurrency", value)) => {
                concurrency = options::number(value, || number_of("concurrency"))?
            }
            _ if is_brw => parameter(&mut brw, word)?,
            _ => return Err(CommandError::word(word, "a parameter of ping: concurrency=N")),
        }
    }
    Ok((if is_brw { TestKind::Brw(brw) } else { TestKind::Ping }, concurrency))
}

/// The words of a test, as this language has them.
impl fmt::Display for TestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestKind::Brw(BrwTest { direction, check, length, offset }) = self else {
            return f.write_str("ping");
        };
        let direction = if *direction == Direction::READ { "read" } else { "write" };
        let named = CHECKS.iter().find(|(_, named)| named == check).map_or("none", |(name, _)| name);
        write!(f, "brw {direction} check={named} size={length}")?;
        if *offset == 0 { Ok(()) } else { write!(f, " off={offset}") }
    }
}

/// Reads a parameter of brw.
fn parameter(brw: &mut BrwTest, word: &str) -> Result<(), CommandError> {
    match (word, word.split_once('=')) {
        ("read", _) => brw.direction = Direction::READ,
        ("write", _) => brw.direction = Direction::WRITE,
        ("skip_rx_copy", _) => brw.check = Check::DISCARD,
        (_, Some(("check", value))) => brw.check = check(value)?,
        (_, Some(("size", value))) => brw.length = size(value)?,
        (_, Some(("off", value))) => brw.offset = size(value)?,
        _ => {
            let expected = "a parameter of brw: read, write, size=, check=, off=, skip_rx_copy, concurrency=";
            return Err(CommandError::word(word, expected));
        }
    }
    Ok(())
}

/// The names of the checks.
const CHECKS: [(&str, Check); 4] =
    [("none", Check::NONE), ("simple", Check::SIMPLE), ("full", Check::FULL), ("discard", Check::DISCARD)];

fn check(word: &str) -> Result<Check, CommandError> {
    let found = CHECKS.iter().find(|(name, _)| *name == word).map(|(_, check)| *check);
    found.ok_or_else(|| CommandError::word(word, "a check: none, simple, full or discard"))
}

/// Reads a number of bytes, with `k` or `M` behind it.
fn size(word: &str) -> Result<u32, CommandError> {
    let expected = || "a number of bytes, such as 4096, 64k or 1M".to_owned();
    let (digits, shift) = match word.as_bytes().last() {
        Some(b'k' | b'K') => (&word[..word.len() - 1], 10),
        Some(b'm' | b'M') => (&word[..word.len() - 1], 20),
        _ => (word, 0),
    };
    let number: u32 = options::number(digits, expected).map_err(|_| CommandError::word(word, expected()))?;
    number.checked_mul(1 << shift).ok_or_else(|| CommandError::word(word, expected()))
}

fn repeats(args: &Args<'_>) -> Result<Option<u32>, CommandError> {
    match args.value("loop") {
        None | Some("-1") => Ok(None),
        Some(word) => options::number(word, || "a number of --loop, or -1 for no end".to_owned()).map(Some),
    }
}

/// Reads `--distribute`: clients for servers, `1:1` without.
pub(super) fn distribution(args: &Args<'_>) -> Result<Distribution, CommandError> {
    let Some(word) = args.value("distribute") else { return Ok(Distribution { clients: 1, servers: 1 }) };
    let expected = || "a distribution CLIENTS:SERVERS, such as 1:1".to_owned();
    let wrong = |_| CommandError::word(word, expected());
    let (clients, servers) = word.split_once(':').ok_or_else(|| wrong(()))?;
    let read = |digits| options::number(digits, expected).map_err(|_| wrong(()));
    Ok(Distribution { clients: read(clients)?, servers: read(servers)? })
}

pub(super) fn number_of(what: &str) -> String {
    format!("a number of {what}")
}

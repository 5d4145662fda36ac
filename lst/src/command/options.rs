//! Options and operands of a command.

use std::str::FromStr;

use lnet_proto::lst::{NAME_LEN, Name};

use super::{CommandError, NodeList};

/// An option that a command has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opt {
    /// `--name`.
    Flag(&'static str),
    /// `--name VALUE` or `--name=VALUE`.
    Value(&'static str),
}

impl Opt {
    const fn name(self) -> &'static str {
        match self {
            Opt::Flag(name) | Opt::Value(name) => name,
        }
    }
}

/// The words of a command, sorted.
#[derive(Debug, Default)]
pub(super) struct Args<'a> {
    options: Vec<(&'static str, &'a str)>,
    operands: Vec<&'a str>,
    taken: usize,
}

impl<'a> Args<'a> {
    /// Sorts the words behind a command's name. An option may be cut to a unique beginning.
    pub(super) fn sort(words: &'a [String], table: &[Opt]) -> Result<Args<'a>, CommandError> {
        let mut args = Args::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
                args.operands.push(word);
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            match (find(table, name).ok_or_else(|| unknown(word, table))?, value) {
                (Opt::Flag(name), None) => args.options.push((name, "")),
                (Opt::Flag(name), Some(_)) => {
                    return Err(CommandError::word(word, format!("--{name}, which has no value")));
                }
                (Opt::Value(name), value) => {
                    let value = value.or_else(|| words.next().map(String::as_str));
                    let missing = || CommandError::missing(format!("a value of --{name}"));
                    args.options.push((name, value.ok_or_else(missing)?));
                }
            }
        }
        Ok(args)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    /// Returns the last value of an option.
    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.values(name).last()
    }

    /// Returns all values of an option.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(option, _)| *option == name).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, name: &str, default: u32) -> Result<u32, CommandError> {
        Ok(self.optional_number(name)?.unwrap_or(default))
    }

    pub(super) fn optional_number(&self, name: &str) -> Result<Option<u32>, CommandError> {
        let expected = || format!("a number of --{name}");
        self.value(name).map(|value| number(value, expected)).transpose()
    }

    /// Returns the name in an option that must be there.
    pub(super) fn required_name(&self, option: &str) -> Result<Name, CommandError> {
        let value = self.value(option).ok_or_else(|| CommandError::missing(format!("--{option}")))?;
        name(value)
    }

    /// Returns the next operand.
    pub(super) fn next(&mut self) -> Option<&'a str> {
        let word = self.operands.get(self.taken)?;
        self.taken += 1;
        Some(word)
    }

    /// Returns the next operand, which must be a name.
    pub(super) fn next_name(&mut self, expected: &str) -> Result<Name, CommandError> {
        name(self.next().ok_or_else(|| CommandError::missing(expected))?)
    }

    /// Refuses operands that are left.
    pub(super) fn end(&self) -> Result<(), CommandError> {
        match self.operands.get(self.taken) {
            Some(word) => Err(CommandError::word(word, "expected: the command has no further word")),
            None => Ok(()),
        }
    }
}

fn find(table: &[Opt], name: &str) -> Option<Opt> {
    let exact = table.iter().find(|option| option.name() == name);
    let mut begun = table.iter().filter(|option| option.name().starts_with(name));
    let unique = begun.next().filter(|_| begun.next().is_none());
    exact.or(unique).copied()
}

fn unknown(word: &str, table: &[Opt]) -> CommandError {
    let names: Vec<String> = table.iter().map(|option| format!("--{}", option.name())).collect();
    let expected = match names.is_empty() {
        true => "expected: the command has no options".to_owned(),
        false => format!("an option of the command: {}", names.join(", ")),
    };
    CommandError::word(word, expected)
}

/// Reads the name of a session, group or batch.
pub(super) fn name(word: &str) -> Result<Name, CommandError> {
    let limit = NAME_LEN - 1;
    let read = Name::new(word).ok().filter(|name| *name != Name::EMPTY);
    read.ok_or_else(|| CommandError::word(word, format!("a name of 1 to {limit} bytes")))
}

/// Reads a decimal number.
pub(super) fn number<T: FromStr>(word: &str, expected: impl Fn() -> String) -> Result<T, CommandError> {
    let digits = !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_digit());
    word.parse().ok().filter(|_| digits).ok_or_else(|| CommandError::word(word, expected()))
}

/// Reads lists of nodes that are given in several words.
pub(super) fn nodes<'a>(words: impl Iterator<Item = &'a str>) -> Result<NodeList, CommandError> {
    words.collect::<Vec<_>>().join(" ").parse()
}

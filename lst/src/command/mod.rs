//! The language of `lst` (lst 12): commands as administrators know them, and scripts of them.
//!
//! [`parse`] makes a [`Command`] of a line. Nothing is looked up and nothing is sent: a command
//! holds a [`ConsoleOperation`] for the [`Console`](crate::console::Console), or names a list of it.
//!
//! ```
//! use nlx_lst::command::{Command, Defaults, parse};
//! use nlx_lst::console::ConsoleOperation;
//!
//! let line = "lst add_group servers 10.0.0.[1-4,8]@tcp # all of them";
//! let Some(Command::Operation { operation, .. }) = parse(line, &Defaults::default())? else {
//!     panic!("{line} is an operation");
//! };
//! let ConsoleOperation::AddGroup { name, nodes } = operation else { panic!("{operation:?}") };
//! assert_eq!((name.to_string().as_str(), nodes.len()), ("servers", 5));
//! # Ok::<(), nlx_lst::command::CommandError>(())
//! ```

mod error;
mod groups;
mod nodes;
mod observe;
mod options;
mod plan;
mod testing;
mod words;

use lnet_proto::lst::{Features, Name};

use crate::console::{ConsoleOperation, NewSession, NodeStates};

pub use error::CommandError;
pub use nodes::NodeList;
pub use plan::Plan;
pub use words::{LINE_MAX, script_lines, split_words};

use options::{Args, Opt};

/// A parsed line of the language of `lst`, for shells, scripts and sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// An operation of the console.
    Operation {
        /// The operation that the line asks for.
        operation: ConsoleOperation,
        /// Which of its results are printed.
        view: View,
    },
    /// `show_session`.
    ShowSession,
    /// `list_group`: the groups of the session, or the nodes of some.
    ListGroup {
        /// The groups; if there is none, the names of all are listed.
        groups: Vec<Name>,
        /// The nodes that are listed, by their states; if there is none, only numbers are.
        states: NodeStates,
    },
    /// `list_batch`: the batches of the session, or one batch.
    ListBatch {
        /// The batch; without one, the names of all are listed.
        batch: Option<Name>,
        /// The test, from 1; 0 is every test.
        test: u32,
        /// Whether servers are listed instead of clients.
        servers: bool,
        /// The nodes that are listed, by their states; if there is none, only numbers are.
        states: NodeStates,
    },
    /// `run --from … --to …`: a whole session in one command.
    Plan(Plan),
    /// `sleep`: a pause in a script.
    Sleep {
        /// Seconds to pause.
        seconds: u32,
    },
}

/// Which results of an operation are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The whole report, for commands whose output has no options.
    All,
    /// The nodes of `add_group`, as the user wrote them.
    AddGroup {
        /// The list of nodes, for the output.
        nodes: String,
    },
    /// The nodes of a query in the selected states.
    Query(QueryView),
    /// The rates of `stat` in the selected units.
    Stat(StatView),
    /// The counters of `show_error`: those of the session, or also those of RPCs.
    Errors {
        /// `--session`.
        session_only: bool,
    },
}

/// The nodes that `query` prints. If none is set, it prints only a line for the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryView {
    /// Nodes at which something runs.
    pub active: bool,
    /// Nodes at which nothing runs.
    pub idle: bool,
    /// Nodes that failed.
    pub error: bool,
}

/// The rates that `stat` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatView {
    /// Messages per second.
    pub rate: bool,
    /// Bytes per second.
    pub bandwidth: bool,
    /// The lines of received messages, `[R]`: `--write`.
    pub received: bool,
    /// The lines of sent messages, `[W]`: `--read`, since servers send what is read.
    pub sent: bool,
    /// Print the averages over the nodes.
    pub average: bool,
    /// Print the lowest value of a node.
    pub minimum: bool,
    /// Print the highest value of a node.
    pub maximum: bool,
    /// Whether bandwidth is in units of 10⁶ bytes instead of 2²⁰.
    pub mbs: bool,
}

impl Default for StatView {
    /// Returns everything that there is, in MiB/s.
    fn default() -> StatView {
        StatView {
            rate: true,
            bandwidth: true,
            received: true,
            sent: true,
            average: true,
            minimum: true,
            maximum: true,
            mbs: false,
        }
    }
}

/// What a new session has if the command does not say it.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Its name: `user@host`.
    pub name: Name,
    /// Its stamp ([`NewSession::stamp`]).
    pub stamp: i64,
    /// The features asked of nodes: the variable `LST_FEATURES`.
    pub features: Features,
}

impl Default for Defaults {
    /// Returns a nameless session with stamp 0.
    fn default() -> Defaults {
        Defaults { name: Name::EMPTY, stamp: 0, features: Features::BULK_LENGTH }
    }
}

/// Seconds without a command after which a console ends its session.
pub(crate) const SESSION_TIMEOUT_S: u32 = 300;

/// The commands, as an error lists them.
const COMMANDS: &str = "a command: new_session, end_session, show_session, add_group, del_group, \
    update_group, list_group, add_batch, add_test, run, stop, query, list_batch, stat, show_error, ping, sleep";

/// Reads a line. Returns `None` if it has no command: it is empty or a comment, or it sets
/// `LST_SESSION`, which only kernel consoles need.
///
/// # Errors
/// The line is no command.
pub fn parse(line: &str, defaults: &Defaults) -> Result<Option<Command>, CommandError> {
    parse_words(&split_words(line)?, defaults)
}

/// Reads a command from its words. See [`parse`].
///
/// # Errors
/// The words are no command.
pub fn parse_words(words: &[String], defaults: &Defaults) -> Result<Option<Command>, CommandError> {
    let words = match words {
        [lst, rest @ ..] if lst == "lst" => rest,
        [export, rest @ ..] if export == "export" => rest,
        words => words,
    };
    let Some((command, rest)) = words.split_first() else { return Ok(None) };
    if command.starts_with("LST_SESSION=") {
        return Ok(None);
    }
    let command = match command.as_str() {
        "new_session" => new_session(rest, defaults),
        "end_session" => end(rest, operation(ConsoleOperation::EndSession)),
        "show_session" => end(rest, Command::ShowSession),
        "add_group" => groups::add_group(rest),
        "del_group" => groups::del_group(rest),
        "update_group" => groups::update_group(rest),
        "list_group" => groups::list_group(rest),
        "add_batch" => testing::add_batch(rest),
        "add_test" => testing::add_test(rest),
        "run" => testing::run(rest, defaults),
        "stop" => testing::stop(rest),
        "list_batch" => testing::list_batch(rest),
        "query" => observe::query(rest),
        "stat" => observe::stat(rest),
        "show_error" => observe::show_error(rest),
        "ping" => observe::ping(rest),
        "sleep" => sleep(rest),
        word => Err(CommandError::word(word, COMMANDS)),
    };
    command.map(Some)
}

/// Returns the command of an operation of which everything is printed.
fn operation(operation: ConsoleOperation) -> Command {
    Command::Operation { operation, view: View::All }
}

/// Returns a command that has no further words.
fn end(words: &[String], command: Command) -> Result<Command, CommandError> {
    Args::sort(words, &[])?.end()?;
    Ok(command)
}

fn new_session(words: &[String], defaults: &Defaults) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[Opt::Value("timeout"), Opt::Flag("force")])?;
    let name = args.next().map_or(Ok(defaults.name), options::name)?;
    args.end()?;
    Ok(operation(ConsoleOperation::NewSession(NewSession {
        name,
        stamp: defaults.stamp,
        timeout_s: args.number("timeout", SESSION_TIMEOUT_S)?,
        force: args.has("force"),
        features: defaults.features,
    })))
}

fn sleep(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[])?;
    let expected = || "a number of seconds".to_owned();
    let seconds = args.next().ok_or_else(|| CommandError::missing(expected()))?;
    args.end()?;
    Ok(Command::Sleep { seconds: options::number(seconds, expected)? })
}

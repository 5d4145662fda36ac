//! Commands of groups.

use lnet_proto::lst::Name;

use super::options::{self, Args, Opt};
use super::{Command, CommandError, View, operation};
use crate::console::{ConsoleOperation, GroupUpdate, NodeState, NodeStates};

const GROUP: &str = "the name of a group";

pub(super) fn add_group(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[])?;
    let name = args.next_name(GROUP)?;
    let given: Vec<&str> = std::iter::from_fn(|| args.next()).collect();
    let view = View::AddGroup { nodes: given.join(" ") };
    let nodes = options::nodes(given.into_iter())?.members()?;
    Ok(Command::Operation { operation: ConsoleOperation::AddGroup { name, nodes }, view })
}

pub(super) fn del_group(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[])?;
    let name = args.next_name(GROUP)?;
    args.end()?;
    Ok(operation(ConsoleOperation::DelGroup { name }))
}

pub(super) fn update_group(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &[Opt::Flag("refresh"), Opt::Value("clean"), Opt::Value("remove")])?;
    let name = args.next_name(GROUP)?;
    args.end()?;
    let update = match (args.has("refresh"), args.value("clean"), args.value("remove")) {
        (true, None, None) => GroupUpdate::Refresh,
        (false, Some(states), None) => GroupUpdate::Clean(self::states(states)?),
        (false, None, Some(_)) => GroupUpdate::Remove(options::nodes(args.values("remove"))?.members()?),
        _ => return Err(CommandError::missing("one of --refresh, --clean, --remove")),
    };
    Ok(operation(ConsoleOperation::UpdateGroup { name, update }))
}

pub(super) fn list_group(words: &[String]) -> Result<Command, CommandError> {
    let mut args = Args::sort(words, &LISTED)?;
    let groups: Vec<Name> =
        std::iter::from_fn(|| args.next()).map(options::name).collect::<Result<_, _>>()?;
    Ok(Command::ListGroup { groups, states: listed_states(&args) })
}

/// Options that select nodes by state.
const LISTED: [Opt; 6] = [
    Opt::Flag("active"),
    Opt::Flag("busy"),
    Opt::Flag("down"),
    Opt::Flag("unknown"),
    Opt::Flag("invalid"),
    Opt::Flag("all"),
];

/// Returns the states that the options of a list select.
pub(super) fn listed_states(args: &Args<'_>) -> NodeStates {
    let names = LISTED.iter().filter_map(|option| match option {
        Opt::Flag(name) => Some(*name),
        Opt::Value(_) => None,
    });
    let selected = names.filter(|name| args.has(name)).filter_map(|name| states(name).ok());
    selected.fold(NodeStates::default(), |all, states| all | states)
}

/// Reads the name of a state, or of several.
fn states(word: &str) -> Result<NodeStates, CommandError> {
    Ok(match word {
        "active" => NodeState::Active.into(),
        "busy" => NodeState::Busy.into(),
        "down" => NodeState::Down.into(),
        "unknown" => NodeState::Unknown.into(),
        "invalid" => NodeStates::INVALID,
        "all" => NodeStates::ALL,
        _ => return Err(CommandError::word(word, "active, busy, down, unknown, invalid or all")),
    })
}

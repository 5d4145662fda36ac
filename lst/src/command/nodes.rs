//! Lists of nodes: `10.0.0.[1-4,8]@tcp`.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use lnet_nid::{NidError, NidList, Pid, ProcessId};

use super::CommandError;
use crate::console::NODES_MAX;

/// Nodes, as the command line names them: expressions of a [`NidList`], separated by blanks, or by
/// commas outside of brackets. The process id is that of kernel nodes, or the number before a `-`:
/// `20000-10.0.0.1@tcp`.
///
/// It prints in a canonical form, which parses to an equal list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeList(Vec<(Pid, NidList)>);

impl NodeList {
    /// Returns the nodes one by one, each once.
    ///
    /// # Errors
    /// [`CommandError::Nodes`] or [`CommandError::TooMany`] if there are more than
    /// [`NODES_MAX`], as there are with `*` for an address.
    pub fn members(&self) -> Result<Vec<ProcessId>, CommandError> {
        let mut members = Vec::new();
        let mut seen = HashSet::new();
        for (pid, nids) in &self.0 {
            let nodes = nids.members(NODES_MAX)?.into_iter().map(|nid| ProcessId::new(nid, *pid));
            members.extend(nodes.filter(|node| seen.insert(*node)));
            if members.len() > NODES_MAX {
                return Err(CommandError::TooMany { what: "nodes in a list", limit: NODES_MAX });
            }
        }
        Ok(members)
    }
}

impl FromStr for NodeList {
    type Err = CommandError;

    fn from_str(text: &str) -> Result<NodeList, CommandError> {
        let mut list = Vec::new();
        for expression in expressions(text) {
            if list.len() == NidList::EXPRESSIONS_MAX {
                let limit = NidList::EXPRESSIONS_MAX;
                return Err(CommandError::TooMany { what: "expressions in a list of nodes", limit });
            }
            list.push(entry(expression)?);
        }
        match list.is_empty() {
            true => Err(CommandError::missing("a list of nodes, such as 10.0.0.[1-4,8]@tcp")),
            false => Ok(NodeList(list)),
        }
    }
}

/// Returns the expressions of a list.
fn expressions(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    let parts = text.split(move |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter.is_whitespace() || (letter == ',' && depth == 0)
    });
    parts.filter(|part| !part.is_empty())
}

/// Reads an expression with its process id.
fn entry(text: &str) -> Result<(Pid, NidList), NidError> {
    let pid = text.split_once('-').filter(|(pid, _)| {
        let digits = pid.strip_prefix('U').unwrap_or(pid);
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    });
    match pid {
        Some((pid, nids)) => Ok((pid.parse()?, nids.parse()?)),
        None => Ok((Pid::LNET, text.parse()?)),
    }
}

impl fmt::Display for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (pid, nids)) in self.0.iter().enumerate() {
            let blank = if number > 0 { " " } else { "" };
            match *pid {
                Pid::LNET => write!(f, "{blank}{nids}")?,
                pid => write!(f, "{blank}{pid}-{nids}")?,
            }
        }
        Ok(())
    }
}

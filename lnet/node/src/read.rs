//! Parses the texts of networks (lnet-semantics 24):
//!
//! ```text
//! networks := net { separator net }
//! net      := name [ ':' cpt ] [ '(' iface { ',' iface } ')' ] [ '[' cpts ']' ]
//! iface    := ifname [ '[' cpts ']' ]
//! ```
//!
//! A separator is a comma, blanks, or both; the colon is the older form for one partition (S-315).

use lnet_nid::Net;

use crate::NodeError;
use crate::cpts::{CptListError, CptSet};
use crate::networks::{NetInterface, NetSpec};

/// The maximum length of a text, in bytes: that of a kernel module option.
pub(crate) const MAX_TEXT_BYTES: usize = 4096;

/// The characters that end a name.
const MARKS: [char; 6] = ['(', ')', '[', ']', ',', ':'];

/// A text being parsed.
pub(crate) struct Reader<'a> {
    text: &'a str,
    position: usize,
    /// The interfaces that the text has named so far.
    seen: Vec<(Net, &'a str)>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Reader<'a>, NodeError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(NodeError::NetworksLength { bytes: text.len(), max: MAX_TEXT_BYTES });
        }
        Ok(Reader { text, position: 0, seen: Vec::new() })
    }

    /// Parses one network.
    pub(crate) fn one(mut self) -> Result<NetSpec, NodeError> {
        self.blanks();
        let net = self.net()?;
        self.blanks();
        if self.rest().is_empty() {
            Ok(net)
        } else {
            Err(self.refuse("expected one network: give --net once for each"))
        }
    }

    /// Parses one or more networks.
    pub(crate) fn all(mut self) -> Result<Vec<NetSpec>, NodeError> {
        let mut nets = Vec::new();
        self.blanks();
        loop {
            nets.push(self.net()?);
            let blank = self.blanks();
            if self.rest().is_empty() {
                return Ok(nets);
            }
            if self.take(',') {
                self.blanks();
            } else if !blank {
                return Err(self.refuse("expected a comma or a blank between networks"));
            }
        }
    }

    fn net(&mut self) -> Result<NetSpec, NodeError> {
        let start = self.position;
        let name = self.word(&MARKS);
        if name.is_empty() {
            return Err(self.refuse("expected a network, for instance 'tcp(eth0)'"));
        }
        let net: Net =
            name.parse().map_err(|error: lnet_nid::NidError| self.refuse_at(start, error.to_string()))?;
        if net.is_any() {
            return Err(self.refuse_at(start, "one network must be named, not all of them"));
        }
        let colon = self.take(':').then(|| self.one_cpt()).transpose()?;
        let interfaces = if self.take('(') { self.interfaces(net)? } else { Vec::new() };
        let list = self.cpts()?;
        let cpts = match (colon, list) {
            (Some(_), Some(_)) => {
                return Err(self.refuse_at(start, "its CPU partitions are both behind ':' and in '[ ]'"));
            }
            (colon, list) => colon.or(list).unwrap_or_default(),
        };
        Ok(NetSpec { interfaces, cpts, ..NetSpec::plain(net) })
    }

    /// Parses the interfaces, from behind the opening parenthesis up to and including the closing
    /// one.
    fn interfaces(&mut self, net: Net) -> Result<Vec<NetInterface>, NodeError> {
        let mut interfaces = Vec::new();
        loop {
            self.blanks();
            let start = self.position;
            // Colons are part of the names of aliases, and of addresses.
            let name = self.word(&MARKS[..5]);
            if name.is_empty() {
                return Err(self.refuse("expected the name or address of an interface"));
            }
            if self.seen.contains(&(net, name)) {
                return Err(self.refuse_at(start, format!("{net} has the interface '{name}' twice")));
            }
            self.seen.push((net, name));
            let cpts = self.cpts()?.unwrap_or_default();
            interfaces.push(NetInterface { name: name.to_string(), cpts, address: None });
            self.blanks();
            if self.take(')') {
                return Ok(interfaces);
            }
            if !self.take(',') {
                return Err(self.refuse("a comma or the closing ')' is missing"));
            }
        }
    }

    /// Parses the partitions in brackets, if there are any: `[ '[' cpts ']' ]`.
    fn cpts(&mut self) -> Result<Option<CptSet>, NodeError> {
        let open = self.position;
        if !self.take('[') {
            return Ok(None);
        }
        let Some((list, _)) = self.rest().split_once(']') else {
            return Err(self.refuse_at(open, "the closing ']' is missing"));
        };
        let cpts = self.list(list)?;
        self.position += 1;
        Ok(Some(cpts))
    }

    /// Parses the single partition after a colon.
    fn one_cpt(&mut self) -> Result<CptSet, NodeError> {
        let rest = self.rest();
        let digits = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
        self.list(&rest[..digits])
    }

    /// Parses the list at the current position.
    fn list(&mut self, list: &str) -> Result<CptSet, NodeError> {
        let start = self.position;
        let refuse = |CptListError { position, reason }| self.refuse_at(start + position, reason);
        let cpts = CptSet::read(list).map_err(refuse)?;
        self.position += list.len();
        Ok(cpts)
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.rest().starts_with(mark);
        self.position += if found { mark.len_utf8() } else { 0 };
        found
    }

    /// Removes and returns the word before the next of these marks, the next blank or the end.
    fn word(&mut self, marks: &[char]) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|next: char| next.is_whitespace() || marks.contains(&next));
        let word = &rest[..end.unwrap_or(rest.len())];
        self.position += word.len();
        word
    }

    /// Skips blanks; returns whether there were any.
    fn blanks(&mut self) -> bool {
        let blanks = self.rest().len() - self.rest().trim_start().len();
        self.position += blanks;
        blanks > 0
    }

    fn refuse(&self, reason: impl Into<String>) -> NodeError {
        self.refuse_at(self.position, reason)
    }

    fn refuse_at(&self, position: usize, reason: impl Into<String>) -> NodeError {
        NodeError::Network { text: self.text.to_string(), position, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;

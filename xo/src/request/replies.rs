//! Answers that are being sent, by destination node.
//!
//! A node that does not receive its answers must not use up the server's memory, or keep answers
//! from other nodes: at most [`OF_ONE_NODE`] answers to it are in flight. Further ones are dropped,
//! as a network would.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nlx_core::Nid;
use nlx_sync::Slots;

/// Maximum number of answers in flight to one node: more than the requests in flight of its
/// programs, in any reasonable use. At the default length they take 16 MiB.
pub(super) const OF_ONE_NODE: usize = 4096;

/// Maximum number of answers in flight in total, so that peers that forge the NIDs of many nodes
/// are limited too: far fewer than a transfer machine has room for events, unless it was started
/// with less.
pub(super) const OF_ALL: usize = 1 << 16;

pub(super) struct Replies {
    /// The nodes that have answers in flight; an entry's index is the tag of their operations.
    nodes: Slots<Node>,
    indices: HashMap<Nid, u32, RandomState>,
    under_way: usize,
}

struct Node {
    nid: Nid,
    under_way: usize,
}

impl Default for Replies {
    fn default() -> Replies {
        Replies { nodes: Slots::new(OF_ALL), indices: HashMap::default(), under_way: 0 }
    }
}

impl Replies {
    /// Counts an answer, and returns the tag to send it with; `None` if a limit is reached.
    pub(super) fn begin(&mut self, nid: Nid) -> Option<u64> {
        if self.under_way >= OF_ALL {
            return None;
        }
        let index = match self.indices.get(&nid) {
            Some(&index) if self.nodes[index].under_way >= OF_ONE_NODE => return None,
            Some(&index) => index,
            None => self.enter(nid)?,
        };
        self.nodes[index].under_way += 1;
        self.under_way += 1;
        Some(index.into())
    }

    /// Counts down: the answer with this tag has left, or could not be sent.
    pub(super) fn end(&mut self, tag: u64) {
        let index = tag as u32;
        let Some(node) = self.nodes.at_mut(index) else { return };
        node.under_way -= 1;
        self.under_way -= 1;
        if node.under_way == 0 {
            self.indices.remove(&node.nid);
            self.nodes.take(index);
        }
    }

    fn enter(&mut self, nid: Nid) -> Option<u32> {
        let index = self.nodes.insert(Node { nid, under_way: 0 })?.index;
        self.indices.insert(nid, index);
        Some(index)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn nid(number: usize) -> Nid {
        format!("10.0.{}.{}@tcp", number / 256, number % 256).parse().expect("it is a NID")
    }

    #[test]
    fn a_node_that_takes_no_answers_harms_no_other() {
        let mut replies = Replies::default();
        let tags: Vec<_> = (0..OF_ONE_NODE).map(|_| replies.begin(nid(1)).expect("there is room")).collect();
        assert_eq!(replies.begin(nid(1)), None);
        let other = replies.begin(nid(2)).expect("it is another's room");
        replies.end(tags[0]);
        assert_eq!(replies.begin(nid(1)), Some(tags[0]));
        replies.end(other);
        replies.end(other);
        assert_eq!(replies.under_way, OF_ONE_NODE);
        // Entries are reused.
        for number in 2..1000 {
            let tag = replies.begin(nid(number)).expect("there is room");
            replies.end(tag);
        }
        assert_eq!((replies.nodes.used(), replies.indices.len()), (2, 1));
    }

    #[test]
    fn many_names_find_an_end() {
        let mut replies = Replies::default();
        let begun = (0..2 * OF_ALL).filter_map(|number| replies.begin(nid(number / 4))).count();
        assert_eq!(begun, OF_ALL);
    }
}

//! Answers that have not left, by the node that they are for.
//!
//! A node that takes no answers must not cost the server all its memory, nor the other nodes their answers: it has as many
//! under way as [`OF_ONE_NODE`], and what is more is dropped, as a network would.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nlx_core::Nid;
use nlx_sync::Slots;

/// Answers to one node that may be under way: more than its programs' requests, in any sane use. Of the default size they are
/// 16 MiB.
pub(super) const OF_ONE_NODE: usize = 4096;

/// Answers that may be under way in all, so that strangers with the names of many nodes find an end, too: far fewer than a
/// transfer machine has room for events, unless it was started with less.
pub(super) const OF_ALL: usize = 1 << 16;

pub(super) struct Replies {
    /// The nodes that answers are under way to, at the places that their sendings are tagged with.
    nodes: Slots<Node>,
    places: HashMap<Nid, u32, RandomState>,
    under_way: usize,
}

struct Node {
    nid: Nid,
    under_way: usize,
}

impl Default for Replies {
    fn default() -> Replies {
        Replies { nodes: Slots::new(OF_ALL), places: HashMap::default(), under_way: 0 }
    }
}

impl Replies {
    /// The tag of an answer that is to be sent; `None` if no more may be under way.
    pub(super) fn begin(&mut self, nid: Nid) -> Option<u64> {
        if self.under_way >= OF_ALL {
            return None;
        }
        let place = match self.places.get(&nid) {
            Some(&place) if self.nodes[place].under_way >= OF_ONE_NODE => return None,
            Some(&place) => place,
            None => self.enter(nid)?,
        };
        self.nodes[place].under_way += 1;
        self.under_way += 1;
        Some(place.into())
    }

    /// An answer of this tag has left, or could not be sent.
    pub(super) fn end(&mut self, tag: u64) {
        let place = tag as u32;
        let Some(node) = self.nodes.at_mut(place) else { return };
        node.under_way -= 1;
        self.under_way -= 1;
        if node.under_way == 0 {
            self.places.remove(&node.nid);
            self.nodes.take(place);
        }
    }

    fn enter(&mut self, nid: Nid) -> Option<u32> {
        let place = self.nodes.insert(Node { nid, under_way: 0 })?.index;
        self.places.insert(nid, place);
        Some(place)
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
        // Places are used again.
        for number in 2..1000 {
            let tag = replies.begin(nid(number)).expect("there is room");
            replies.end(tag);
        }
        assert_eq!((replies.nodes.used(), replies.places.len()), (2, 1));
    }

    #[test]
    fn many_names_find_an_end() {
        let mut replies = Replies::default();
        let begun = (0..2 * OF_ALL).filter_map(|number| replies.begin(nid(number / 4))).count();
        assert_eq!(begun, OF_ALL);
    }
}

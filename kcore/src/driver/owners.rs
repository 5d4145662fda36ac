//! Subordinate uids: which user a uid counts for.
//!
//! `/etc/subuid` gives users ranges of uids for their user namespaces. A user can connect as any uid of its ranges, so all
//! of them have one account: that of the range's owner. Ranges from elsewhere (a directory service, `nsswitch.conf`) are not
//! known here; their uids count as users of their own. What a client may use is decided by its real uid alone.

use std::ops::Range;

use super::accounts::UserId;

/// Ranges that are read: two for each of some thousand users. Those beyond are left out.
pub const RANGES_MAX: usize = 4096;

/// Ranges of uids with their owners.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    /// By their first uid; no two overlap.
    ranges: Vec<(Range<u32>, UserId)>,
}

impl Owners {
    /// Reads lines `owner:first:count`, as `/etc/subuid` has them. The owner is a uid or a name, of which `uid_of` gives the
    /// uid. Lines of another form are left out, as are ranges that contain root, and ranges that overlap an earlier one.
    #[must_use]
    pub fn parse(text: &str, mut uid_of: impl FnMut(&str) -> Option<u32>) -> Owners {
        let mut ranges: Vec<(Range<u32>, UserId)> = Vec::new();
        for line in text.lines().take(RANGES_MAX) {
            let mut fields = line.trim().split(':');
            let (Some(owner), Some(first), Some(count)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (Ok(first), Ok(count)) = (first.parse::<u32>(), count.parse::<u32>()) else { continue };
            let Some(end) = first.checked_add(count) else { continue };
            let Some(owner) = owner.parse().ok().or_else(|| uid_of(owner)) else { continue };
            let overlaps = ranges.iter().any(|(other, _)| first < other.end && other.start < end);
            if count > 0 && first > 0 && !overlaps {
                ranges.push((first..end, UserId(owner)));
            }
        }
        ranges.sort_by_key(|(range, _)| range.start);
        Owners { ranges }
    }

    /// The user that a uid counts for: its owner, or itself. Owners are not looked up again.
    #[must_use]
    pub fn user_of(&self, uid: u32) -> UserId {
        let after = self.ranges.partition_point(|(range, _)| range.start <= uid);
        let found = after.checked_sub(1).map(|at| &self.ranges[at]).filter(|(range, _)| range.contains(&uid));
        found.map_or(UserId(uid), |(_, owner)| *owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> Option<u32> {
        [("root", 0), ("alice", 1000), ("bob", 1001)]
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, uid)| uid)
    }

    #[test]
    fn uids_of_a_range_count_for_its_owner() {
        let owners = Owners::parse("alice:100000:65536\n1001:165536:65536\n\n# no line\n", names);
        let users = [0, 1000, 99_999, 100_000, 165_535, 165_536, 231_071, 231_072, u32::MAX];
        let expected = [0, 1000, 99_999, 1000, 1000, 1001, 1001, 231_072, u32::MAX];
        assert_eq!(users.map(|uid| owners.user_of(uid)), expected.map(UserId));
    }

    #[test]
    fn what_is_no_range_or_belongs_to_others_is_left_out() {
        let text = "alice:0:10\nbob:100:0\nnobody-knows:100:10\nalice:x:10\nbob:4294967295:2\nalice:100:10\nbob:105:1\nbob:110:1";
        let owners = Owners::parse(text, names);
        let users = [0, 5, 100, 105, 109, 110, 111].map(|uid| owners.user_of(uid).0);
        assert_eq!(users, [0, 5, 1000, 1000, 1000, 1001, 111]);
    }
}

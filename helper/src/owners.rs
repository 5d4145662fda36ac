//! Subordinate uids: the user that is charged for a uid.
//!
//! `/etc/subuid` gives users ranges of uids for their user namespaces. A user can connect as any
//! uid of its ranges, so all of them share the account of the range's owner. The ranges of root,
//! and of the user that the helper runs as, are for containers that they start (Incus and LXD have
//! such lines), and the users in these are not privileged: each of these ranges has a separate
//! account, that of its first uid. Ranges from other sources (a directory service, `nsswitch.conf`)
//! are not known here; each of their uids counts as a separate user. The real uid alone decides
//! what a client may use.

use std::ops::Range;

use super::accounts::UserId;

/// Lines of the file that are read: two ranges for each of some thousand users. Further lines are
/// ignored.
pub const RANGES_MAX: usize = 4096;

/// Ranges of uids with their owners.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owners {
    /// By their first uid; no two overlap.
    ranges: Vec<(Range<u32>, UserId)>,
}

impl Owners {
    /// Reads lines `owner:first:count`, as in `/etc/subuid`. The owner is a uid, or a name that
    /// `uid_of` resolves; `operator` is the user that the helper runs as. Lines of another form are
    /// ignored, as are ranges that contain root or the operator, and ranges that overlap an earlier
    /// one.
    #[must_use]
    pub fn parse(text: &str, operator: UserId, mut uid_of: impl FnMut(&str) -> Option<u32>) -> Owners {
        let privileged = [UserId::ROOT, operator];
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
            let range = first..end;
            let overlaps = ranges.iter().any(|(other, _)| first < other.end && other.start < end);
            if range.is_empty() || overlaps || privileged.iter().any(|user| range.contains(&user.0)) {
                continue;
            }
            let account = if privileged.contains(&UserId(owner)) { first } else { owner };
            ranges.push((range, UserId(account)));
        }
        ranges.sort_by_key(|(range, _)| range.start);
        Owners { ranges }
    }

    /// Returns the user that is charged for a uid: its owner, the first uid of a range of root's or
    /// of the operator's, or the uid itself. The owner is not resolved again.
    #[must_use]
    pub fn user_of(&self, uid: u32) -> UserId {
        let after = self.ranges.partition_point(|(range, _)| range.start <= uid);
        let found = after.checked_sub(1).map(|at| &self.ranges[at]).filter(|(range, _)| range.contains(&uid));
        found.map_or(UserId(uid), |(_, owner)| *owner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPERATOR: UserId = UserId(900);

    fn names(name: &str) -> Option<u32> {
        [("root", 0), ("alice", 1000), ("bob", 1001)]
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, uid)| uid)
    }

    #[test]
    fn uids_of_a_range_count_for_its_owner() {
        let owners = Owners::parse("alice:100000:65536\n1001:165536:65536\n\n# no line\n", OPERATOR, names);
        let users = [0, 1000, 99_999, 100_000, 165_535, 165_536, 231_071, 231_072, u32::MAX];
        let expected = [0, 1000, 99_999, 1000, 1000, 1001, 1001, 231_072, u32::MAX];
        assert_eq!(users.map(|uid| owners.user_of(uid)), expected.map(UserId));
    }

    #[test]
    fn what_is_no_range_or_belongs_to_others_is_left_out() {
        let text = "alice:0:10\nbob:100:0\nnobody-knows:100:10\nalice:x:10\nbob:4294967295:2\nalice:100:10\nbob:105:1\nbob:110:1";
        let owners = Owners::parse(text, OPERATOR, names);
        let users = [0, 5, 100, 105, 109, 110, 111].map(|uid| owners.user_of(uid).0);
        assert_eq!(users, [0, 5, 1000, 1000, 1000, 1001, 111]);
    }

    /// As Incus and LXD write them: the users of such containers are neither root nor the helper's
    /// user.
    #[test]
    fn ranges_of_root_and_of_the_operator_have_accounts_of_their_own() {
        let text =
            "root:1000000:1000000000\n0:100000:65536\nhelper:200000:10\n900:300000:10\nalice:400000:10\n";
        let uid_of = |name: &str| if name == "helper" { Some(OPERATOR.0) } else { names(name) };
        let owners = Owners::parse(text, OPERATOR, uid_of);
        let users = [1_000_000, 1_000_999, 1_000_999_999, 165_535, 200_009, 300_001, 400_009, 0, 900];
        let expected = [1_000_000, 1_000_000, 1_000_000, 100_000, 200_000, 300_000, 1000, 0, 900];
        assert_eq!(users.map(|uid| owners.user_of(uid)), expected.map(UserId));
    }

    #[test]
    fn ranges_with_the_operator_in_them_are_left_out() {
        let owners = Owners::parse("root:900:10\nalice:890:11\nbob:901:9\n", OPERATOR, names);
        let users = [890, 900, 901, 909].map(|uid| owners.user_of(uid).0);
        assert_eq!(users, [890, 900, 1001, 1001]);
    }

    proptest! {
        /// Whatever the lines contain, no other uid counts as root or as the operator, and these
        /// count for themselves.
        #[test]
        fn no_line_makes_a_uid_privileged(
            lines in prop::collection::vec((0_u32..6, 0_u32..40, 0_u32..12), 0..12),
            operator in 0_u32..40,
        ) {
            let lines: Vec<String> = lines
                .into_iter()
                .map(|(owner, first, count)| match owner {
                    4 => format!("{operator}:{first}:{count}"),
                    5 => format!("root:{first}:{count}"),
                    owner => format!("{owner}:{first}:{count}"),
                })
                .collect();
            let owners = Owners::parse(&lines.join("\n"), UserId(operator), names);
            for uid in 0..60 {
                let privileged = [UserId::ROOT, UserId(operator)];
                let is_privileged = privileged.contains(&owners.user_of(uid));
                prop_assert_eq!(is_privileged, privileged.contains(&UserId(uid)), "{} in {:?}", uid, lines);
            }
        }
    }
}

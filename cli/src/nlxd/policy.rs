//! The policy: who may connect, and the rights of each user.

use lnet_node::{NodeError, Section, Setting};
use nlx_helper::accounts::{GroupCaps, GroupId};
use nlx_helper::{ClientQuotas, Nids, Policy, PortalSet, Rights};

use super::config::{group, read_amounts, read_quotas, user};

/// The rules of the configuration file for users and groups.
#[derive(Default)]
pub(super) struct PolicyFile {
    /// Users and groups that may connect; all, if neither is set.
    pub(super) users: Option<Vec<u32>>,
    pub(super) groups: Option<Vec<u32>>,
    rules: Vec<Rule>,
}

/// A table `[[helper.policy]]`.
struct Rule {
    subject: Subject,
    connects: bool,
    own_portals: Option<PortalSet>,
    own_nids: Option<Nids>,
    portals: Option<PortalSet>,
    nids: Option<Nids>,
    lazy: Option<bool>,
    quotas: Vec<Section>,
    /// Caps of the users that it covers, of each and of all together.
    caps: GroupCaps,
}

/// The users to whom a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    User(u32),
    Group(u32),
    /// All users without a rule of their name or group.
    Others,
}

const KEYS: [&str; 11] = [
    "user",
    "group",
    "connect",
    "own_portals",
    "own_nids",
    "portals",
    "nids",
    "lazy",
    "quotas",
    "per_user",
    "together",
];

impl PolicyFile {
    pub(super) fn read_policies(&mut self, setting: &Setting<'_>) -> Result<(), NodeError> {
        for table in setting.tables()? {
            let rule = Rule::read(&table)?;
            if self.rules.iter().any(|other| other.subject == rule.subject) {
                return Err(setting.refuse(format!("there are two policies for {}", rule.subject.words())));
            }
            self.rules.push(rule);
        }
        Ok(())
    }

    /// Returns the policy. Named users and groups may connect, and so may the subject of a rule;
    /// all others only if there is no list.
    pub(super) fn policy(&self, quotas: ClientQuotas) -> Policy {
        // The number of tables in a file is far below the range of group ids.
        let rules = || self.rules.iter().zip(0..).map(|(rule, id)| (rule, GroupId(id)));
        let others = rules().find(|(rule, _)| rule.subject == Subject::Others);
        let ordinary = match others {
            Some((rule, id)) => rule.rights(id, Rights::ordinary(), quotas),
            None => Some(Rights::ordinary()),
        };
        let closed = self.users.is_some() || self.groups.is_some();
        let mut policy = Policy::default().others(ordinary.clone().filter(|_| !closed));
        for &uid in self.users.iter().flatten().filter(|uid| **uid != 0) {
            policy = policy.user(uid, ordinary.clone());
        }
        for &gid in self.groups.iter().flatten() {
            policy = policy.group(gid, ordinary.clone());
        }
        for (rule, id) in rules() {
            policy = match rule.subject {
                Subject::User(0) => policy.user(0, rule.rights(id, Rights::all(), quotas)),
                Subject::User(uid) => policy.user(uid, rule.rights(id, Rights::ordinary(), quotas)),
                Subject::Group(gid) => policy.group(gid, rule.rights(id, Rights::ordinary(), quotas)),
                Subject::Others => policy,
            };
        }
        policy
    }
}

impl Rule {
    fn read(table: &Section) -> Result<Rule, NodeError> {
        let mut rule = Rule {
            subject: Subject::Others,
            connects: true,
            own_portals: None,
            own_nids: None,
            portals: None,
            nids: None,
            lazy: None,
            quotas: Vec::new(),
            caps: GroupCaps::default(),
        };
        for setting in table.settings() {
            match setting.key() {
                "user" | "group" if rule.subject != Subject::Others => {
                    return Err(setting.refuse("a policy is for one user or one group, not for both"));
                }
                "user" => {
                    rule.subject =
                        Subject::User(user(setting.text()?).map_err(|reason| setting.refuse(reason))?)
                }
                "group" => {
                    rule.subject =
                        Subject::Group(group(setting.text()?).map_err(|reason| setting.refuse(reason))?)
                }
                "connect" => rule.connects = setting.switch()?,
                "own_portals" => rule.own_portals = Some(portals(&setting)?),
                "own_nids" => rule.own_nids = Some(nids(&setting)?),
                "portals" => rule.portals = Some(portals(&setting)?),
                "nids" => rule.nids = Some(nids(&setting)?),
                "lazy" => rule.lazy = Some(setting.switch()?),
                "quotas" => {
                    rule.quotas = setting.tables()?;
                    // Reports an error now.
                    let mut trial = ClientQuotas::default();
                    rule.quotas.iter().try_for_each(|table| read_quotas(&mut trial, table))?;
                }
                "per_user" | "together" => {
                    let together = setting.key() == "together";
                    for table in setting.tables()? {
                        read_amounts(&mut rule.caps, &table, |caps, resource, value| match together {
                            true => GroupCaps { together: caps.together.with(resource, value), ..caps },
                            false => GroupCaps { per_user: caps.per_user.with(resource, value), ..caps },
                        })?;
                    }
                }
                _ => return Err(setting.unknown(&KEYS)),
            }
        }
        Ok(rule)
    }

    /// Returns the rights of the rule, on top of `base`.
    fn rights(&self, id: GroupId, base: Rights, quotas: ClientQuotas) -> Option<Rights> {
        let mut own = quotas;
        // Cannot fail: the rights were read once already.
        let _ = self.quotas.iter().try_for_each(|table| read_quotas(&mut own, table));
        let rights = Rights {
            own_portals: self.own_portals.unwrap_or(base.own_portals),
            own_nids: self.own_nids.clone().unwrap_or(base.own_nids),
            portals: self.portals.unwrap_or(base.portals),
            nids: self.nids.clone().unwrap_or(base.nids),
            lazy: self.lazy.unwrap_or(base.lazy),
            quotas: (!self.quotas.is_empty()).then_some(own),
            group: (self.caps != GroupCaps::default()).then_some((id, self.caps)),
        };
        self.connects.then_some(rights)
    }
}

impl Subject {
    fn words(self) -> String {
        match self {
            Subject::User(uid) => format!("user {uid}"),
            Subject::Group(gid) => format!("group {gid}"),
            Subject::Others => "all other users".to_string(),
        }
    }
}

/// Parses `35-63`, `[40, "50-52"]`, `all`, or an empty list.
fn portals(setting: &Setting<'_>) -> Result<PortalSet, NodeError> {
    let mut all = PortalSet::NONE;
    for word in setting.words()? {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|portal| (1..=63).contains(portal));
        all = match (word, number(first), number(last)) {
            ("all", ..) => PortalSet::ALL,
            (_, Some(first), Some(last)) if first <= last => all.and(PortalSet::range(first, last)),
            _ => {
                return Err(setting.refuse(format!(
                    "'{word}' is neither a portal from 1 to 63 nor a range such as \"35-63\""
                )));
            }
        };
    }
    Ok(all)
}

/// Parses `*`, or lists of NIDs in Lustre's form.
pub(super) fn nids(setting: &Setting<'_>) -> Result<Nids, NodeError> {
    crate::nids::of_words(&setting.words()?).map_err(|reason| setting.refuse(reason))
}

#[cfg(test)]
mod tests {
    use lnet_node::NodeConfig;
    use nlx_helper::Credentials;
    use nlx_helper::accounts::{Resource, UNBOUNDED};

    use super::*;

    fn policy(text: &str) -> Policy {
        let node = NodeConfig::from_toml(text).unwrap();
        let mut admission = PolicyFile::default();
        for setting in node.helper().unwrap().settings() {
            match setting.key() {
                "users" => {
                    admission.users =
                        Some(setting.words().unwrap().iter().map(|uid| user(uid).unwrap()).collect())
                }
                _ => admission.read_policies(&setting).unwrap(),
            }
        }
        admission.policy(ClientQuotas::default())
    }

    fn of(policy: &Policy, uid: u32, gid: u32) -> Option<&Rights> {
        policy.rights_of(&Credentials { pid: 1, uid, gid })
    }

    #[test]
    fn a_list_of_users_excludes_all_others() {
        let policy = policy("[helper]\nusers = [1000]\n[[helper.policy]]\ngroup = 50\nportals = \"40\"\n");
        assert_eq!(of(&policy, 1000, 1), Some(&Rights::ordinary()));
        assert_eq!(of(&policy, 0, 0), Some(&Rights::all()));
        assert_eq!(of(&policy, 1001, 1), None);
        let group = of(&policy, 1001, 50).unwrap();
        assert!(group.portals.contains(40) && !group.portals.contains(41) && group.own_portals.contains(41));
    }

    #[test]
    fn a_policy_is_for_a_user_a_group_or_all_others() {
        let policy = policy(
            "[[helper.policy]]\nuser = 7\nconnect = false\n[[helper.policy]]\nown_portals = [1, \"60-61\"]\n\
             nids = [\"10.0.0.*@tcp\"]\nlazy = true\nquotas = { tms = 2 }\ntogether = { machines = 9 }\nper_user = { machines = 4 }\n[[helper.policy]]\nuser = 0\nportals = []\n",
        );
        assert_eq!(of(&policy, 7, 7), None);
        let other = of(&policy, 8, 8).unwrap();
        assert!(other.lazy && !Rights::ordinary().lazy);
        let own: Vec<_> = (0..64).filter(|&portal| other.own_portals.contains(portal)).collect();
        assert_eq!(own, [1, 60, 61]);
        assert!(other.nids.contains("10.0.0.9@tcp".parse().unwrap()));
        assert!(!other.nids.contains("10.0.1.9@tcp".parse().unwrap()));
        assert_eq!(other.quotas, Some(ClientQuotas { tms: 2, ..ClientQuotas::default() }));
        let (group, caps) = other.group.unwrap();
        assert_eq!((group, caps.together.of(Resource::Machines)), (GroupId(1), 9));
        assert_eq!(
            (caps.per_user.of(Resource::Machines), caps.per_user.of(Resource::Buffers)),
            (4, UNBOUNDED)
        );
        let root = of(&policy, 0, 0).unwrap();
        assert!(
            root.portals == PortalSet::NONE && root.own_portals == PortalSet::ALL && root.quotas.is_none()
        );
    }
}

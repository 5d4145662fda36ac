//! The helper's configuration: the table `[helper]` of the file, overridden by options.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lnet_api::Errno;
use lnet_node::{NodeConfig, NodeError, Section, Setting};
use nix::unistd::{Gid, Group, Uid, User};
use nlx_helper::accounts::{AccountsConfig, Resource, UNBOUNDED, UserId};
use nlx_helper::owners::Owners;
use nlx_helper::service::ServiceConfig;
use nlx_helper::{ClientQuotas, HostConfig};
use nlx_lst::net::TestNodeOptions;

use super::args::NlxdArgs;
use super::listener::{PATH_MAX, SocketConfig};
use super::policy::PolicyFile;
use super::test_node;
use crate::args::TestNodeArgs;
use crate::failure::Failure;

/// The socket's mode by default: for its owner and its group.
const MODE: u32 = 0o660;

/// Default time that operations get to end when the helper is stopped.
const DRAIN: Duration = Duration::from_secs(5);

/// The longest time in the configuration, in seconds: a day.
const SECONDS_MAX: u64 = 86_400;

/// Default limit of clients: with all their shares of other resources they still fit on a host of
/// some GiB.
const CLIENTS_MAX: u64 = 4096;

/// The ranges of uids that users have for their user namespaces (subuid(5)).
const SUBORDINATE: &str = "/etc/subuid";

/// The configuration of `nlxd` beside the node's.
#[derive(Debug, Clone)]
pub(crate) struct HelperConfig {
    pub(crate) socket: SocketConfig,
    pub(crate) host: HostConfig,
    pub(crate) service: ServiceConfig,
    pub(crate) drain: Duration,
    /// The test node, if there is one.
    pub(crate) lst: Option<TestNodeOptions>,
}

/// The keys of the table `[helper]`.
const KEYS: [&str; 21] = [
    "socket",
    "mode",
    "owner",
    "group",
    "users",
    "groups",
    "policy",
    "quotas",
    "capacity",
    "per_user",
    "clients_max",
    "clients_per_user_max",
    "user_requests_per_second",
    "threads",
    "busy_poll_us",
    "huge_pages",
    "let_descriptors_pass",
    "reply_timeout",
    "quarantine",
    "drain",
    "lst",
];

impl HelperConfig {
    /// # Errors
    /// An invalid setting in the file or the options: file, line, key, value, and the permitted
    /// values.
    pub(crate) fn new(node: &NodeConfig, args: &NlxdArgs) -> Result<HelperConfig, Failure> {
        let mut reader = ConfigReader::default();
        if let Some(section) = node.helper() {
            reader.read(section).map_err(|error| Failure::of_node(&error, 0))?;
        }
        reader.with(args)
    }
}

/// The settings read so far.
#[derive(Default)]
struct ConfigReader {
    path: Option<PathBuf>,
    mode: Option<u32>,
    owner: Option<u32>,
    group: Option<u32>,
    admission: PolicyFile,
    quotas: ClientQuotas,
    service: ServiceConfig,
    huge_pages: Option<bool>,
    accounts: AccountsConfig,
    drain: Option<Duration>,
    lst: TestNodeArgs,
}

impl ConfigReader {
    fn read(&mut self, section: &Section) -> Result<(), NodeError> {
        for setting in section.settings() {
            self.set(&setting)?;
        }
        Ok(())
    }

    fn set(&mut self, setting: &Setting<'_>) -> Result<(), NodeError> {
        let service = &mut self.service;
        let seconds = || setting.number(0, SECONDS_MAX).map(Duration::from_secs);
        match setting.key() {
            "socket" => {
                let path = PathBuf::from(setting.text()?);
                check_length(&path).map_err(|reason| setting.refuse(reason))?;
                self.path = Some(path);
            }
            "mode" => self.mode = Some(mode(setting.text()?).map_err(|reason| setting.refuse(reason))?),
            "owner" => self.owner = Some(user(setting.text()?).map_err(|reason| setting.refuse(reason))?),
            "group" => self.group = Some(group(setting.text()?).map_err(|reason| setting.refuse(reason))?),
            "users" => self.admission.users = Some(names(setting, user)?),
            "groups" => self.admission.groups = Some(names(setting, group)?),
            "policy" => self.admission.read_policies(setting)?,
            "quotas" => {
                for table in setting.tables()? {
                    read_quotas(&mut self.quotas, &table)?;
                }
            }
            "capacity" => {
                for table in setting.tables()? {
                    let set = |config: AccountsConfig, resource, value| config.with_capacity(resource, value);
                    read_amounts(&mut self.accounts, &table, set)?;
                }
            }
            "per_user" => {
                for table in setting.tables()? {
                    let set = |config: AccountsConfig, resource, value| config.with_per_user(resource, value);
                    read_amounts(&mut self.accounts, &table, set)?;
                }
            }
            "clients_max" => self.set_capacity(Resource::Clients, setting.number(1, 1 << 20)?),
            "clients_per_user_max" => {
                let cap = setting.number(1, 1 << 20)?;
                self.accounts = std::mem::take(&mut self.accounts).with_per_user(Resource::Clients, cap);
            }
            "user_requests_per_second" => {
                service.user_requests_per_second = setting.number(1, u64::from(u32::MAX))? as u32;
            }
            "threads" => service.threads = setting.number(0, 64)? as usize,
            "busy_poll_us" => service.busy_poll = Duration::from_micros(setting.number(0, 1_000_000)?),
            "huge_pages" => self.huge_pages = Some(setting.switch()?),
            "let_descriptors_pass" => service.let_descriptors_pass = setting.switch()?,
            "reply_timeout" => {
                service.reply_timeout = setting.number(1, SECONDS_MAX).map(Duration::from_secs)?
            }
            "quarantine" => service.quarantine = seconds()?,
            "drain" => self.drain = Some(seconds()?),
            "lst" => {
                for table in setting.tables()? {
                    self.lst = test_node::read(&table)?;
                }
            }
            _ => return Err(setting.unknown(&KEYS)),
        }
        Ok(())
    }

    fn set_capacity(&mut self, resource: Resource, capacity: u64) {
        self.accounts = std::mem::take(&mut self.accounts).with_capacity(resource, capacity);
    }

    fn with(mut self, args: &NlxdArgs) -> Result<HelperConfig, Failure> {
        let refused = |option: &str, reason: String| {
            Failure::at("configuration", Errno::EINVAL, format!("--{option}: {reason}"))
        };
        if let Some(text) = &args.mode {
            self.mode = Some(mode(text).map_err(|reason| refused("mode", reason))?);
        }
        if let Some(text) = &args.owner {
            self.owner = Some(user(text).map_err(|reason| refused("owner", reason))?);
        }
        if let Some(text) = &args.group {
            self.group = Some(group(text).map_err(|reason| refused("group", reason))?);
        }
        if let Some(path) = &args.socket {
            check_length(path).map_err(|reason| refused("socket", reason))?;
        }
        self.service.threads = args.threads.unwrap_or(self.service.threads);
        self.service.busy_poll = args.busy_poll_us.map_or(self.service.busy_poll, Duration::from_micros);
        if self.accounts.capacity.of(Resource::Clients) == UNBOUNDED {
            self.set_capacity(Resource::Clients, CLIENTS_MAX);
        }
        args.test_node.refuse_without(args.lst)?;
        let lst = args.lst.then(|| test_node::options(&args.test_node.or(&self.lst))).transpose()?;
        let policy = self.admission.policy(self.quotas);
        let policy = if args.lst { policy.reserve(test_node::portals()) } else { policy };
        let path = args.socket.clone().or(self.path);
        let socket =
            SocketConfig { path, mode: self.mode.unwrap_or(MODE), owner: self.owner, group: self.group };
        let host = HostConfig {
            policy,
            quotas: self.quotas,
            huge_pages: self.huge_pages.unwrap_or(true),
            accounts: self.accounts,
            owners: owners(),
        };
        let drain = args.drain.or(self.drain).unwrap_or(DRAIN);
        Ok(HelperConfig { socket, host, service: self.service, drain, lst })
    }
}

/// Returns the user of this process, who counts as root.
pub(super) fn operator() -> UserId {
    UserId(Uid::effective().as_raw())
}

/// Returns the owners of subordinate uids. Without the file there are none.
fn owners() -> Owners {
    let text = std::fs::read_to_string(SUBORDINATE).unwrap_or_default();
    Owners::parse(&text, operator(), |name| user(name).ok())
}

/// Checks that a path is short enough for a socket's name, including the affixes while the socket
/// is created.
fn check_length(path: &Path) -> Result<(), String> {
    match path.as_os_str().len() {
        0 => Err("a path must stand here".into()),
        1..=PATH_MAX => Ok(()),
        bytes => Err(format!("a path of {bytes} bytes: a socket's can have {PATH_MAX} (ENAMETOOLONG)")),
    }
}

fn mode(text: &str) -> Result<u32, String> {
    let octal = text.bytes().all(|digit| (b'0'..=b'7').contains(&digit)) && !text.is_empty();
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
    mode.ok_or_else(|| format!("'{text}' is not a mode of a file in octal, as \"0660\""))
}

pub(super) fn user(text: &str) -> Result<u32, String> {
    if let Ok(uid) = text.parse() {
        return number("user", uid);
    }
    match User::from_name(text) {
        Ok(Some(found)) => Ok(Uid::as_raw(found.uid)),
        _ => Err(format!("there is no user '{text}'")),
    }
}

pub(super) fn group(text: &str) -> Result<u32, String> {
    if let Ok(gid) = text.parse() {
        return number("group", gid);
    }
    match Group::from_name(text) {
        Ok(Some(found)) => Ok(Gid::as_raw(found.gid)),
        _ => Err(format!("there is no group '{text}'")),
    }
}

/// Checks an id: the highest number is not a user or group, but makes chown change nothing.
fn number(kind: &str, id: u32) -> Result<u32, String> {
    if id == u32::MAX { Err(format!("{id} is the number of no {kind}: 0 to {}", id - 1)) } else { Ok(id) }
}

fn names(setting: &Setting<'_>, one: fn(&str) -> Result<u32, String>) -> Result<Vec<u32>, NodeError> {
    let words = setting.words()?;
    words.into_iter().map(|word| one(word).map_err(|reason| setting.refuse(reason))).collect()
}

/// Largest number of events of one transfer machine: one fewer than a queue has slots.
const EVENTS_MAX: u64 = (1 << 20) - 1;

/// Smallest number of slots of a submission ring: one is never filled.
const RING_SLOTS_MIN: u64 = 2;

/// A quota: its name, its setter and its range.
type Quota = (&'static str, fn(&mut ClientQuotas, u64), RangeInclusive<u64>);

/// The keys of a table of quotas, with their ranges.
const QUOTAS: [Quota; 10] = [
    ("tms", |quotas, value| quotas.tms = value as u32, 1..=1 << 16),
    ("buffers", |quotas, value| quotas.buffers = value as u32, 1..=1 << 20),
    ("segments", |quotas, value| quotas.segments = value as u32, 1..=1 << 24),
    ("arenas", |quotas, value| quotas.arenas = value as u32, 1..=1 << 16),
    ("bytes", |quotas, value| quotas.bytes = value, 1..=1 << 46),
    ("arena_bytes", |quotas, value| quotas.arena_bytes = value, 1..=1 << 40),
    ("operations", |quotas, value| quotas.operations = value as u32, 1..=1 << 20),
    ("events", |quotas, value| quotas.events = value as u32, 1..=EVENTS_MAX),
    (
        "ring_slots",
        |quotas, value| quotas.ring_slots = value as u32,
        RING_SLOTS_MIN..=nlx_driver_proto::RING_SLOTS_MAX as u64,
    ),
    ("requests_per_second", |quotas, value| quotas.requests_per_second = value as u32, 1..=u32::MAX as u64),
];

pub(super) fn read_quotas(quotas: &mut ClientQuotas, table: &Section) -> Result<(), NodeError> {
    for setting in table.settings() {
        let Some((_, set, range)) = QUOTAS.iter().find(|(name, ..)| *name == setting.key()) else {
            return Err(setting.unknown(&QUOTAS.map(|(name, ..)| name)));
        };
        set(quotas, setting.number(*range.start(), *range.end())?);
    }
    Ok(())
}

/// Largest amount of a resource: 64 TiB, or as a count of objects.
const AMOUNT_MAX: u64 = 1 << 46;

/// Reads a table of amounts by the names of resources.
pub(super) fn read_amounts<T: Default>(
    amounts: &mut T,
    table: &Section,
    set: impl Fn(T, Resource, u64) -> T,
) -> Result<(), NodeError> {
    for setting in table.settings() {
        let known = Resource::ALL.into_iter().find(|resource| resource.name() == setting.key());
        let Some(resource) = known else {
            return Err(setting.unknown(&Resource::ALL.map(Resource::name)));
        };
        let value = setting.number(1, AMOUNT_MAX)?;
        *amounts = set(std::mem::take(amounts), resource, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<HelperConfig, String> {
        let node = NodeConfig::from_toml(text).unwrap();
        let mut reader = ConfigReader::default();
        let section = node.helper().unwrap();
        reader.read(section).map_err(|error| error.to_string())?;
        let args = clap::Parser::parse_from(["nlxd", "--socket", "/run/x.sock"]);
        Ok(reader.with(&args).unwrap())
    }

    #[test]
    fn all_that_can_be_said_is_read() {
        let config =
            of("[helper]\nmode = \"0600\"\nowner = 7\ngroup = \"root\"\nthreads = 3\nbusy_poll_us = 20\n\
             huge_pages = false\nlet_descriptors_pass = true\nquarantine = 2\nreply_timeout = 3\ndrain = 4\nclients_max = 5\n\
             clients_per_user_max = 6\nuser_requests_per_second = 8\n[helper.quotas]\ntms = 1\nbytes = 0x1000\nrequests_per_second = 9\n\
             [helper.capacity]\nmappings = 800\n[helper.per_user]\nmachines = 7\n")
            .unwrap();
        let socket =
            SocketConfig { path: Some("/run/x.sock".into()), mode: 0o600, owner: Some(7), group: Some(0) };
        assert_eq!(config.socket, socket);
        let ServiceConfig { threads, user_requests_per_second, busy_poll, .. } = config.service;
        let ServiceConfig { reply_timeout, quarantine, let_descriptors_pass, .. } = config.service;
        assert!(let_descriptors_pass);
        let AccountsConfig { capacity, root_reserve, per_user, .. } = &config.host.accounts;
        let clients = [capacity, root_reserve, per_user].map(|amounts| amounts.of(Resource::Clients));
        assert_eq!((threads, clients, user_requests_per_second), (3, [5, 1, 6], 8));
        let mappings = [capacity, root_reserve].map(|amounts| amounts.of(Resource::Mappings));
        assert_eq!((mappings, per_user.of(Resource::Machines)), ([800, 100], 7));
        let times = [busy_poll, reply_timeout, quarantine, config.drain].map(|time| time.as_micros());
        assert_eq!(times, [20, 3_000_000, 2_000_000, 4_000_000]);
        let ClientQuotas { tms, bytes, requests_per_second, .. } = config.host.quotas;
        assert_eq!((tms, bytes, requests_per_second, config.host.huge_pages), (1, 0x1000, 9, false));
    }

    /// The test node has no consoles by default; options come before the file, and its portals are taken
    /// from the clients.
    // Covers: S-313
    #[test]
    fn a_test_node_is_configured_by_the_file_and_the_options() {
        let file = "[helper.lst]\nconsoles = [\"10.0.0.[1-2]@tcp\", \"1.2.3.4@o2ib\"]\ncpts = [0, \"2-3\"]\n\
                    threads_min = 2\nbuffers_max = 9\nbulk_max = 8\nmemory_max = 0x1000000\n";
        let with = |text: &str, args: &[&str]| {
            let mut reader = ConfigReader::default();
            if let Some(section) = NodeConfig::from_toml(text).unwrap().helper() {
                reader.read(section).unwrap();
            }
            let own = ["nlxd", "--socket", "/run/x.sock"];
            reader.with(&clap::Parser::parse_from(own.iter().chain(args)))
        };
        assert!(with(file, &[]).unwrap().lst.is_none(), "only --lst starts one");
        let options = with(file, &["--lst", "--lst-buffers-max", "7"]).unwrap().lst.unwrap();
        let consoles = options.consoles.unwrap();
        assert!(consoles.contains("10.0.0.2@tcp".parse().unwrap()));
        assert!(!consoles.contains("10.0.0.3@tcp".parse().unwrap()));
        assert_eq!(
            (options.cpts, options.threads_min, options.threads_max),
            (vec![0, 2, 3], Some(2), Some(2))
        );
        assert_eq!((options.buffers_max, options.bulk_max, options.config.memory_max), (7, 8, 1 << 24));
        assert!(!options.requests_wait);
        let open = with("", &["--lst", "--lst-consoles", "*"]).unwrap();
        assert_eq!(open.lst.unwrap().consoles, None);
        let client = nlx_helper::Credentials { pid: 1, uid: 1000, gid: 1000 };
        let portals = open.host.policy.rights_of(&client).unwrap().own_portals;
        assert_eq!(
            [49, 50, 51, 52, 53].map(|portal| portals.contains(portal)),
            [true, false, false, false, true]
        );
        assert!(with("", &["--lst"]).unwrap_err().to_string().contains("--lst-consoles"));
        assert!(with(file, &["--lst-bulk-max", "4"]).unwrap_err().to_string().contains("without --lst"));
    }

    #[test]
    fn invalid_values_are_reported_with_line_key_value_and_limit() {
        for (text, words) in [
            ("[helper]\nmode = \"0999\"\n", ["line 2", "'mode'", "0999", "octal"]),
            ("[helper]\n\nthreads = 65\n", ["line 3", "'threads'", "65", "0 to 64"]),
            ("[helper]\nsockets = \"x\"\n", ["line 2", "'sockets'", "no such setting", "clients_max"]),
            (
                "[helper]\nusers = [\"root\", \"no-such-user\"]\n",
                ["line 2", "'users'", "no-such-user", "no user"],
            ),
            ("[helper]\nreply_timeout = 0\n", ["line 2", "'reply_timeout'", "'0'", "1 to 86400"]),
            ("[helper]\nowner = 4294967295\n", ["line 2", "'owner'", "4294967295", "0 to 4294967294"]),
            ("[helper.quotas]\ntms = 0\n", ["line 2", "'tms'", "'0'", "1 to 65536"]),
            ("[helper.quotas]\nring_slots = 1\n", ["line 2", "'ring_slots'", "'1'", "2 to 4096"]),
            ("[helper.quotas]\nevents = 1048576\n", ["line 2", "'events'", "1048576", "1 to 1048575"]),
            ("[helper]\nsocket = \"\"\n", ["line 2", "'socket'", "a path", "must stand here"]),
            ("[helper.capacity]\nmapping = 1\n", ["line 2", "'mapping'", "no such setting", "heap_bytes"]),
            ("[helper.per_user]\nmachines = 0\n", ["line 2", "'machines'", "'0'", "1 to 70368744177664"]),
            ("[helper.quotas]\nteams = 1\n", ["line 2", "'teams'", "no such setting", "requests_per_second"]),
            ("[[helper.policy]]\nportals = \"0-70\"\n", ["line 2", "'portals'", "70", "1 to 63"]),
            ("[[helper.policy]]\nuser = 1\ngroup = 2\n", ["line 3", "'group'", "user", "group"]),
            ("[helper.lst]\nconsole = \"*\"\n", ["line 2", "'console'", "no such setting", "consoles"]),
            ("[helper.lst]\nconsoles = \"10.0.0\"\n", ["line 2", "'consoles'", "10.0.0", "address"]),
            ("[helper.lst]\ncpts = [1, 1]\n", ["line 2", "'cpts'", "CPU partition 1", "twice"]),
            ("[helper.lst]\nthreads_max = 513\n", ["line 2", "'threads_max'", "513", "1 to 512"]),
            ("[helper]\nhuge_pages = 1\n", ["line 2", "'huge_pages'", "true", "'1'"]),
        ] {
            let message = of(text).unwrap_err();
            assert!(words.iter().all(|word| message.contains(word)), "{text}: {message}");
        }
    }
}

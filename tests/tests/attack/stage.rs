//! A helper of an ordinary user, working honest clients, and attackers.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::RwLockWriteGuard;

use nix::sys::signal::Signal;

use crate::figures::{self, Figures};
use crate::people::{Attacker, Honest, User, can_be_others, visit};
use crate::scene::{Helper, HelperStart, install, machine_to_itself};

/// The number of honest rounds during an attack that shows its effect: some seconds on a busy
/// machine.
const ROUNDS: u64 = 1000;

/// The settings of an attack test.
pub(crate) struct Setup {
    name: &'static str,
    launch: HelperStart,
    afar: bool,
    single_user: bool,
}

/// A running helper before, during and after an attack.
pub(crate) struct Stage {
    name: &'static str,
    pub(crate) helper: Helper,
    /// A second helper: its clients and those of the attacked helper work for each other over the
    /// network.
    peer: Option<Helper>,
    pub(crate) honest: Honest,
    programs: Programs,
    threads: u32,
    quiet: Figures,
    beside: Option<Figures>,
    _machine: RwLockWriteGuard<'static, ()>,
}

/// The programs of honest clients and attackers, in a folder where every user can run them.
struct Programs {
    client: PathBuf,
    attacker: PathBuf,
}

impl Stage {
    /// Settings with a default helper.
    #[expect(clippy::new_ret_no_self, reason = "there is more to say before it can open")]
    pub(crate) fn new(name: &'static str) -> Setup {
        // Clients of all users may connect.
        let launch = HelperStart { config: "[helper]\nmode = \"0666\"\n".into(), ..HelperStart::new() };
        Setup { name, launch, afar: false, single_user: false }
    }
}

impl Setup {
    /// Adds lines to the table `[helper]` of its configuration, and tables after it.
    pub(crate) fn config(mut self, lines: &str) -> Setup {
        self.launch.config.push_str(lines);
        self
    }

    /// Sets the helper's limits by shell commands.
    pub(crate) fn limits(mut self, limits: &str) -> Setup {
        self.launch.limits = limits.to_string();
        self
    }

    /// Makes the honest clients use two helpers, and work over the network.
    pub(crate) fn afar(mut self) -> Setup {
        self.afar = true;
        self
    }

    /// Declares that the attack needs no other users: a peer makes it, or its user does not matter.
    pub(crate) fn of_any_user(mut self) -> Setup {
        self.single_user = true;
        self
    }

    /// Starts everything, and records honest rounds without an attack. `None`, with a report, if
    /// this machine cannot.
    #[track_caller]
    pub(crate) fn open(mut self) -> Option<Stage> {
        let machine = machine_to_itself();
        if !can_be_others() && !self.single_user {
            nlx_skip::skipped(
                &format!("the attack '{}'", self.name),
                "only root can start processes of several users",
            );
            return None;
        }
        self.launch.unit = std::env::var_os("NLX_ATTACK_UNIT").is_some();
        assert!(
            !self.launch.unit || self.launch.limits == "true",
            "{}: a unit has limits of its own",
            self.name
        );
        let threads = from_environment("NLX_ATTACK_THREADS", 1);
        self.launch.args = ["--threads".to_string(), threads.to_string()].into();
        self.launch.uid = can_be_others().then(|| User::Helper.uid());
        let mut far =
            HelperStart { config: self.launch.config.clone(), uid: self.launch.uid, ..HelperStart::new() };
        if std::env::var("NLX_ATTACK_NET").as_deref() == Ok("o2ib") {
            let addresses = std::env::var("NLX_GUEST_ADDRESSES").expect("the guest names its addresses");
            let addresses: Vec<Ipv4Addr> =
                addresses.split_whitespace().map(|address| address.parse().unwrap()).collect();
            lift_memory_limit();
            for (launch, address) in [&mut self.launch, &mut far].into_iter().zip(addresses) {
                (launch.net, launch.address) = ("o2ib", address);
            }
            self.afar = true;
        }
        let helper = Helper::launch(self.launch, None);
        let peer = self.afar.then(|| Helper::launch(far, None));
        let programs = Programs {
            client: install(Path::new(env!("CARGO_BIN_EXE_helper-client")), helper.folder()),
            attacker: install(Path::new(env!("CARGO_BIN_EXE_nlx-attacker")), helper.folder()),
        };
        let mut honest = Honest::start(&programs.client, [&helper, peer.as_ref().unwrap_or(&helper)]);
        honest.advance(rounds() / 4);
        honest.figures();
        honest.advance(rounds());
        let quiet = honest.figures();
        let (name, beside, _machine) = (self.name, None, machine);
        Some(Stage { name, helper, peer, honest, programs, threads, quiet, beside, _machine })
    }
}

impl Stage {
    /// Starts attackers, and waits until all attacks have their full strength.
    #[track_caller]
    pub(crate) fn attack(&self, attackers: &[(User, &[&str])]) -> Vec<Attacker> {
        Stage::at_their_height(attackers.iter().map(|(user, args)| self.start(*user, args)).collect())
    }

    /// Waits until all attacks have their full strength.
    #[track_caller]
    pub(crate) fn at_their_height(mut attackers: Vec<Attacker>) -> Vec<Attacker> {
        attackers.iter_mut().for_each(Attacker::wait);
        attackers
    }

    /// Starts an attacker without waiting.
    pub(crate) fn start(&self, user: User, args: &[&str]) -> Attacker {
        Attacker::start(&self.programs.attacker, user, &self.helper, args)
    }

    /// Starts an attacker at the second helper, which the honest clients use over the network,
    /// without waiting.
    #[track_caller]
    pub(crate) fn start_afar(&self, user: User, args: &[&str]) -> Attacker {
        let peer = self.peer.as_ref().expect("the stage has another helper");
        Attacker::start(&self.programs.attacker, user, peer, args)
    }

    /// Records honest rounds during the attack.
    #[track_caller]
    pub(crate) fn honest_work_goes_on(&mut self) {
        self.honest_work_goes_on_while(|| {});
    }

    /// Records honest rounds while `happens` runs; at least the usual number.
    #[track_caller]
    pub(crate) fn honest_work_goes_on_while(&mut self, happens: impl FnOnce()) {
        self.honest.figures();
        happens();
        self.honest.advance(rounds());
        self.beside = Some(self.honest.figures());
    }

    /// Runs a new client, which attaches, works a round and releases everything.
    ///
    /// # Errors
    ///
    /// The client's error.
    pub(crate) fn visit(&self, user: User) -> Result<(), String> {
        visit(&self.programs.client, user, [&self.helper, self.peer.as_ref().unwrap_or(&self.helper)])
    }

    /// Runs a client of the attacked helper and one of a new helper that work for each other: the
    /// node must still accept connections of peers.
    ///
    /// # Errors
    ///
    /// The client's error.
    pub(crate) fn visit_from_afar(&self) -> Result<(), String> {
        let config = "[helper]\nmode = \"0666\"\n".to_string();
        let uid = can_be_others().then(|| User::Helper.uid());
        let far = Helper::launch(HelperStart { config, uid, ..HelperStart::new() }, None);
        visit(&self.programs.client, User::Newcomer, [&self.helper, &far])
    }

    /// Checks that honest work continues, and that new clients of the honest user, of a new user
    /// and of root are served.
    #[track_caller]
    pub(crate) fn everybody_is_served(&mut self) {
        if self.beside.is_none() {
            self.honest_work_goes_on();
        }
        let visitors = [User::Honest, User::Newcomer, User::Root];
        let failed: Vec<String> = visitors.into_iter().filter_map(|user| self.visit(user).err()).collect();
        assert!(failed.is_empty(), "not served: {failed:?}");
    }

    /// Kills the attackers and checks that everything of theirs is released, that the honest
    /// clients succeed, and that the helper ends on request.
    #[track_caller]
    pub(crate) fn close(self, attackers: Vec<Attacker>) {
        attackers.into_iter().for_each(Attacker::kill);
        let peer_clients = u64::from(self.peer.is_some());
        self.helper.is_clean_but_for(2 - peer_clients);
        self.end();
    }

    /// Checks that the helper ends on request during the attack.
    #[track_caller]
    pub(crate) fn close_beside(self, attackers: Vec<Attacker>) {
        self.end();
        attackers.into_iter().for_each(Attacker::kill);
    }

    /// Kills the helper during the attack, and starts another one in its place.
    #[track_caller]
    pub(crate) fn kill_helper(self) -> Helper {
        self.helper.signal(Signal::SIGKILL);
        self.helper.restart()
    }

    #[track_caller]
    fn end(mut self) {
        self.honest.end();
        self.helper.signal(Signal::SIGTERM);
        assert!(self.helper.ends(), "nlxd has failed: {}", self.helper.log());
        if let Some(beside) = self.beside {
            figures::tell(self.name, self.threads, beside, self.quiet);
        }
    }
}

/// Raises the limit of locked memory, which root may do for the processes that it starts: memory
/// that devices access is locked.
fn lift_memory_limit() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).unwrap();
}

/// Returns the number of honest rounds to record.
fn rounds() -> u64 {
    from_environment("NLX_ATTACK_ROUNDS", ROUNDS)
}

fn from_environment<T: std::str::FromStr>(name: &str, default: T) -> T {
    let text = std::env::var(name).unwrap_or_default();
    if text.is_empty() { default } else { text.parse().unwrap_or_else(|_| panic!("{name}={text}")) }
}

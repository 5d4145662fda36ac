//! The processes of an attack, each with its user.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};

use nix::unistd::Uid;

use crate::figures::Figures;
use crate::scene::{Helper, Other};

/// The user of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Root,
    Helper,
    /// The user whose clients work all the time.
    Honest,
    /// A user without an earlier client.
    Newcomer,
    /// One of several attackers.
    Attacker(u32),
    /// A uid from the first attacker's range for user namespaces, by the `/etc/subuid` of
    /// `tests/systemd/run`.
    Subordinate(u32),
}

impl User {
    /// Returns the user's uid, which needs no entry on the host.
    pub(crate) fn uid(self) -> u32 {
        match self {
            User::Root => 0,
            User::Helper => 12_000,
            User::Honest => 12_001,
            User::Newcomer => 12_002,
            User::Attacker(number) => 12_100 + number,
            User::Subordinate(number) => 13_000 + number,
        }
    }

    /// Returns the command of a program that runs as this user, if this process may start such.
    pub(crate) fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if can_be_others() && self != User::Root {
            // This also drops root's supplementary groups.
            command.uid(self.uid()).gid(self.uid()).current_dir("/").env_remove("XDG_RUNTIME_DIR");
        }
        command
    }
}

/// Returns whether processes of other users can be started.
pub(crate) fn can_be_others() -> bool {
    Uid::effective().is_root()
}

/// Returns the two ends of honest work, as arguments of the programs.
fn ends(helpers: [&Helper; 2]) -> Vec<String> {
    helpers.iter().flat_map(|helper| [helper.socket().display().to_string(), helper.nid_text()]).collect()
}

/// Honest clients that work all the time, with each byte verified.
pub(crate) struct Honest {
    process: Other,
    input: ChildStdin,
}

impl Honest {
    /// Starts two clients of one user: both of the attacked helper, or one of another helper.
    pub(crate) fn start(program: &Path, helpers: [&Helper; 2]) -> Honest {
        let mut command = User::Honest.command(program);
        command.arg("measure").args(ends(helpers));
        let (process, input) = Other::converse(command);
        Honest { process, input }
    }

    #[track_caller]
    fn ask(&mut self, question: &str) -> String {
        writeln!(self.input, "{question}").expect("the honest clients live");
        self.process.line()
    }

    /// Waits for `rounds` further rounds.
    #[track_caller]
    pub(crate) fn advance(&mut self, rounds: u64) {
        assert_eq!(self.ask(&format!("advance {rounds}")), format!("advanced {rounds}"));
    }

    /// Returns the times of the rounds since the last call.
    #[track_caller]
    pub(crate) fn figures(&mut self) -> Figures {
        Figures::read(&self.ask("figures"))
    }

    /// Ends the work; all of it must have succeeded.
    #[track_caller]
    pub(crate) fn end(mut self) {
        assert_eq!(self.ask("end"), "ended");
    }
}

/// Lets a new client connect, work and leave; returns its error.
pub(crate) fn visit(program: &Path, user: User, helpers: [&Helper; 2]) -> Result<(), String> {
    let mut command = user.command(program);
    command.arg("visit").args(ends(helpers)).stdin(Stdio::null());
    let visitor = Other::converse(command).0;
    match visitor.line().as_str() {
        "done" => Ok(()),
        words => Err(format!("{user:?}: {words}")),
    }
}

/// A process of an attacker.
pub(crate) struct Attacker {
    process: Other,
    input: ChildStdin,
    /// The attacker's line when it reached its full strength.
    pub(crate) words: String,
}

impl Attacker {
    /// Starts the attacker without waiting.
    pub(crate) fn start(program: &Path, user: User, helper: &Helper, args: &[&str]) -> Attacker {
        Attacker::start_at(program, user, &helper.socket(), &helper.nid_text(), args)
    }

    /// Starts the attacker against the node with this socket and NID, without waiting.
    pub(crate) fn start_at(program: &Path, user: User, socket: &Path, nid: &str, args: &[&str]) -> Attacker {
        let [name, rest @ ..] = args else { panic!("an attack without a name") };
        let mut command = user.command(program);
        command.arg(name).arg(socket).arg(nid).args(rest);
        let (process, input) = Other::converse(command);
        Attacker { process, input, words: String::new() }
    }

    /// Waits until the attack has its full strength.
    #[track_caller]
    pub(crate) fn wait(&mut self) {
        loop {
            let line = self.process.line();
            assert!(!line.starts_with("failed"), "an attacker cannot attack: {line}");
            if let Some(words) = line.strip_prefix("full ") {
                println!("an attacker holds {words}");
                self.words = words.to_string();
                return;
            }
        }
    }

    /// Waits for the next `did` line of an attacker that prints them.
    #[track_caller]
    pub(crate) fn did(&self) -> String {
        let line = self.process.line();
        line.strip_prefix("did ").unwrap_or_else(|| panic!("the attacker says: {line}")).to_string()
    }

    /// Asks an attacker that counts for its count.
    #[track_caller]
    pub(crate) fn count(&mut self) -> u64 {
        writeln!(self.input, "count").expect("the attacker lives");
        self.did().parse().expect("the attacker says a number")
    }

    /// Kills the attacker, if it has not ended.
    pub(crate) fn kill(self) {
        self.process.kill_if_alive();
    }
}

//! `nlx lst script`: the commands of a script, in one session.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nlx_lst::command::{Command, View, parse, script_lines};
use nlx_lst::console::{ConsoleOperation, Event, Warning};
use nlx_lst::net::ConsoleRunner;
use nlx_lst::print::Printed;

use super::commands::{self, Sink};
use super::{Host, defaults, plan};
use crate::args::LstArgs;
use crate::failure::{Context, Failure};
use crate::output;
use crate::signals::Signals;

/// Maximum length of a script in bytes: a line for each of ten thousand nodes fits.
const SCRIPT_MAX: u64 = 4 << 20;

pub(super) fn run(args: &LstArgs, file: &Path) -> Result<(), Failure> {
    let signals = Signals::take(false)?;
    let script = load(file)?;
    // The whole script is read before anything is sent.
    let mut commands = Vec::new();
    for (number, line) in script_lines(&script) {
        let named = |error| Failure::new(format!("{}:{number}: {error}", file.display()));
        commands.extend(parse(&line, &defaults()).map_err(named)?.map(|command| (line, command)));
    }
    let host = Host::start(args)?;
    let session = Session { console: host.console()?, signals, json: args.json, args, host: &host };
    let outcome = commands.iter().try_for_each(|(line, command)| session.command(line, command));
    // Nodes keep a session that is not ended for 100 s.
    let shown = |event: &Event| commands::show_event(&session, "end_session", event, &View::All);
    let _ = session.console.run(ConsoleOperation::EndSession, &|| false, shown);
    outcome
}

fn load(file: &Path) -> Result<String, Failure> {
    let mut script = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(SCRIPT_MAX + 1).read_to_string(&mut script)
    } else {
        let opened = std::fs::File::open(file).context(&format!("cannot open {}", file.display()))?;
        opened.take(SCRIPT_MAX + 1).read_to_string(&mut script)
    };
    let length = read.context(&format!("cannot read {}", file.display()))?;
    if length as u64 > SCRIPT_MAX {
        return Err(Failure::new(format!("{} is longer than {SCRIPT_MAX} bytes", file.display())));
    }
    Ok(script)
}

struct Session<'a> {
    console: ConsoleRunner,
    signals: Arc<Signals>,
    json: bool,
    args: &'a LstArgs,
    host: &'a Host,
}

impl Session<'_> {
    fn command(&self, line: &str, command: &Command) -> Result<(), Failure> {
        let is_over = || self.signals.stopped();
        if is_over() {
            return Err(Failure::new("interrupted").exit(130));
        }
        match command {
            Command::Sleep { seconds } => {
                let time = Duration::from_secs(u64::from(*seconds));
                self.console
                    .idle(time, &is_over, |event| commands::show_event(self, line, event, &View::All));
                Ok(())
            }
            Command::Plan(plan) => plan::within(self.args, self.host, &self.console, &self.signals, plan),
            command => commands::run((&self.console, std::process::id()), self, line, command),
        }
    }
}

impl Sink for Session<'_> {
    fn show(&self, line: &str, printed: &Printed) -> Result<(), Failure> {
        commands::print(line, printed, self.json)
    }

    fn warn(&self, warning: &Warning) {
        output::print_error(format_args!("nlx: {warning}"));
    }

    fn is_over(&self) -> bool {
        self.signals.stopped()
    }
}

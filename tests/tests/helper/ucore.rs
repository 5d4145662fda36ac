//! Clients as programs link them: the unit tests of `nlx-ucore`, one of which runs until it reaches
//! a named point of its code. Only that program contains the points.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::scene::{Helper, Other, Silence, program};

/// The environment variable that the test reads: `SOCKET ADDRESS SILENT POINT NTH`.
const WORDS: &str = "NLX_TEST_WORDS";

/// The unit tests of `nlx-ucore`.
pub(crate) struct Ucore(PathBuf);

impl Ucore {
    /// Builds them with cargo.
    pub(crate) fn build() -> Ucore {
        let args = "test --package nlx-ucore --lib --no-run --locked --offline --message-format=json";
        let mut cargo = Command::new(env!("CARGO"));
        let output = cargo.args(args.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut messages = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let built = messages.find_map(|line| {
            let message: Value = serde_json::from_slice(line).unwrap();
            Some(PathBuf::from(message.get("executable")?.as_str()?))
        });
        Ucore(built.expect("cargo says what it has built"))
    }

    /// Returns the names of its points.
    pub(crate) fn points(&self) -> Vec<String> {
        let program = Other::spawn_in_harness(self.command("points"));
        let points: Vec<_> =
            std::iter::repeat_with(|| program.line()).take_while(|line| !line.is_empty()).collect();
        assert!(!points.is_empty());
        points
    }

    /// Starts a client that prints a line and kills itself at its `nth` visit to the point.
    pub(crate) fn start(&self, helper: &Helper, silence: &Silence, point: &str, nth: u32) -> Other {
        let (socket, address) = (helper.socket(), helper.address);
        let words = format!("{} {address} {} {point} {nth}", socket.display(), silence.address);
        let mut command = self.command("client");
        command.env(WORDS, words);
        Other::spawn_in_harness(command)
    }

    fn command(&self, test: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.args(["--exact", &format!("tests::life::{test}"), "--ignored", "--nocapture"]);
        command
    }
}

/// Shipped programs cannot end at a point: they contain no code of it.
#[test]
fn programs_that_are_shipped_have_no_points() {
    let symbol = b"9nlx_ucore5tests6points";
    let has_points = |path: PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        bytes.windows(symbol.len()).any(|window| window == symbol)
    };
    assert!(has_points(Ucore::build().0), "symbols look different");
    for shipped in ["nlx", "nlxd"] {
        assert!(!has_points(program(shipped)), "{shipped} has points");
    }
}

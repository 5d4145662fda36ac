//! The console of lst: its operations, and nodes that answer anything at any time; and its commands.

use std::collections::BTreeSet;
use std::sync::Arc;

use lnet_nid::ProcessId;
use lnet_proto::lst::{LstService, MESSAGE_LEN, Request};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::command::{Command, CommandError, Defaults, NodeList, View, parse, script_lines};
use nlx_lst::console::{Console, ConsoleRpc, Event};
use nlx_lst::print;

use super::{Outcome, same};

const SECOND_NS: u64 = 1_000_000_000;

/// The commands that an input names by number.
const COMMANDS: [&str; 16] = [
    "new_session --timeout 60 main",
    "new_session --force --timeout 300 main",
    "add_group c 10.0.0.[1-2]@tcp",
    "add_group s 10.0.0.[2-3]@tcp",
    "update_group c --refresh",
    "update_group c --clean invalid",
    "del_group s",
    "add_test --from c --to s --distribute 1:2 ping",
    "add_test --from c --to s brw write check=discard",
    "run",
    "stop",
    "query --test 1 --loop 2 --delay 1 --all",
    "stat c s --count 2 --delay 1",
    "show_error c",
    "ping --session",
    "end_session",
];

/// A console and the RPCs that it has in flight.
struct World {
    console: Console,
    flight: Vec<ConsoleRpc>,
    ids: BTreeSet<u64>,
    begun: u32,
    ended: u32,
    now_ns: u64,
    printed: usize,
}

/// Runs steps of one byte and its arguments: a command, an answer to the oldest RPC, a JOIN, time.
pub(super) fn console(bytes: &[u8]) -> Outcome {
    let own = "10.0.0.9@tcp".parse().expect("the text is a NID");
    let console = Console::new(own, Arc::new(Ids::new(1))).expect("the address has four bytes");
    let (flight, ids) = (Vec::new(), BTreeSet::new());
    let mut world = World { console, flight, ids, begun: 0, ended: 0, now_ns: 0, printed: 0 };
    let mut rest = bytes;
    while let Some((step, arguments)) = rest.split_first() {
        rest = world.step(*step, arguments);
        world.collect();
    }
    // Without any further answer, time ends what is left.
    for _ in 0..200 {
        let Some(next_ns) = world.console.next_ns().filter(|_| world.console.is_busy()) else { break };
        world.console.advance(next_ns);
        world.collect();
    }
    assert!(!world.console.is_busy(), "every operation ends");
    let console = &world.console;
    let batches = console.batches();
    Outcome::of((
        console.session().map(|session| (session.expired, session.features.0, session.nodes)),
        console.groups().iter().map(|group| group.nodes.len()).collect::<Vec<_>>(),
        batches.first().map(|batch| (batch.running, batch.tests.len().min(2))),
        world.ended.min(4),
        world.printed.min(4096).checked_ilog2(),
    ))
}

impl World {
    /// Runs a step, and returns what follows its arguments.
    fn step<'a>(&mut self, step: u8, arguments: &'a [u8]) -> &'a [u8] {
        match step {
            0..16 => self.begin(COMMANDS[usize::from(step)]),
            16..64 => {
                if let Some((seconds, rest)) = arguments.split_first() {
                    self.now_ns += u64::from(*seconds) * SECOND_NS / 4;
                    self.console.advance(self.now_ns);
                    let next_ns = self.console.next_ns();
                    assert!(next_ns.is_none_or(|next_ns| next_ns > self.now_ns), "what was due is done");
                    return rest;
                }
            }
            64 => self.console.cancel(self.now_ns),
            65..72 => return self.fail(arguments),
            72..80 => {
                let length = arguments.len().min(MESSAGE_LEN);
                let from: ProcessId = "12345-10.0.0.4@tcp".parse().expect("the text is a process id");
                let reply = self.console.join(from, &arguments[..length], self.now_ns);
                let request = Request::parse(LstService::Join, &arguments[..length]).ok();
                same(reply.map(|reply| reply.0), request.map(|(request, _)| request.reply_id), "JOIN");
                return &arguments[length..];
            }
            _ => return self.answer(arguments),
        }
        arguments
    }

    fn begin(&mut self, line: &str) {
        let Ok(Some(Command::Operation { operation, .. })) = parse(line, &Defaults::default()) else {
            panic!("{line} is an operation");
        };
        match self.console.begin(operation.clone(), self.now_ns) {
            Ok(()) => self.begun += 1,
            Err(error) => {
                let printed = print::error(&operation, &error);
                assert!(printed.code == print::REFUSED && !printed.errors.is_empty(), "{error:?}");
            }
        }
    }

    /// Ends the oldest RPC by an error.
    fn fail<'a>(&mut self, arguments: &'a [u8]) -> &'a [u8] {
        let Some((errno, rest)) = arguments.split_first() else { return arguments };
        if !self.flight.is_empty() {
            let rpc = self.flight.remove(0);
            let errno = Errno::from_raw((*errno).into());
            self.console.answered(rpc.reply_id, Err(errno), self.now_ns);
        }
        rest
    }

    /// Answers the oldest RPC: the head of a reply to it, the status and the session that the
    /// arguments choose, and their bytes behind these.
    fn answer<'a>(&mut self, arguments: &'a [u8]) -> &'a [u8] {
        let [status, session, length, body @ ..] = arguments else { return &[] };
        let (body, rest) = body.split_at(body.len().min(usize::from(*length)));
        if self.flight.is_empty() {
            return rest;
        }
        let rpc = self.flight.remove(0);
        let mut reply = rpc.request;
        reply[8..12].copy_from_slice(&rpc.service.reply_type().to_le_bytes());
        let sid: [u8; 16] = match (session % 4, rpc.service) {
            (0 | 1, LstService::Test) => rpc.request[40..56].try_into().expect("it has 16 bytes"),
            (0 | 1, _) => rpc.request[32..48].try_into().expect("it has 16 bytes"),
            (2, _) => [0xff; 16],
            _ => [7; 16],
        };
        reply[24..28].copy_from_slice(&u32::from(*status).to_le_bytes());
        reply[28..44].copy_from_slice(&sid);
        let behind = body.len().min(MESSAGE_LEN - 44);
        reply[44..44 + behind].copy_from_slice(&body[..behind]);
        self.console.answered(rpc.reply_id, Ok(&reply), self.now_ns);
        rest
    }

    /// Takes what the console hands out.
    fn collect(&mut self) {
        while let Some(id) = self.console.next_abort() {
            let before = self.flight.len();
            self.flight.retain(|rpc| rpc.reply_id != id);
            same(self.flight.len() + 1, before, "an RPC that is given up was in flight");
        }
        while let Some(rpc) = self.console.next_rpc() {
            assert!(self.ids.insert(rpc.reply_id), "a reply id is used once");
            let request = Request::parse(rpc.service, &rpc.request).expect("a request can be read").0;
            assert!(!request.features.has_unknown() && !rpc.service.is_data(), "{request:?}");
            self.flight.push(rpc);
        }
        while let Some(event) = self.console.next_event() {
            self.ended += u32::from(matches!(event, Event::Done(_)));
            match event {
                Event::Done(Ok(report)) | Event::Progress(report) => {
                    self.printed += print::report(&report, &View::All).output.len();
                }
                Event::Warning(warning) => assert!(!warning.to_string().is_empty()),
                Event::Done(Err(error)) => assert!(!error.to_string().is_empty()),
            }
        }
        same(self.begun - self.ended, u32::from(self.console.is_busy()), "operations in progress");
    }
}

/// Sessions in which each node answers as it should, with some time after each command.
pub(super) fn console_seeds() -> Vec<Vec<u8>> {
    const GOOD: [u8; 8] = [80, 0, 0, 4, 100, 0, 0, 0];
    const IDLE: [u8; 8] = [80, 0, 0, 4, 0, 0, 0, 0];
    let session = |steps: &[(u8, usize)]| {
        let answered = |&(command, answers): &(u8, usize)| {
            let answer = if command < 4 { GOOD } else { IDLE };
            [vec![command], answer.repeat(answers), vec![16, 1]].concat()
        };
        steps.iter().flat_map(answered).collect::<Vec<u8>>()
    };
    let groups = [(0, 0), (2, 2), (3, 1)];
    vec![
        session(&[&groups[..], &[(7, 4), (9, 2), (11, 2), (10, 4), (15, 3)]].concat()),
        session(&[&groups[..], &[(8, 6), (9, 2), (13, 2), (14, 3), (4, 0)]].concat()),
        session(&[&groups[..], &[(12, 4), (6, 1), (5, 0), (1, 0)]].concat()),
        [session(&groups), vec![16, 255], vec![16, 255], vec![16, 255]].concat(),
    ]
}

/// Reads each line of a text as a command, and the whole as a list of nodes.
pub(super) fn command(bytes: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(bytes);
    let list = text.parse::<NodeList>();
    if let Ok(list) = &list {
        same(list.to_string().parse().as_ref(), Ok(list), "a list that is printed");
    }
    let read = script_lines(&text).map(|(_, line)| match parse(&line, &Defaults::default()) {
        Ok(command) => (command.is_some(), command.as_ref().map(std::mem::discriminant), None),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "{error:?}");
            (false, None, Some(std::mem::discriminant::<CommandError>(&error)))
        }
    });
    Outcome::of((list.is_ok(), read.take(4).collect::<Vec<_>>()))
}

pub(super) fn command_seeds() -> Vec<Vec<u8>> {
    let plan = "lst run --from 10.0.0.[1-4,8]@tcp --to 12345-10.0.0.9@tcp brw write size=64k check=full --duration 3";
    let lines = COMMANDS.join("\n# a comment\nlst ");
    [plan, &lines, "10.0.0.[1-4,8]@tcp,20000-10.1.0.1@o2ib1 0@lo"].map(|text| text.as_bytes().to_vec()).into()
}

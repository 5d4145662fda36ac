//! A client of the helper that follows the steps of an input, beside one that keeps to the protocol
//! (MT-232, MT-233).

use std::num::NonZeroU32;
use std::sync::Arc;

use lnet::{Engine, EngineConfig};
use lnet_api::{Errno, Upcalls};
use lnet_cpt::CptTable;
use lnet_fake::FakeDrive;
use lnet_nid::{Nid, Pid, ProcessId};
use nlx_core::{
    Address, BufferHandle, Descriptor, OperationKind, PassiveBuffer, Queue, StartAddress, TmId, match_bits,
};
use nlx_driver_proto::{BufferName, Entry, Hello, Request, Segment, StartTm, Submission};
use nlx_helper::{ClientQuotas, Host, HostConfig, Leftovers};
use zerocopy::{FromZeros, IntoBytes};

use super::engine::lnd::HoldingLnd;
use super::engine::take;
use super::{Outcome, driver, same};

mod client;
mod neighbour;

use client::{Client, EVENTS};
use neighbour::Neighbour;

/// NIDs of this node and of a peer that never answers.
const HERE: &str = "10.77.0.3@tcp";
const ELSEWHERE: &str = "10.77.0.9@tcp";

/// Number of steps: the low part of a byte selects one. The rest of the byte selects an object for
/// it.
const STEPS: u8 = 12;

/// Largest number of steps of one input; further ones reach nothing new.
const STEPS_MAX: usize = 256;

/// Quotas that are small enough for short inputs to reach each of them.
const QUOTAS: ClientQuotas = ClientQuotas {
    tms: 3,
    buffers: 8,
    segments: 6,
    arenas: 3,
    bytes: 1 << 20,
    arena_bytes: 1 << 20,
    operations: 8,
    events: EVENTS,
    ring_slots: 8,
    requests_per_second: 1,
};

/// A helper with its clients, on which the steps of an input run.
struct SessionRun {
    engine: Arc<Engine>,
    lnd: Arc<HoldingLnd>,
    host: Arc<Host>,
    client: Client,
    neighbour: Neighbour,
    cookie: u64,
}

/// Runs steps, each a byte and its arguments: valid and invalid requests, with descriptors of all
/// kinds; valid and invalid entries; writes over all shared memory; and progress of the network. At
/// the end nothing of the client may be left, and its neighbour's messages must arrive.
pub(super) fn session(bytes: &[u8]) -> Outcome {
    let mut run = SessionRun::new();
    let mut rest = bytes;
    for _ in 0..STEPS_MAX {
        let Some((&step, after)) = rest.split_first() else { break };
        rest = run.step(step % STEPS, usize::from(step / STEPS), after);
        run.check_quotas();
    }
    run.end()
}

impl SessionRun {
    fn new() -> SessionRun {
        let table = CptTable::virtual_parts(1).expect("one partition");
        let engine =
            Engine::new(EngineConfig { partitions: Arc::new(table), ..EngineConfig::new(Pid::LNET, 1) });
        let lnd = Arc::new(HoldingLnd::default());
        engine.add_ni(ProcessId::lnet(nid(HERE)), lnd.clone()).expect("an NI");
        let config = HostConfig { quotas: QUOTAS, ..HostConfig::default() };
        let host = Host::new(engine.clone(), FakeDrive::new(), config);
        let neighbour = Neighbour::new(&host);
        let mut client = Client::new(&host, 1000);
        client.ask(&Request::Hello(Hello::new("fuzz")));
        SessionRun { engine, lnd, host, client, neighbour, cookie: 0 }
    }

    /// Runs one step; returns the rest of the input.
    fn step<'a>(&mut self, step: u8, choice: usize, mut rest: &'a [u8]) -> &'a [u8] {
        let client = &mut self.client;
        match step {
            0 => {
                let [length] = take(&mut rest);
                let (packet, after) = rest.split_at(rest.len().min(length.into()));
                rest = after;
                let packet = if choice & 1 == 0 { driver::mended(packet) } else { packet.to_vec() };
                client.ask_packet(&packet);
            }
            1 => {
                let arguments = take(&mut rest);
                if let Some(request) = self.request(choice, arguments) {
                    self.client.ask(&request);
                }
            }
            2 => {
                client.is_foul = true;
                client.push(entry_of(take(&mut rest)));
            }
            3 | 4 => {
                let arguments = take(&mut rest);
                self.operate(choice, arguments);
            }
            5 => client.drain(choice),
            6 => client.check(),
            7 => {
                let [low, high] = take(&mut rest);
                let at = choice.checked_sub(4);
                client.scribble(at, u64::from(u16::from_le_bytes([low, high])), &take::<8>(&mut rest));
            }
            8 => {
                let [page, value] = take(&mut rest);
                client.touch_arena(choice, u64::from(page) * 4096, &[value; 64]);
            }
            9 => drop(client.events(choice)),
            10 => self.finalize(choice),
            _ => client.sleep(),
        }
        rest
    }

    /// Creates a request whose objects exist.
    fn request(&mut self, choice: usize, [a, b, c]: [u8; 3]) -> Option<Request> {
        let client = &self.client;
        let tm = || client.tms.get(usize::from(a) % 3).map(|tm| tm.handle);
        let number = usize::from(u16::from_le_bytes([b, c]));
        Some(match choice % 8 {
            0 => {
                let near = NonZeroU32::new(u32::from(b % 4));
                Request::CreateArena { bytes: 1 + number as u64 * 16, huge: a & 1 == 1, near }
            }
            1 => Request::Nids,
            2 => Request::ReleaseArena { arena: client.arenas.get(usize::from(a) % 3)?.0 },
            3 => {
                let (arena, ..) = client.arenas.get(usize::from(a) % 3)?;
                let segment =
                    Segment { arena: *arena, offset: u64::from(b) * 64, length: u64::from(c) * 16 + 1 };
                Request::Register { buffer: name(a, b), segments: vec![segment; usize::from(c % 5) + 1] }
            }
            4 => {
                let nid = if a & 1 == 0 { Nid::LOOPBACK } else { nid(HERE) };
                let tmid = TmId::new(u32::from(c)).ok();
                let portal = u32::from(b) % 64;
                let address = StartAddress { nid, pid: Pid::LNET, portal, tmid };
                Request::StartTm(StartTm { address, events_max: EVENTS, lazy: a & 2 == 2 })
            }
            5 => Request::StopTm { tm: tm()? },
            6 => Request::TmDescriptor { tm: tm()? },
            _ => {
                if a & 1 == 0 {
                    Request::Sync
                } else {
                    Request::Nids
                }
            }
        })
    }

    /// Pushes an operation whose objects exist.
    fn operate(&mut self, choice: usize, [a, b, c, d]: [u8; 4]) {
        let client = &mut self.client;
        self.cookie += 1;
        let length = u64::from(c) * 16;
        let known = client.buffers.get(usize::from(b)).copied();
        let buffer = known.unwrap_or(name(b, 1));
        let at = usize::from(a) % 3;
        let to = client.tms.get(usize::from(d) % 3).map_or(self.neighbour.address, |tm| tm.address);
        let to = if d & 4 == 4 { Address { nid: nid(ELSEWHERE), ..to } } else { to };
        let described = |queue| {
            let counter =
                nlx_core::MatchCounter::new(u64::from(d) % 7 + 1).unwrap_or(nlx_core::MatchCounter::FIRST);
            let passive = PassiveBuffer {
                address: to,
                match_bits: match_bits(to.tmid, counter),
                queue,
                length: length.max(1),
            };
            Descriptor::encode(&passive).unwrap_or(Descriptor::NONE)
        };
        let kind = match choice % 9 {
            0 => OperationKind::Receive { min_receive_size: length, max_messages: u32::from(d % 6) },
            1 => OperationKind::Send { length, to },
            2 => OperationKind::PassiveReceive,
            3 => OperationKind::PassiveSend { length },
            4 => OperationKind::ActiveReceive { descriptor: described(Queue::PassiveBulkSend) },
            5 => OperationKind::ActiveSend { descriptor: described(Queue::PassiveBulkReceive), length },
            6 => {
                let tm = client.tms.get(at).map_or(0, |tm| tm.handle);
                let cookie = self.cookie.saturating_sub(d.into());
                return client.push(Entry::Cancel { tm, buffer: BufferHandle(buffer), cookie }.write());
            }
            7 => {
                let buffer = name(b % 10, d);
                let arena = client.arenas.get(at).map_or(0, |(arena, ..)| *arena);
                let segment = Segment { arena, offset: u64::from(d) * 16, length: length + 1 };
                client.buffers.push(buffer);
                return client.push(Entry::Register { buffer: BufferHandle(buffer), segment }.write());
            }
            _ => return client.push(Entry::Deregister { buffer: BufferHandle(buffer) }.write()),
        };
        client.operate(at, buffer, self.cookie, kind);
    }

    /// Finalises one of the network's messages, with success or failure.
    fn finalize(&mut self, choice: usize) {
        let result = if choice & 1 == 0 { Ok(()) } else { Err(Errno::EHOSTUNREACH) };
        let tx = {
            let mut sending = self.lnd.sending.lock();
            (choice / 2).checked_rem(sending.len()).map(|at| sending.swap_remove(at))
        };
        if let Some(tx) = tx {
            let token = tx.token;
            drop(tx);
            self.engine.finalize_tx(token, result);
        }
    }

    /// Checks that the client never exceeds its quotas.
    fn check_quotas(&self) {
        for client in self.host.status().clients {
            assert!(client.tms.len() <= QUOTAS.tms as usize, "{client:?}");
            assert!(
                client.buffers <= QUOTAS.buffers.into() && client.arenas <= QUOTAS.arenas.into(),
                "{client:?}"
            );
            assert!(
                client.bytes <= QUOTAS.bytes && client.operations <= QUOTAS.operations.into(),
                "{client:?}"
            );
        }
    }

    /// Ends both clients and checks that nothing is left.
    fn end(mut self) -> Outcome {
        let status = self.host.status();
        let outcome = Outcome::of((
            self.client
                .violation
                .as_ref()
                .map(|violation| (std::mem::discriminant(violation), violation.errno() as i32)),
            status
                .clients
                .iter()
                .map(|client| (client.tms.len(), client.buffers, client.arenas))
                .collect::<Vec<_>>(),
            [status.totals.operations, status.totals.events, status.totals.refused].map(|count| count.min(6)),
            [status.totals.refused_by_policy, status.totals.refused_by_quota].map(|count| count.min(2)),
        ));
        self.client.close();
        let departure = self.client.departure.take().expect("it has disconnected");
        // Messages that the network has not sent yet keep the departure open.
        assert!(departure.is_over() || !self.lnd.sending.lock().is_empty(), "{departure:?}");
        same(self.host.status().clients.len(), 1, "the clients that are left");
        self.neighbour.exchange();
        while !self.lnd.sending.lock().is_empty() {
            self.finalize(0);
        }
        same(departure.leftovers(), Leftovers::default(), "what the client has left");
        assert!(!self.host.sweep(), "nothing is left over");
        self.neighbour.leave();
        let end = self.host.status();
        assert!(end.clients.is_empty() && end.leftovers == Leftovers::default(), "{end:?}");
        same(end.faults.unexpected + end.faults.stale, 0, "faults");
        let counters = self.engine.counters();
        same((counters.msgs_alloc, counters.rst_alloc), (0, 0), "the messages of the engine");
        self.engine.audit().expect("the engine's tables agree");
        outcome
    }
}

fn nid(text: &str) -> Nid {
    text.parse().expect("a NID")
}

fn name(index: u8, generation: u8) -> u64 {
    BufferName { index: index.into(), generation: u32::from(generation) + 1 }.value()
}

fn entry_of(bytes: [u8; size_of::<Submission>()]) -> Submission {
    let mut submission = Submission::new_zeroed();
    submission.as_mut_bytes().copy_from_slice(&bytes);
    submission
}

/// Returns a step with its choice, as [`session`] decodes them.
const fn step(step: u8, choice: u8) -> u8 {
    step + STEPS * choice
}

/// Returns steps with arenas, buffers, transfer machines and all operations; and the packets and
/// entries of the document.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = courses().iter().map(|steps| [prelude(), steps.concat()].concat()).collect();
    for packet in driver::packet_seeds() {
        seeds.push([&prelude()[..], &[step(0, 0), packet.len() as u8], &packet].concat());
    }
    for entry in driver::entry_seeds() {
        seeds.push([&prelude()[..], &[step(2, 0)], &entry, &DRAIN].concat());
    }
    seeds
}

const DRAIN: [u8; 1] = [step(5, 9)];
const CHECK: [u8; 1] = [step(6, 0)];
const EVENTS_OF: [[u8; 1]; 2] = [[step(9, 0)], [step(9, 1)]];

/// Creates an arena, two transfer machines, the first over `0@lo`, and two buffers. Uses two
/// cookies.
fn prelude() -> Vec<u8> {
    let create = [step(1, 0), 0, 0, 16];
    let start = |on: u8, portal| [step(1, 4), on, portal, 0];
    let register = |index| [step(3, 7), 0, index, 100, index * 8];
    [&create[..], &start(0, 40), &start(1, 41), &register(0), &register(1), &DRAIN].concat()
}

fn courses() -> Vec<Vec<Vec<u8>>> {
    let operation = |kind, tm, buffer, other| vec![step(4, kind), tm, buffer, 9, other];
    let request = |which, a, b, c| vec![step(1, which), a, b, c];
    let scribble = |at, offset, value: u8| [&[step(7, at), offset, 0][..], &[value; 8]].concat();
    let (drain, check) = (DRAIN.to_vec(), CHECK.to_vec());
    let [first, second] = EVENTS_OF.map(Vec::from);
    // The third cookie makes the fourth counter: that of the descriptor whose last number is 3.
    let bulk = |passive, active| {
        vec![
            operation(passive, 0, 0, 0),
            drain.clone(),
            operation(active, 0, 1, 3),
            drain.clone(),
            first.clone(),
        ]
    };
    let elsewhere = operation(1, 1, 0, 4);
    let leave = |result| vec![elsewhere.clone(), drain.clone(), vec![step(10, result)], second.clone()];
    vec![
        vec![operation(0, 0, 0, 2), operation(1, 0, 1, 0), drain.clone(), check.clone(), first.clone()],
        vec![operation(0, 0, 0, 2), drain.clone(), request(5, 0, 0, 0), request(2, 0, 0, 0)],
        bulk(2, 5),
        bulk(3, 4),
        leave(0),
        leave(1),
        // Neither has been sent when the client disconnects.
        vec![elsewhere.clone(), operation(3, 1, 1, 0), drain.clone()],
        vec![
            operation(2, 0, 0, 0),
            operation(6, 0, 0, 1),
            operation(8, 0, 0, 0),
            drain.clone(),
            first.clone(),
        ],
        vec![request(3, 0, 2, 3), request(6, 0, 0, 0), request(7, 1, 0, 0), request(5, 1, 0, 0)],
        vec![vec![step(0, 6), 16, 3], vec![0; 15], request(1, 0, 0, 0), request(2, 1, 0, 0)],
        vec![
            scribble(4, 136, 0xff),
            operation(0, 0, 0, 5),
            operation(1, 0, 1, 0),
            drain.clone(),
            check.clone(),
        ],
        vec![scribble(0, 128, 0xff), vec![step(8, 0), 1, 0, step(8, 0), 0, 7, step(11, 0)], drain, check],
    ]
}

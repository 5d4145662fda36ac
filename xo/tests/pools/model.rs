//! Transfer machines with a pool: invariants that hold after any steps.

use proptest::prelude::*;

use super::*;

const MACHINES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    /// To this machine; the event is kept.
    Message(usize),
    /// Drops an event or buffer that was kept: first the buffer of an event, or first its message.
    LetGo(usize, bool),
    SetProvision(usize, usize),
    Grow(usize),
    Prune,
    /// Takes a buffer and keeps it.
    Get(u32),
    /// Removes a buffer from the pool.
    Leave(u32),
    Stop(usize),
    Start(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let machine = 0..MACHINES;
    prop_oneof![
        6 => machine.clone().prop_map(Step::Message),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(at, buffer)| Step::LetGo(at, buffer)),
        2 => (machine.clone(), 0..6usize).prop_map(|(at, buffers)| Step::SetProvision(at, buffers)),
        1 => (0..4usize).prop_map(Step::Grow),
        2 => Just(Step::Prune),
        2 => (0..10u32).prop_map(Step::Get),
        1 => (0..10u32).prop_map(Step::Leave),
        1 => machine.clone().prop_map(Step::Stop),
        2 => machine.prop_map(Step::Start),
    ]
}

/// A kept event or buffer, which is not free in its pool.
struct Kept {
    event: Option<Event>,
    _buffer: Option<Buffer>,
}

struct World {
    domain: Domain,
    pool: BufferPool,
    sender: Sender,
    machines: [Option<(TransferMachine, usize)>; MACHINES],
    kept: Vec<Kept>,
    /// Buffers of the pool.
    total: usize,
}

impl World {
    fn new() -> World {
        let domain = domain();
        let (pool, sender) = (pool(&domain, 4), Sender::new(&domain));
        World { domain, pool, sender, machines: [const { None }; MACHINES], kept: Vec::new(), total: 4 }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Message(at) => self.message(at),
            Step::LetGo(at, buffer) => self.let_go(at, buffer),
            Step::SetProvision(at, buffers) => {
                if let Some((tm, wanted)) = &mut self.machines[at] {
                    tm.set_provision(buffers).unwrap();
                    *wanted = buffers.max(2);
                }
            }
            Step::Grow(buffers) => self.total += self.pool.provision(buffers).unwrap(),
            Step::Prune => {
                let many = free(&self.pool) > 2;
                assert_eq!(self.pool.prune(), many);
                self.total -= usize::from(many);
            }
            Step::Get(colour) => {
                let buffer = self.pool.get(Colour::Of(colour)).unwrap();
                self.kept.extend(buffer.map(|buffer| Kept { event: None, _buffer: Some(buffer) }));
            }
            Step::Leave(colour) => {
                let left = self.pool.get(Colour::Of(colour)).unwrap().map(Buffer::leave_pool);
                self.total -= usize::from(left.is_some());
            }
            Step::Stop(at) => self.stop(at),
            Step::Start(at) => {
                let start =
                    || provisioned(&self.domain, &self.pool, Colour::Of(at as u32)).start(ADDRESS).unwrap();
                self.machines[at].get_or_insert_with(|| (start(), 2));
            }
        }
    }

    fn message(&mut self, at: usize) {
        let Some((tm, _)) = &self.machines[at] else { return };
        let buffers = posted(tm);
        self.sender.send(b"hello", tm);
        // Through a helper it arrives a little after the sender's event.
        let event = if buffers > 0 { tm.wait(None).unwrap() } else { tm.poll().unwrap() };
        assert_eq!(event.is_some(), buffers > 0);
        self.kept.extend(event.map(|event| Kept { event: Some(event), _buffer: None }));
    }

    fn let_go(&mut self, at: usize, buffer_first: bool) {
        if self.kept.is_empty() {
            return;
        }
        let at = at % self.kept.len();
        if let Some(mut event) = self.kept.swap_remove(at).event {
            let before = free(&self.pool);
            if buffer_first {
                drop(event.buffer.take());
                assert_eq!(free(&self.pool), before, "the message is still there");
            }
            assert_eq!(event.message.as_deref(), Some(&b"hello"[..]));
        }
    }

    fn stop(&mut self, at: usize) {
        if let Some((tm, _)) = self.machines[at].take() {
            let buffers = posted(&tm);
            tm.stop(Stop::Abort, None).unwrap();
            let events: Vec<_> = std::iter::from_fn(|| tm.poll().ok().flatten()).collect();
            assert_eq!((events.len(), posted(&tm), tm.deficit()), (buffers, 0, 0));
        }
    }

    fn check(&self) {
        let mut away = self.kept.len();
        let mut deficits = 0;
        for (tm, wanted) in self.machines.iter().flatten() {
            let has = posted(tm);
            assert_eq!(tm.deficit(), wanted.saturating_sub(has), "of {wanted} it has {has}");
            (away, deficits) = (away + has, deficits + tm.deficit());
        }
        let total = self.total;
        assert_eq!(self.pool.counts(), PoolCounts { free: total - away, total });
        assert!(deficits == 0 || total == away, "{deficits} are missing, and {} are free", total - away);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Buffers are neither lost nor duplicated, and while a machine lacks one, none is free.
    // Covers: MT-121, X-7
    #[test]
    fn buffers_are_where_they_are_wanted(steps in prop::collection::vec(steps(), 1..150)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}

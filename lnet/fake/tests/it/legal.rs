//! Random legal scripts: the rules for an MD's events hold in all of them (S-311; lnet-semantics 7,
//! 8).

use std::collections::{BTreeMap, BTreeSet};

use lnet_fake::ScriptedEvent;
use proptest::prelude::*;

use super::*;

/// The next step of a script; numbers select among the existing objects.
#[derive(Debug, Clone)]
enum Step {
    Bind { threshold: u32 },
    Attach { threshold: u32, get: bool },
    Put { ack: bool, choice: usize },
    Get { choice: usize },
    Unlink { busy: bool, choice: usize },
    Happen { kind: u8, fails: bool, choice: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let choice = any::<usize>;
    let step = prop_oneof![
        (1u32..4).prop_map(|threshold| Step::Bind { threshold }),
        (1u32..4, any::<bool>()).prop_map(|(threshold, get)| Step::Attach { threshold, get }),
        (any::<bool>(), choice()).prop_map(|(ack, choice)| Step::Put { ack, choice }),
        choice().prop_map(|choice| Step::Get { choice }),
        (any::<bool>(), choice()).prop_map(|(busy, choice)| Step::Unlink { busy, choice }),
        (0u8..5, any::<bool>(), choice()).prop_map(|(kind, fails, choice)| Step::Happen {
            kind,
            fails,
            choice
        }),
        (0u8..5, any::<bool>(), choice()).prop_map(|(kind, fails, choice)| Step::Happen {
            kind,
            fails,
            choice
        }),
    ];
    prop::collection::vec(step, 1..80)
}

/// The visible state of an MD, tracked independently of the fake.
#[derive(Default)]
struct Seen {
    sends_due: u32,
    answers_due: u32,
    ended: bool,
}

struct Play {
    rig: Rig,
    mds: Vec<MdHandle>,
    seen: BTreeMap<MdHandle, Seen>,
    dead: BTreeSet<MdHandle>,
}

impl Play {
    fn note(&mut self, made: MdHandle) {
        self.mds.push(made);
        self.seen.insert(made, Seen::default());
    }

    fn pick(&self, choice: usize) -> Option<MdHandle> {
        (!self.mds.is_empty()).then(|| self.mds[choice % self.mds.len()])
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Bind { threshold } => self.note(self.rig.bind(threshold)),
            Step::Attach { threshold, get } => {
                let options = if get { MdOptions::OP_GET } else { MdOptions::OP_PUT };
                self.note(self.rig.expect(options, threshold));
            }
            Step::Put { ack, choice } => {
                let Some(md) = self.pick(choice) else { return Ok(()) };
                let ack = if ack { AckRequest::Ack } else { AckRequest::NoAck };
                if self.rig.put(md, ack).is_ok() {
                    self.started(md, u32::from(ack == AckRequest::Ack))?;
                }
            }
            Step::Get { choice } => {
                let Some(md) = self.pick(choice) else { return Ok(()) };
                if self.rig.get(md).is_ok() {
                    self.started(md, 1)?;
                }
            }
            Step::Unlink { busy, choice } => {
                let Some(md) = self.pick(choice) else { return Ok(()) };
                self.rig.lnet.set_busy(busy && self.seen[&md].sends_due > 0);
                let known = self.rig.lnet.md_unlink(md).is_ok();
                self.rig.lnet.set_busy(false);
                prop_assert_eq!(known, !self.seen[&md].ended && self.dead.insert(md));
            }
            Step::Happen { kind, fails, choice } => {
                let Some(md) = self.pick(choice) else { return Ok(()) };
                self.happen(md, kind, fails);
            }
        }
        self.look()
    }

    fn started(&mut self, md: MdHandle, answers: u32) -> Result<(), TestCaseError> {
        prop_assert!(!self.seen[&md].ended && !self.dead.contains(&md));
        let seen = self.seen.entry(md).or_default();
        seen.sends_due += 1;
        seen.answers_due += answers;
        Ok(())
    }

    /// Injects an event if LNet could give it.
    fn happen(&self, md: MdHandle, kind: u8, fails: bool) {
        let scripted_event = match kind {
            0 => ScriptedEvent::send(),
            1 => ScriptedEvent::ack(),
            2 => ScriptedEvent::reply(),
            3 => ScriptedEvent::put().length(1),
            _ => ScriptedEvent::get().length(1),
        };
        let scripted_event = if fails { scripted_event.failed(Errno::EIO) } else { scripted_event };
        // An event that LNet could not give is a panic, which `what_lnet_would_not_do...` tests.
        if self.rig.lnet.could_happen(md, &scripted_event).is_ok() {
            self.rig.lnet.inject(md, scripted_event);
        }
    }

    /// Checks that each new event was possible, and that none follows an MD's last event.
    fn look(&mut self) -> Result<(), TestCaseError> {
        for event in self.rig.log.take() {
            let seen = self.seen.get_mut(&event.md).expect("an MD that was made");
            prop_assert!(!seen.ended, "after the end: {event:?}");
            match event.kind {
                EventKind::Send => {
                    prop_assert!(seen.sends_due > 0, "{event:?}");
                    seen.sends_due -= 1;
                }
                EventKind::Ack | EventKind::Reply => {
                    prop_assert!(seen.answers_due > 0, "{event:?}");
                    seen.answers_due -= 1;
                }
                EventKind::Unlink => {
                    prop_assert!(seen.sends_due == 0 && event.unlinked && event.status.is_ok(), "{event:?}");
                }
                EventKind::Put | EventKind::Get => {}
            }
            if event.unlinked {
                prop_assert_eq!(seen.sends_due, 0, "an end while something is being sent: {:?}", event);
                seen.ended = true;
            } else {
                prop_assert!(!self.dead.contains(&event.md) || seen.sends_due > 0, "not the end: {event:?}");
            }
        }
        Ok(())
    }

    /// Ends each operation and unlinks each MD, once.
    fn end(&mut self) -> Result<(), TestCaseError> {
        for md in self.mds.clone() {
            let _ = self.rig.lnet.md_unlink(md);
            self.dead.insert(md);
            while self.rig.lnet.could_happen(md, ScriptedEvent::send()).is_ok() {
                self.rig.lnet.inject(md, ScriptedEvent::send());
            }
        }
        self.look()?;
        prop_assert!(self.seen.values().all(|seen| seen.ended));
        self.rig.lnet.eq_free(self.rig.eq).expect("nothing uses it");
        self.rig.lnet.assert_quiet();
        Ok(())
    }
}

proptest! {
    // Covers: S-7
    #[test]
    fn per_md_the_event_that_unlinks_is_the_last_and_comes_once(steps in steps()) {
        let mut play = Play { rig: Rig::new(), mds: Vec::new(), seen: BTreeMap::new(), dead: BTreeSet::new() };
        for step in steps {
            play.step(step)?;
        }
        play.end()?;
    }
}

// Events of one MD never overlap, even if several threads inject them.
// Covers: S-311
#[test]
fn events_of_one_md_never_overlap() {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use lnet_fake::events::on_event;

    const THREADS: u32 = 4;
    const EACH: u32 = 500;
    let rig = Rig::new();
    let (inside, events) = (AtomicBool::new(false), Arc::new(AtomicU32::new(0)));
    let counter = events.clone();
    let alone = on_event(move |event| {
        assert!(!inside.swap(true, Ordering::AcqRel), "two at once");
        let number = counter.fetch_add(1, Ordering::Relaxed);
        assert_eq!(u64::from(number), event.offset, "in their order");
        inside.store(false, Ordering::Release);
    });
    let eq = rig.lnet.eq_alloc(alone).unwrap();
    let all = (THREADS * EACH) as usize;
    let md = Md { eq: Some(eq), ..rig.md(all, MdOptions::OP_PUT, THREADS * EACH) };
    let md = rig.lnet.md_attach(rig.post(), md, Unlink::Auto).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                (0..EACH)
                    .for_each(|_| assert_eq!(rig.lnet.inject(md, ScriptedEvent::put().length(1)).mlength, 1))
            });
        }
    });
    assert_eq!((events.load(Ordering::Relaxed), rig.lnet.objects().mds), (THREADS * EACH, 0));
}

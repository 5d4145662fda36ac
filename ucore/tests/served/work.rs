//! Buffers, operations and their events.

use std::time::{Duration, Instant};

use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreTm, IoVec, Operation, OperationKind, Region, Submitted,
};
pub(crate) use nlx_testkit::until;

/// Longer than any step here takes, however busy the machine is.
pub(crate) const HUNG: Duration = Duration::from_secs(60);

/// A registered buffer with its memory.
pub(crate) struct Buffer {
    pub(crate) handle: BufferHandle,
    pub(crate) memory: IoVec,
}

pub(crate) fn buffer(domain: &dyn Core, bytes: usize) -> Buffer {
    let memory = IoVec::whole(domain.allocate(bytes).unwrap());
    Buffer { handle: domain.register(&memory).unwrap(), memory }
}

pub(crate) fn copying(domain: &dyn Core, bytes: usize) -> Buffer {
    let memory = IoVec::whole(Region::heap(bytes).unwrap());
    Buffer { handle: domain.register_copying(&memory).unwrap(), memory }
}

impl Buffer {
    pub(crate) fn fill(&self, bytes: &[u8]) {
        self.memory.write(0..bytes.len()).unwrap().copy_from(0, bytes);
    }

    pub(crate) fn bytes(&self, from: usize, length: usize) -> Vec<u8> {
        self.memory.read(from..from + length).unwrap().to_vec()
    }

    /// Returns an operation on it, with its handle as the cookie.
    pub(crate) fn to(&self, kind: OperationKind) -> Operation {
        Operation { buffer: self.handle, cookie: self.handle.0, kind }
    }

    pub(crate) fn receive(&self, messages: u32) -> Operation {
        // Longer messages do not match it.
        let min_receive_size = (self.memory.len() as u64 / u64::from(messages)).max(1);
        self.to(OperationKind::Receive { min_receive_size, max_messages: messages })
    }

    pub(crate) fn send(&self, length: u64, to: Address) -> Operation {
        self.to(OperationKind::Send { length, to })
    }
}

pub(crate) fn submit(tm: &dyn CoreTm, operation: &Operation) -> Submitted {
    tm.submit(operation).unwrap()
}

/// Returns the next event, which must come.
pub(crate) fn event(tm: &dyn CoreTm) -> BufferEvent {
    let hung = Instant::now() + HUNG;
    loop {
        if let Some(event) = tm.event_get().unwrap() {
            return event;
        }
        assert!(Instant::now() < hung, "no event for {}", tm.address());
        tm.event_wait(Some(deadline(HUNG)));
    }
}

/// Takes events until `ends` operations have ended.
pub(crate) fn events_until(tm: &dyn CoreTm, ends: usize) -> Vec<BufferEvent> {
    let mut events = vec![];
    while events.iter().filter(|event: &&BufferEvent| event.unlinked()).count() < ends {
        events.push(event(tm));
    }
    events
}

/// Returns the deadline after this time.
pub(crate) fn deadline(after: Duration) -> u64 {
    let now: Duration = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap().into();
    (now + after).as_nanos() as u64
}

pub(crate) fn assert_ok(event: &BufferEvent) {
    assert_eq!(event.status(), Ok(()), "{event:?}");
}

//! A network in memory that loses, delays or duplicates each message by a given fate. Its clock
//! advances only while a machine waits, and then directly to the next arrival.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use nlx::{Address, Core, CoreError, CoreTm, Errno, IoVec, Limits, Nid, StartAddress, TmId, TmOptions};
use nlx_core::{BufferEvent, BufferHandle, EventFlags, Operation, OperationKind, Submitted};

/// The fate of a message: for each arrival, the delay in nanoseconds.
pub(crate) type Fate = Vec<u64>;

/// One arrival, without delay.
pub(crate) fn arrives() -> Fate {
    vec![0]
}

#[derive(Clone)]
pub(crate) struct Lossy(Arc<Mutex<NetworkState>>);

struct NetworkState {
    now_ns: u64,
    buffers: Vec<IoVec>,
    machines: Vec<Machine>,
    on_the_way: Vec<(u64, Sent)>,
    fate: Box<dyn FnMut(&Sent) -> Fate + Send>,
    sent: Vec<Sent>,
    /// If set, sends end with this error, and nothing arrives.
    failing: Option<Errno>,
}

/// A message that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at_ns: u64,
    pub(crate) from: Address,
    pub(crate) to: Address,
    pub(crate) bytes: Vec<u8>,
}

struct Machine {
    address: Address,
    posted: VecDeque<Posted>,
    events: VecDeque<BufferEvent>,
    stopped: bool,
}

struct Posted {
    operation: Operation,
    used: usize,
    messages: u32,
}

impl Lossy {
    /// Creates a network in which `fate` decides about every message.
    pub(crate) fn new(fate: impl FnMut(&Sent) -> Fate + Send + 'static) -> Lossy {
        Lossy(Arc::new(Mutex::new(NetworkState {
            now_ns: 0,
            buffers: Vec::new(),
            machines: Vec::new(),
            on_the_way: Vec::new(),
            fate: Box::new(fate),
            sent: Vec::new(),
            failing: None,
        })))
    }

    /// Sets another fate for later messages.
    pub(crate) fn change(&self, fate: impl FnMut(&Sent) -> Fate + Send + 'static) {
        self.state().fate = Box::new(fate);
    }

    /// Makes later sends fail, or succeed again.
    pub(crate) fn fail_sends(&self, failing: Option<Errno>) {
        self.state().failing = failing;
    }

    pub(crate) fn core(&self) -> Arc<dyn Core> {
        Arc::new(self.clone())
    }

    pub(crate) fn now(&self) -> u64 {
        self.state().now_ns
    }

    /// Returns the messages sent since the last call.
    pub(crate) fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut self.state().sent)
    }

    /// Sends on behalf of a machine that does not exist here.
    pub(crate) fn send(&self, from: Address, to: Address, bytes: Vec<u8>) {
        let mut state = self.state();
        let at_ns = state.now_ns;
        state.on_the_way.push((at_ns, Sent { at_ns, from, to, bytes }));
        state.deliver();
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.0.lock().expect("no test panics while it holds the network")
    }
}

impl NetworkState {
    fn send(&mut self, from: Address, to: Address, buffer: BufferHandle, length: u64) {
        let memory = &self.buffers[buffer.0 as usize];
        let bytes = memory.outgoing(0..length as usize).unwrap().to_vec();
        let sent = Sent { at_ns: self.now_ns, from, to, bytes };
        for delay_ns in (self.fate)(&sent) {
            self.on_the_way.push((self.now_ns + delay_ns, sent.clone()));
        }
        self.sent.push(sent);
        self.deliver();
    }

    fn deliver(&mut self) {
        let now_ns = self.now_ns;
        while let Some(next) = self.on_the_way.iter().position(|(at_ns, _)| *at_ns <= now_ns) {
            let (_, sent) = self.on_the_way.remove(next);
            self.arrive(&sent);
        }
    }

    /// Delivers a message. It is lost if it finds no machine or no buffer, as with LNet.
    fn arrive(&mut self, sent: &Sent) {
        let to = self.machines.iter_mut().find(|machine| machine.address == sent.to && !machine.stopped);
        let Some(Machine { posted, events, .. }) = to else { return };
        let Some(first) = posted.front_mut() else { return };
        let OperationKind::Receive { min_receive_size, max_messages } = first.operation.kind else { return };
        let memory = &self.buffers[first.operation.buffer.0 as usize];
        let (from, until) = (first.used, first.used + sent.bytes.len());
        memory.incoming(from..until).unwrap().copy_from(0, &sent.bytes);
        (first.used, first.messages) = (until, first.messages + 1);
        let full = memory.len() - until < min_receive_size as usize || first.messages == max_messages;
        let mut event = happened(&first.operation, Ok(()), sent.bytes.len() as u64);
        event.offset = from as u64;
        event.set_sender(&sent.from);
        if full {
            event.flags |= EventFlags::UNLINKED;
            posted.pop_front();
        }
        events.push_back(event);
    }

    fn cancel(&mut self, machine: usize, buffer: BufferHandle) {
        let Machine { posted, events, .. } = &mut self.machines[machine];
        posted.retain(|posted| {
            let stays = posted.operation.buffer != buffer;
            if !stays {
                events.push_back(last(happened(&posted.operation, Err(Errno::ECANCELED), 0)));
            }
            stays
        });
    }
}

fn happened(operation: &Operation, status: Result<(), Errno>, length: u64) -> BufferEvent {
    let mut event =
        BufferEvent { buffer: operation.buffer.0, cookie: operation.cookie, length, ..BufferEvent::ZERO };
    event.set_status(status);
    event
}

fn last(mut event: BufferEvent) -> BufferEvent {
    event.flags |= EventFlags::UNLINKED;
    event
}

impl Core for Lossy {
    fn limits(&self) -> Limits {
        Limits::LNET
    }

    fn nids(&self) -> Vec<Nid> {
        vec![Nid::LOOPBACK]
    }

    fn now_ns(&self) -> u64 {
        self.now()
    }

    fn register(&self, memory: &IoVec) -> Result<BufferHandle, CoreError> {
        let mut state = self.state();
        state.buffers.push(memory.clone());
        Ok(BufferHandle(state.buffers.len() as u64 - 1))
    }

    fn deregister(&self, _: BufferHandle) -> Result<(), CoreError> {
        Ok(())
    }

    fn tm_start(&self, address: &StartAddress, _: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        let mut state = self.state();
        let index = state.machines.len();
        let tmid = TmId::new(4095 - index as u32).unwrap();
        let address = address.with(address.tmid.unwrap_or(tmid));
        state.machines.push(Machine {
            address,
            posted: VecDeque::new(),
            events: VecDeque::new(),
            stopped: false,
        });
        Ok(Box::new(Tm { network: self.clone(), address, index }))
    }
}

struct Tm {
    network: Lossy,
    address: Address,
    index: usize,
}

impl CoreTm for Tm {
    fn address(&self) -> Address {
        self.address
    }

    fn submit_all(
        &self,
        _: Option<u64>,
        operations: &[Operation],
        outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
    ) {
        for (place, operation) in operations.iter().enumerate() {
            let mut state = self.network.state();
            match operation.kind {
                OperationKind::Send { length, to } => {
                    let sent = match state.failing {
                        Some(errno) => happened(operation, Err(errno), 0),
                        None => {
                            state.send(self.address, to, operation.buffer, length);
                            happened(operation, Ok(()), length)
                        }
                    };
                    state.machines[self.index].events.push_back(last(sent));
                }
                OperationKind::Receive { .. } => {
                    let posted = Posted { operation: *operation, used: 0, messages: 0 };
                    state.machines[self.index].posted.push_back(posted);
                }
                _ => unreachable!("requests are messages"),
            }
            drop(state);
            outcome(place, Ok(Submitted { descriptor: None }));
        }
    }

    fn cancel(&self, buffer: BufferHandle, _: u64) -> Result<(), CoreError> {
        self.network.state().cancel(self.index, buffer);
        Ok(())
    }

    fn events_get(&self, events: &mut [BufferEvent]) -> Result<usize, CoreError> {
        let waiting = &mut self.network.state().machines[self.index].events;
        let count = waiting.len().min(events.len());
        events.iter_mut().zip(waiting.drain(..count)).for_each(|(place, event)| *place = event);
        Ok(count)
    }

    fn event_wait(&self, deadline_ns: Option<u64>) -> bool {
        while !self.pending() {
            let mut state = self.network.state();
            let next_ns = state.on_the_way.iter().map(|(at_ns, _)| *at_ns).chain(deadline_ns).min();
            let next_ns = next_ns.expect("a test does not wait without end for what does not come");
            state.now_ns = state.now_ns.max(next_ns);
            state.deliver();
            let over = deadline_ns.is_some_and(|deadline_ns| state.now_ns >= deadline_ns);
            drop(state);
            if over {
                break;
            }
        }
        self.pending()
    }

    fn pending(&self) -> bool {
        !self.network.state().machines[self.index].events.is_empty()
    }

    fn poll(&self) {}

    fn wake(&self) {}

    fn needed(&self) -> usize {
        0
    }

    fn stop(&self) -> Result<(), CoreError> {
        self.network.state().machines[self.index].stopped = true;
        Ok(())
    }
}

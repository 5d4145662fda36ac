//! A scripted transport. Its clock advances only in waits: one without an event advances it to the
//! wait's deadline.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Descriptor, DescriptorForm, Errno,
    EventFlags, IoVec, Limits, MatchCounter, Nid, Operation, OperationKind, StartAddress, Submitted, TmId,
    TmOptions,
};

#[derive(Default)]
pub(crate) struct Scripted {
    now_ns: AtomicU64,
    script: Mutex<Script>,
    /// Notified for waits without limit.
    happened: Condvar,
}

#[derive(Default)]
struct Script {
    operations: Vec<Operation>,
    began: Vec<Option<u64>>,
    events: VecDeque<BufferEvent>,
    /// The time, and the cookie of the operation.
    cancels: Vec<(u64, u64)>,
    refuse_submit: Option<CoreError>,
    /// Called once, after this number of operations has been started.
    at_submit: Option<(usize, Hook)>,
    refuse_cancels: u32,
    refuse_stops: u32,
    stops: u32,
    complete_inside: bool,
    woken: bool,
    corrupt: bool,
    /// The number of threads in a wait without limit.
    asleep: usize,
    /// The number of calls that requested events.
    asked: usize,
    registered: Vec<BufferHandle>,
    deregistered: Vec<BufferHandle>,
    /// The addresses of the transfer machines that were started.
    started: Vec<Address>,
}

/// Called by the transport without any lock, where another thread could call too.
type Hook = Box<dyn FnOnce(&Scripted) + Send>;

/// Returns an event of an operation that is not its last one.
pub(crate) fn happened(operation: &Operation, status: Result<(), Errno>, length: u64) -> BufferEvent {
    let mut event =
        BufferEvent { buffer: operation.buffer.0, cookie: operation.cookie, length, ..BufferEvent::ZERO };
    event.set_status(status);
    event
}

/// Marks an event as the last one of its operation.
pub(crate) fn last(mut event: BufferEvent) -> BufferEvent {
    event.flags |= EventFlags::UNLINKED;
    event
}

impl Scripted {
    pub(crate) fn new() -> Arc<Scripted> {
        Arc::default()
    }

    pub(crate) fn core(self: &Arc<Scripted>) -> Arc<dyn Core> {
        Arc::new(ScriptedCore(self.clone()))
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Sets the clock, also back, which no real clock allows.
    pub(crate) fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(crate) fn inject(&self, event: BufferEvent) {
        self.script().events.push_back(event);
        self.happened.notify_all();
    }

    /// Queues events without a wake-up.
    pub(crate) fn inject_silently(&self, events: impl IntoIterator<Item = BufferEvent>) {
        self.script().events.extend(events);
    }

    /// Wakes waits without limit.
    pub(crate) fn wake_all(&self) {
        self.happened.notify_all();
    }

    /// Returns the number of threads in a wait without limit.
    pub(crate) fn asleep(&self) -> usize {
        self.script().asleep
    }

    /// Returns the number of calls that requested events, and resets it to 0.
    pub(crate) fn take_asked(&self) -> usize {
        std::mem::take(&mut self.script().asked)
    }

    pub(crate) fn registered(&self) -> Vec<BufferHandle> {
        self.script().registered.clone()
    }

    pub(crate) fn deregistered(&self) -> Vec<BufferHandle> {
        self.script().deregistered.clone()
    }

    pub(crate) fn started(&self) -> Vec<Address> {
        self.script().started.clone()
    }

    /// Loses the events, and ends every wait.
    pub(crate) fn corrupt(&self) {
        let mut script = self.script();
        (script.corrupt, script.woken) = (true, true);
        self.happened.notify_all();
    }

    /// Refuses the next operation.
    pub(crate) fn refuse_submit(&self, error: CoreError) {
        self.script().refuse_submit = Some(error);
    }

    /// Calls `hook` while an operation is started, after `after` more.
    pub(crate) fn at_submit(&self, after: usize, hook: impl FnOnce(&Scripted) + Send + 'static) {
        let mut script = self.script();
        let at = script.operations.len() + after;
        script.at_submit = Some((at, Box::new(hook)));
    }

    fn take_hook(&self) -> Option<Hook> {
        let mut script = self.script();
        let now = script.operations.len();
        script.at_submit.take_if(|(at, _)| *at == now).map(|(_, hook)| hook)
    }

    /// Makes this number of cancels fail to find their operation.
    pub(crate) fn refuse_cancels(&self, count: u32) {
        self.script().refuse_cancels = count;
    }

    /// Makes this number of stops find the transfer machine busy.
    pub(crate) fn refuse_stops(&self, count: u32) {
        self.script().refuse_stops = count;
    }

    /// Ends operations within the call that starts them.
    pub(crate) fn complete_inside(&self) {
        self.script().complete_inside = true;
    }

    pub(crate) fn last_operation(&self) -> Operation {
        *self.script().operations.last().expect("an operation was started")
    }

    /// Returns the start time of each operation that was passed to the transport.
    pub(crate) fn began(&self) -> Vec<Option<u64>> {
        self.script().began.clone()
    }

    pub(crate) fn operations(&self) -> impl Iterator<Item = Operation> + use<> {
        self.script().operations.clone().into_iter()
    }

    pub(crate) fn take_cancels(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.script().cancels)
    }

    pub(crate) fn take_stops(&self) -> u32 {
        std::mem::take(&mut self.script().stops)
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no test panics while it holds the script")
    }
}

/// Limits that differ from LNet's.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::LNET;
    (limits.segments_max, limits.messages_max) = (77, 7777);
    limits
}

struct ScriptedCore(Arc<Scripted>);

impl Core for ScriptedCore {
    fn limits(&self) -> Limits {
        limits()
    }

    fn nids(&self) -> Vec<Nid> {
        vec![Nid::LOOPBACK]
    }

    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn register(&self, _: &IoVec) -> Result<BufferHandle, CoreError> {
        let mut script = self.0.script();
        let handle = BufferHandle(1 + script.registered.len() as u64);
        script.registered.push(handle);
        Ok(handle)
    }

    fn deregister(&self, buffer: BufferHandle) -> Result<(), CoreError> {
        self.0.script().deregistered.push(buffer);
        Ok(())
    }

    fn tm_start(&self, address: &StartAddress, _: &TmOptions) -> Result<Box<dyn CoreTm>, CoreError> {
        let address = address.with(address.tmid.unwrap_or(TmId::MAX));
        self.0.script().started.push(address);
        Ok(Box::new(ScriptedTm { address, scripted: self.0.clone() }))
    }
}

struct ScriptedTm {
    address: Address,
    scripted: Arc<Scripted>,
}

impl ScriptedTm {
    fn describe(&self, operation: &Operation, counter: MatchCounter) -> Option<Descriptor> {
        let length = match operation.kind {
            OperationKind::PassiveSend { length } => length,
            _ => 1 << 20,
        };
        let queue = operation.kind.queue();
        Descriptor::of_operation(DescriptorForm::Compatible, self.address, (queue, counter), length).unwrap()
    }

    fn start(&self, operation: &Operation) -> Result<Submitted, CoreError> {
        if let Some(hook) = self.scripted.take_hook() {
            hook(&self.scripted);
        }
        let mut script = self.scripted.script();
        if let Some(error) = script.refuse_submit.take() {
            return Err(error);
        }
        script.operations.push(*operation);
        if script.complete_inside {
            script.events.push_back(last(happened(operation, Ok(()), 0)));
        }
        let counter = MatchCounter::new(script.operations.len() as u64);
        Ok(Submitted { descriptor: self.describe(operation, counter.expect("there are not so many")) })
    }
}

impl CoreTm for ScriptedTm {
    fn address(&self) -> Address {
        self.address
    }

    fn submit_all(
        &self,
        started_ns: Option<u64>,
        operations: &[Operation],
        outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
    ) {
        for (place, operation) in operations.iter().enumerate() {
            outcome(place, self.start(operation));
            self.scripted.script().began.push(started_ns);
        }
    }

    fn cancel(&self, buffer: BufferHandle, cookie: u64) -> Result<(), CoreError> {
        let mut script = self.scripted.script();
        script.cancels.push((self.scripted.now_ns(), cookie));
        if script.refuse_cancels == 0 {
            return Ok(());
        }
        script.refuse_cancels -= 1;
        Err(CoreError::NoSuchOperation { buffer, cookie })
    }

    fn events_get(&self, events: &mut [BufferEvent]) -> Result<usize, CoreError> {
        let script = &mut *self.scripted.script();
        if script.corrupt {
            return Err(CoreError::QueueCorrupt { address: self.address, reason: "overwritten".into() });
        }
        script.asked += 1;
        let count = script.events.len().min(events.len());
        events.iter_mut().zip(script.events.drain(..count)).for_each(|(place, event)| *place = event);
        Ok(count)
    }

    fn event_wait(&self, deadline_ns: Option<u64>) -> bool {
        match deadline_ns {
            Some(deadline_ns) if !self.pending() => {
                self.scripted.now_ns.fetch_max(deadline_ns, Ordering::Relaxed);
            }
            Some(_) => {}
            None => {
                let sleeps = |script: &mut Script| script.events.is_empty() && !script.woken;
                let mut script = self.scripted.script();
                script.asleep += 1;
                let mut script = self.scripted.happened.wait_while(script, sleeps).unwrap();
                script.asleep -= 1;
                script.woken = false;
            }
        }
        self.pending()
    }

    fn pending(&self) -> bool {
        !self.scripted.script().events.is_empty()
    }

    fn poll(&self) {}

    fn wake(&self) {
        self.scripted.script().woken = true;
        self.scripted.happened.notify_all();
    }

    fn needed(&self) -> usize {
        0
    }

    fn stop(&self) -> Result<(), CoreError> {
        let mut script = self.scripted.script();
        script.stops += 1;
        if script.refuse_stops == 0 {
            return Ok(());
        }
        script.refuse_stops -= 1;
        Err(CoreError::TmBusy { address: self.address, needed: 1 })
    }
}

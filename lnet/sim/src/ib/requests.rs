//! Listeners, and requests to connect that have not been accepted or rejected yet.

use std::net::SocketAddrV4;

use lnet_o2iblnd::fabric::{ChannelToken, ConnRequest, Listener, PrivateData, Rejected};

use super::channel::ChannelEvent;
use super::host::SimFabric;
use super::net::IbNet;
use super::state::{Answer, Event, State};

/// Length of the private data of a request as a connection manager delivers it: the sent bytes,
/// padded with zeros.
const ASKED_BYTES: usize = 56;
const ANSWERED_BYTES: usize = 196;
const REJECTED_BYTES: usize = 148;

/// Status of a rejection by the consumer, without private data.
pub(super) const WITHOUT_REASON: i32 = 28;

/// The network's state of a listener.
pub(super) struct Listening {
    pub(super) host: usize,
    pub(super) at: SocketAddrV4,
    pub(super) channel: u64,
    pub(super) token: ChannelToken,
    pub(super) backlog: usize,
}

/// The network's state of a request that has arrived.
pub(super) struct PendingRequest {
    pub(super) host: usize,
    pub(super) end: u64,
    pub(super) source: SocketAddrV4,
    pub(super) target: SocketAddrV4,
    listener: u64,
    private_data: PrivateData,
}

/// A driver's handle of a listener.
pub(super) struct SimListener {
    pub(super) net: IbNet,
    pub(super) id: u64,
}

/// A driver's handle of a request.
pub(super) struct SimRequest {
    fabric: SimFabric,
    id: u64,
    source: SocketAddrV4,
    target: SocketAddrV4,
    private_data: PrivateData,
}

impl Listener for SimListener {}

impl Drop for SimListener {
    /// Drops the listener. Requests that the channel has not delivered are rejected without a
    /// record, as by Linux's connection manager.
    fn drop(&mut self) {
        let mut guard = self.net.lock();
        let state = &mut *guard;
        let Some(Listening { channel, .. }) = state.own.listeners.remove(&self.id) else { return };
        let Some(channel_state) = state.own.channels.get_mut(&channel) else { return };
        let mut pending = Vec::new();
        channel_state.events.retain(|event| match event {
            ChannelEvent::Request { request, .. }
                if state.own.requests.get(request).is_some_and(|pending| pending.listener == self.id) =>
            {
                pending.push(*request);
                false
            }
            _ => true,
        });
        for request in pending {
            state.reject_request(request, Rejected::Other(WITHOUT_REASON));
        }
    }
}

impl SimRequest {
    pub(super) fn new(fabric: SimFabric, id: u64) -> SimRequest {
        let nowhere = SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0);
        let pending = fabric
            .net
            .lock()
            .own
            .requests
            .get(&id)
            .map(|pending| (pending.source, pending.target, pending.private_data.clone()));
        // The active side may have disappeared since the request arrived.
        let (source, target, private_data) = pending.unwrap_or((nowhere, nowhere, PrivateData::new()));
        SimRequest { fabric, id, source, target, private_data }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl ConnRequest for SimRequest {
    fn source(&self) -> SocketAddrV4 {
        self.source
    }

    fn target(&self) -> SocketAddrV4 {
        self.target
    }

    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn reject(self: Box<Self>, record: &[u8]) {
        let rejected = Rejected::Record(padded(record, REJECTED_BYTES));
        self.fabric.net.lock().reject_request(self.id, rejected);
    }
}

impl Drop for SimRequest {
    fn drop(&mut self) {
        self.fabric.net.lock().reject_request(self.id, Rejected::Other(WITHOUT_REASON));
    }
}

fn padded(bytes: &[u8], length: usize) -> PrivateData {
    let mut data = PrivateData::from_slice(bytes);
    data.resize(length.max(bytes.len()), 0);
    data
}

impl State {
    /// Delivers a request to connect at a host.
    pub(super) fn ask(&mut self, active: u64) {
        let Some(end) = self.own.ends.get(&active) else { return };
        let (source, target, here) = (end.local, end.remote, end.host);
        let private_data = padded(&end.private_data, ASKED_BYTES);
        let Some(there) = self.host_of((*target.ip()).into()) else { return };
        if !self.reaches((here, there)) {
            return self.again((here, there), Event::Ask { end: active });
        }
        let found = self.own.listeners.iter().find(|(_, listening)| listening.at == target);
        let Some((&listener, listening)) = found else {
            self.seen.no_listener += 1;
            let answer = Answer::Rejected(Rejected::NoListener);
            return self.launch((there, here), Event::Answer { end: active, answer });
        };
        let waiting = self.own.requests.values().filter(|pending| pending.listener == listener).count();
        if waiting > listening.backlog {
            return self.again((here, there), Event::Ask { end: active });
        }
        let (channel, token) = (listening.channel, listening.token);
        let request = self.id();
        let pending = PendingRequest { host: there, end: active, source, target, listener, private_data };
        self.own.requests.insert(request, pending);
        self.push_event(channel, ChannelEvent::Request { listener: token, request });
    }

    fn reject_request(&mut self, request: u64, rejected: Rejected) {
        let Some(pending) = self.own.requests.remove(&request) else { return };
        self.reject((pending.host, pending.end), rejected);
    }

    /// Rejects the request of this end.
    pub(super) fn reject(&mut self, (there, active): (usize, u64), rejected: Rejected) {
        self.seen.rejected += u64::from(matches!(rejected, Rejected::Record(_)));
        let Some(end) = self.own.ends.get(&active) else { return };
        let here = end.host;
        self.launch((there, here), Event::Answer { end: active, answer: Answer::Rejected(rejected) });
    }

    pub(super) fn reject_with(&mut self, to: (usize, u64), record: &[u8]) {
        self.reject(to, Rejected::Record(padded(record, REJECTED_BYTES)));
    }

    /// Accepts the connection request of a passive end.
    pub(super) fn accept(&mut self, passive: u64, private_data: &[u8]) {
        let Some(end) = self.own.ends.get(&passive) else { return };
        let (there, active) = (end.host, end.peer);
        let Some((active, here)) = active.and_then(|id| Some((id, self.own.ends.get(&id)?.host))) else {
            return;
        };
        let private_data = padded(private_data, ANSWERED_BYTES);
        let answer = Answer::Accepted { passive, private_data };
        self.launch((there, here), Event::Answer { end: active, answer });
    }

    /// Repeats a lost message of the connection manager.
    pub(super) fn again(&mut self, hosts: (usize, usize), event: Event) {
        const AGAIN_NS: u64 = 500_000_000;
        let at_ns = self.now_ns + AGAIN_NS + self.delay_ns(hosts);
        self.schedule(at_ns, event);
    }
}

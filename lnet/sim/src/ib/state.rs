//! The state that only a simulated RDMA network has.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Weak;

use lnet_api::Errno;
use lnet_o2iblnd::fabric::{DeviceChange, PrivateData, Rejected};

use super::behaviour::{IbBehaviour, IbDevice};
use super::channel::{ChannelEvent, ChannelState};
use super::device::SimDevice;
use super::end::{End, Phase};
use super::memory::Registered;
use super::requests::{Listening, PendingRequest};
use super::seen::IbSeen;
use crate::kit::{self, Host, Wire};

/// A future event.
pub enum Event {
    /// The resolution of a route ends.
    Resolve { end: u64 },
    /// A request to connect arrives.
    Ask { end: u64 },
    /// The answer to a request arrives.
    Answer { end: u64, answer: Answer },
    /// The active side has established the connection; the passive side is notified.
    Establish { end: u64 },
    /// An attempt to connect got no answer in time.
    GiveUp { end: u64 },
    /// The next work request arrives.
    Pump { end: u64 },
    /// A work request completes.
    Complete { end: u64, sequence: u64, status: Status },
    /// A channel reports completions.
    Interrupt { end: u64 },
    /// A disconnect of the other side arrives.
    HangUp { end: u64 },
}

pub(super) type Status = Result<(), lnet_o2iblnd::fabric::WorkError>;

/// The result of a request to connect.
#[derive(Debug, Clone)]
pub enum Answer {
    Accepted { passive: u64, private_data: PrivateData },
    Rejected(Rejected),
}

/// The state of a host on an RDMA network: one device with one port.
pub struct HostDevice {
    pub(super) limits: IbDevice,
    /// The device's id, a new one each time a device is plugged in; `None` while none is.
    pub(super) device: Option<u64>,
    pub(super) opened: Option<Weak<SimDevice>>,
    pub(super) port_up: bool,
}

/// Connections, listeners, channels and registered memory.
#[derive(Default)]
pub struct IbWire {
    pub(super) ends: BTreeMap<u64, End>,
    pub(super) listeners: BTreeMap<u64, Listening>,
    pub(super) requests: BTreeMap<u64, PendingRequest>,
    pub(super) channels: BTreeMap<u64, ChannelState>,
    pub(super) memory: BTreeMap<u32, Registered>,
    /// The first violation of the rules by a driver.
    pub(super) wrong: Option<String>,
}

pub(super) type State = kit::State<IbWire>;

impl Wire for IbWire {
    type Event = Event;
    type OfHost = HostDevice;
    type Behaviour = IbBehaviour;
    type Seen = IbSeen;

    fn of_host(state: &mut State) -> HostDevice {
        let limits = state.rng.pick(&state.behaviour.devices);
        HostDevice { limits, device: Some(state.id()), opened: None, port_up: true }
    }

    fn delays_ns(behaviour: &IbBehaviour) -> [(u64, u64); 2] {
        [behaviour.latency_ns, behaviour.jitter_ns]
    }

    fn happen(state: &mut State, event: Event) {
        match event {
            Event::Resolve { end } => state.resolve(end),
            Event::Ask { end } => state.ask(end),
            Event::Answer { end, answer } => state.answer(end, answer),
            Event::Establish { end } => state.established(end),
            Event::GiveUp { end } => state.fail(end, Errno::ETIMEDOUT),
            Event::Pump { end } => state.pump(end),
            Event::Complete { end, sequence, status } => state.complete(end, sequence, status),
            Event::Interrupt { end } => state.interrupt(end),
            Event::HangUp { end } => state.hang_up(end),
        }
    }

    fn stop(state: &mut State, host: usize, ends: Vec<u64>, tell: bool) {
        for id in ends {
            if tell {
                state.disconnect(id);
            }
            state.remove(id);
        }
        let own = &mut state.own;
        own.listeners.retain(|_, listening| listening.host != host);
        own.requests.retain(|_, pending| pending.host != host);
        own.channels.retain(|_, channel_state| channel_state.host != host);
        let old = state.hosts[host].own.device;
        own.memory.retain(|_, registered| Some(registered.device) != old);
        let device = Some(state.id());
        let card = &mut state.hosts[host].own;
        *card = HostDevice { limits: card.limits, device, opened: None, port_up: true };
    }

    /// Breaks a connection if it is established: the connection manager reports failed attempts to
    /// connect in other ways.
    fn reset(state: &mut State, end: u64) {
        if state.own.ends.get(&end).is_none_or(|end| end.phase != Phase::Standing) {
            return;
        }
        state.seen.breaks += 1;
        state.hang_up(end);
    }

    fn ends(&self) -> impl Iterator<Item = (u64, usize, IpAddr)> {
        self.ends.iter().map(|(id, end)| (*id, end.host, IpAddr::V4(*end.remote.ip())))
    }

    fn end_faults(state: &mut State) {
        state.behaviour = state.behaviour.without_faults();
    }

    fn is_ready(&self, channel: u64) -> bool {
        self.channels.get(&channel).is_some_and(ChannelState::is_ready)
    }

    fn wrong(&self) -> Option<String> {
        self.wrong.clone()
    }
}

impl State {
    /// Records a driver's violation of the rules.
    pub(super) fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.own.wrong.get_or_insert_with(what);
    }

    /// Returns whether messages of one host reach the other now.
    pub(super) fn reaches(&mut self, hosts: (usize, usize)) -> bool {
        let works = |host: &Host<HostDevice>| host.up && host.own.port_up && host.own.device.is_some();
        works(&self.hosts[hosts.0]) && works(&self.hosts[hosts.1]) && self.direction(hosts).cut.is_none()
    }

    /// Sends a message of the connection manager.
    pub(super) fn launch(&mut self, hosts: (usize, usize), event: Event) {
        let at_ns = self.now_ns + self.delay_ns(hosts);
        self.schedule(at_ns, event);
    }

    /// Queues an event on a channel.
    pub(super) fn push_event(&mut self, channel: u64, event: ChannelEvent) {
        if let Some(channel_state) = self.own.channels.get_mut(&channel) {
            channel_state.push(event);
        }
    }

    /// Queues an event for a change of a host's device on all its channels.
    pub(super) fn push_device_event(&mut self, host: usize, change: DeviceChange) {
        for channel_state in self.own.channels.values_mut().filter(|channel_state| channel_state.host == host)
        {
            channel_state.push(ChannelEvent::Device(change));
        }
    }
}

/// A first-in, first-out queue.
pub(super) type Queue<T> = VecDeque<T>;

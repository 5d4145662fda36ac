//! The state that a thread keeps of each user with clients on it.

use std::collections::VecDeque;

use nlx_fallible::{NoMemory, TryArc};

use super::rate::SharedRate;
use super::schedule::UserKey;
use super::worker::{Worker, ns};
use super::{PARK_LEAST, Phase, UNPARK_BUDGET};
use crate::accounts::UserId;
use crate::service::client::{ClientState, RequestState};

/// A thread's state of a user.
#[derive(Default)]
pub(super) struct User {
    /// The request rate of all its connections; `None` without a limit.
    pub(super) requests: Option<TryArc<SharedRate>>,
    /// Names of connections whose requests wait until the user may make more, the first one first.
    parked: VecDeque<u64>,
}

impl Worker {
    /// Adds a client to its user, and returns the user's key. The connection counts as a request of
    /// the user, if it may make one. Room for the client's later entries is reserved.
    pub(super) fn enter_user(&mut self, user: UserId) -> Result<UserKey, NoMemory> {
        let now_ns = self.now_ns();
        let Worker { schedule, shared, parked, resting, .. } = self;
        let make = || Ok(User { requests: shared.rates.of(user, now_ns)?, parked: VecDeque::new() });
        let key = schedule.enter(user, make)?;
        let connections = schedule.connections(key);
        // As in the schedule: parked connections that have gone may still have entries.
        let reserved = schedule.state(key).map(|user| user.parked.try_reserve(connections));
        let reserved = reserved
            .transpose()
            .map_err(|_| NoMemory)
            .and_then(|_| parked.reserve(key.number() + 1))
            .and_then(|()| resting.reserve(key.number() + 1));
        if reserved.is_err() {
            schedule.leave(key);
        } else if let Some(requests) = schedule.state(key).and_then(|user| user.requests.as_ref()) {
            // If the rate is exhausted, the client's first request waits instead.
            let _ = requests.take(now_ns);
        }
        reserved.map(|()| key)
    }

    /// Parks a client whose user has used up its request rate. The user's other clients are parked
    /// in their own turns.
    pub(super) fn park(&mut self, slot: usize, until_ns: u64) {
        let until_ns = until_ns.max(self.now_ns() + ns(PARK_LEAST));
        let name = self.clients.name(slot);
        let Some(client) = self.clients.get(slot) else { return };
        let ClientState::Served(served) = &mut client.state else { return };
        served.request_state = RequestState::Parked;
        self.shared.counters.throttled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let key = client.user;
        let Some(user) = self.schedule.state(key) else { return };
        if user.parked.is_empty() {
            self.parked.set(key.number(), Some(until_ns));
        }
        user.parked.push_back(name);
    }

    /// Resumes reading for the parked clients of one user that may make requests again, at most
    /// [`UNPARK_BUDGET`] of them; the others wait for [`PARK_LEAST`] more.
    pub(super) fn unpark_due(&mut self, now_ns: u64) {
        let Some(number) = self.parked.take_due(now_ns) else { return };
        let key = UserKey::of(number);
        for _ in 0..UNPARK_BUDGET {
            let Some(name) = self.schedule.state(key).and_then(|user| user.parked.pop_front()) else {
                return;
            };
            let Some(slot) = self.clients.named(name) else { continue };
            if let Some(served) = self.clients.served(slot)
                && matches!(served.request_state, RequestState::Parked)
            {
                served.request_state = RequestState::Reading;
                if self.phase == Phase::Serving {
                    self.queue(slot);
                }
            }
        }
        if self.schedule.state(key).is_some_and(|user| !user.parked.is_empty()) {
            self.parked.set(number, Some(now_ns + ns(PARK_LEAST)));
        }
    }
}

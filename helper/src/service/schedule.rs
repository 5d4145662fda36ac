//! The order of turns: shares by user first, then by connection.
//!
//! Work is counted in *units*. In each round every user with work gets [`ROUND_UNITS`] of them,
//! whatever the number of its connections, and a user's connections take turns within that. A
//! connection that is served costs at least [`VISIT_UNITS`], so that a user with many connections
//! and nothing to do on them costs no more than its share. A user that has taken more than its
//! share, because a step of work is never interrupted, pays in the next rounds; units that a user
//! has not taken are not saved up. A user without work costs nothing.
//!
//! | work | units |
//! | --- | --- |
//! | an entry of a submission ring | 1, and 1 for each [`BULK_BYTES_PER_UNIT`](crate::BULK_BYTES_PER_UNIT) bytes that it moves; all of a turn once it lasts a [`SLICE`](super::super::SLICE) |
//! | a request | [`REQUEST_UNITS`], and 1 for each [`REQUEST_BYTES_PER_UNIT`] bytes |
//! | a request that maps memory | [`MAPPING_UNITS`] |
//! | a connection that is accepted | [`REQUEST_UNITS`] |
//! | a step of closing a session | as [`Session::close_some`](crate::Session::close_some) counts |

use std::collections::VecDeque;

use hashbrown::HashMap;
use nlx_driver_proto::{Header, Kind, PACKET_MAX};
use nlx_fallible::NoMemory;

use crate::BULK_UNITS_MAX;
use crate::accounts::UserId;

/// Units of work of a user in a round: the entries of one ring that are carried out before another
/// user has its turn. More units mean fewer polls of the network and of other users, and longer
/// waits for these.
pub const ROUND_UNITS: usize = 64;

/// Cost of visiting a connection that has nothing to do.
pub const VISIT_UNITS: usize = 1;

/// Cost of a request, which takes a system call for itself and one for its answer.
pub const REQUEST_UNITS: usize = 8;

/// Bytes of a request that take as long as an entry, so that the cost of a buffer of many segments
/// falls on its user.
pub const REQUEST_BYTES_PER_UNIT: usize = 512;

/// Cost of a hello, a new arena or a new transfer machine: files in memory are created, sealed and
/// mapped.
pub const MAPPING_UNITS: usize = 32;

/// Maximum units of one turn of a user: its share, and the part of the last step of work beyond it.
pub const TURN_UNITS_MAX: usize = ROUND_UNITS + MAPPING_UNITS;

const _: () = assert!(BULK_UNITS_MAX <= MAPPING_UNITS);
const _: () = assert!(REQUEST_UNITS + PACKET_MAX / REQUEST_BYTES_PER_UNIT <= MAPPING_UNITS);

/// Maximum debt of a user. A turn takes no more than this beyond its share. New connections may
/// cost more, a whole batch at once, but a crowd of them must not exclude its user for longer than
/// this number of rounds.
const DEBT_MAX: isize = 4 * ROUND_UNITS as isize;

/// Returns the cost of a request.
pub(super) fn request_units(packet: &[u8]) -> usize {
    const MAPPING: [Kind; 4] = [Kind::Hello, Kind::CreateArena, Kind::StartTm, Kind::TmDescriptor];
    let kind = Header::peek(packet).map_or(0, |header| header.kind.get());
    if MAPPING.iter().any(|&mapping| mapping as u16 == kind) {
        MAPPING_UNITS
    } else {
        REQUEST_UNITS + packet.len() / REQUEST_BYTES_PER_UNIT
    }
}

/// Key of a user with connections on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UserKey(u32);

impl UserKey {
    pub(super) fn of(number: usize) -> UserKey {
        UserKey(number as u32)
    }

    pub(super) fn number(self) -> usize {
        self.0 as usize
    }
}

/// The users of one thread that have connections, and the order in which those with work are
/// served.
///
/// `S` is the state that the caller keeps of each user while it has connections.
pub(super) struct Schedule<S> {
    keys: HashMap<UserId, UserKey, foldhash::fast::RandomState>,
    users: Vec<UserQueue<S>>,
    free: Vec<UserKey>,
    /// Users with work, the next one first.
    ready: VecDeque<UserKey>,
    /// Users that have not had their turn in this round.
    left: usize,
    current: Option<CurrentTurn>,
    /// Maximum units of one turn so far.
    longest: usize,
}

struct UserQueue<S> {
    user: UserId,
    connections: usize,
    state: Option<S>,
    /// Connections with work, the next one first.
    ready: VecDeque<u64>,
    /// Units that it may still take in this round; a negative value is its debt.
    credit: isize,
    is_ready: bool,
    /// Set while the user gets no turns, also with work.
    suspended: bool,
}

/// The user whose turn it is.
struct CurrentTurn {
    user: UserKey,
    /// Connections that it had when its turn began and that have not been served since.
    connections: usize,
    /// Units that it has taken.
    units: usize,
}

/// A connection to be served, with a budget of units of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClientTurn {
    pub(super) user: UserKey,
    /// The thread's name of the connection.
    pub(super) connection: u64,
    pub(super) budget: usize,
}

impl<S> Default for Schedule<S> {
    fn default() -> Schedule<S> {
        Schedule {
            keys: HashMap::default(),
            users: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            left: 0,
            current: None,
            longest: 0,
        }
    }
}

impl<S> Schedule<S> {
    /// Adds a connection of this user, and reserves room for [`Schedule::wake`]. `make` creates the
    /// state of a user without other connections.
    ///
    /// # Errors
    /// [`NoMemory`], also of `make`: the connection is not added then.
    pub(super) fn enter(
        &mut self,
        user: UserId,
        make: impl FnOnce() -> Result<S, NoMemory>,
    ) -> Result<UserKey, NoMemory> {
        let key = match self.keys.get(&user) {
            Some(&key) => key,
            None => self.add(user, make()?)?,
        };
        let queue = self.queue(key);
        // The queue may still have entries of connections that have gone, so room for an entry of
        // each current connection is reserved beyond the present entries.
        let reserved = queue.ready.try_reserve(queue.connections + 1);
        if reserved.is_ok() {
            queue.connections += 1;
        } else {
            self.forget_if_gone(key);
        }
        reserved.map(|()| key).map_err(|_| NoMemory)
    }

    /// Adds a user without connections.
    fn add(&mut self, user: UserId, state: S) -> Result<UserKey, NoMemory> {
        self.keys.try_reserve(1).map_err(|_| NoMemory)?;
        self.users.try_reserve(1).map_err(|_| NoMemory)?;
        let most = self.users.len() + 1;
        self.free.try_reserve(most - self.free.len()).map_err(|_| NoMemory)?;
        self.ready.try_reserve(most - self.ready.len()).map_err(|_| NoMemory)?;
        let queue = UserQueue {
            user,
            connections: 0,
            state: Some(state),
            ready: VecDeque::new(),
            credit: 0,
            is_ready: false,
            suspended: false,
        };
        let key = self.free.pop().unwrap_or(UserKey(self.users.len() as u32));
        match self.users.get_mut(key.0 as usize) {
            Some(slot) => *slot = queue,
            None => self.users.push(queue),
        }
        self.keys.insert(user, key);
        Ok(key)
    }

    /// Returns the number of a user's connections.
    pub(super) fn connections(&mut self, key: UserKey) -> usize {
        self.queue(key).connections
    }

    /// Removes a connection. If it has work, it still gets its next turn, in which there is nothing
    /// to do.
    pub(super) fn leave(&mut self, key: UserKey) {
        let queue = self.queue(key);
        queue.connections -= 1;
        self.forget_if_gone(key);
    }

    /// Keeps a user while work is done for it outside of its turn, as a further connection would,
    /// until the matching [`leave`](Schedule::leave).
    pub(super) fn stay(&mut self, key: UserKey) {
        self.queue(key).connections += 1;
    }

    /// Returns the state of a user.
    pub(super) fn state(&mut self, key: UserKey) -> Option<&mut S> {
        self.queue(key).state.as_mut()
    }

    /// Queues a connection that has work. It must not be queued already, nor being served.
    pub(super) fn wake(&mut self, key: UserKey, connection: u64) {
        let queue = self.queue(key);
        queue.ready.push_back(connection);
        if !queue.is_ready {
            queue.is_ready = true;
            if !queue.suspended {
                self.ready.push_back(key);
            }
        }
    }

    /// Suspends a user's turns until it is [resumed](Schedule::resume). A suspended user is not
    /// forgotten, so that it cannot end the suspension by leaving and coming again. Does nothing if
    /// the user is forgotten already.
    pub(super) fn suspend(&mut self, key: UserKey) {
        let queue = self.queue(key);
        queue.suspended = queue.state.is_some();
    }

    /// Resumes the turns of a suspended user.
    pub(super) fn resume(&mut self, key: UserKey) {
        let queue = self.queue(key);
        if !std::mem::take(&mut queue.suspended) {
            return;
        }
        // A user that was suspended and resumed while it waited for its turn is still queued.
        if queue.is_ready && !self.ready.contains(&key) {
            self.ready.push_back(key);
        }
        self.forget_if_gone(key);
    }

    /// Returns whether a user is suspended.
    pub(super) fn is_suspended(&mut self, key: UserKey) -> bool {
        self.queue(key).suspended
    }

    /// Returns the user of a key.
    pub(super) fn user(&mut self, key: UserKey) -> UserId {
        self.queue(key).user
    }

    /// Charges a user for units of work outside of its turn.
    pub(super) fn charge(&mut self, key: UserKey, units: usize) {
        let queue = self.queue(key);
        queue.credit = (queue.credit - units as isize).max(-DEBT_MAX);
    }

    /// Returns the maximum units of one turn so far.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns whether no user has work.
    pub(super) fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.current.is_none()
    }

    /// Starts a round, in which [`Schedule::next`] gives every user with work one turn.
    pub(super) fn begin_round(&mut self) {
        self.left = self.ready.len();
    }

    /// Returns the next connection to be served in this round. The caller must report the work by
    /// [`Schedule::served`] before any other call.
    pub(super) fn next(&mut self) -> Option<ClientTurn> {
        loop {
            let Some(CurrentTurn { user, connections, .. }) = &mut self.current else {
                if !self.begin_turn() {
                    return None;
                }
                continue;
            };
            let queue = &mut self.users[user.0 as usize];
            if queue.credit > 0
                && !queue.suspended
                && *connections > 0
                && let Some(connection) = queue.ready.pop_front()
            {
                *connections -= 1;
                return Some(ClientTurn { user: *user, connection, budget: queue.credit as usize });
            }
            let user = *user;
            self.current = None;
            self.end_turn(user);
        }
    }

    /// Reports that a connection has been served, the units that this took, and by `again` whether
    /// it has more work.
    pub(super) fn served(&mut self, turn: ClientTurn, units: usize, again: bool) {
        let units = units.max(VISIT_UNITS);
        self.charge(turn.user, units);
        if let Some(current) = &mut self.current {
            current.units += units;
            self.longest = self.longest.max(current.units);
        }
        if again {
            self.queue(turn.user).ready.push_back(turn.connection);
        }
    }

    /// Starts the turn of the next user; returns false once all have had theirs.
    fn begin_turn(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let Some(user) = self.ready.pop_front() else { return false };
        let queue = self.queue(user);
        // Unused units are not saved up.
        queue.credit = (queue.credit + ROUND_UNITS as isize).min(ROUND_UNITS as isize);
        let connections = queue.ready.len();
        self.current = Some(CurrentTurn { user, connections, units: 0 });
        true
    }

    fn end_turn(&mut self, user: UserKey) {
        let queue = self.queue(user);
        if !queue.ready.is_empty() {
            if !queue.suspended {
                self.ready.push_back(user);
            }
            return;
        }
        queue.is_ready = false;
        queue.credit = queue.credit.min(0);
        self.forget_if_gone(user);
    }

    /// Forgets a user without connections and work, unless it is suspended.
    fn forget_if_gone(&mut self, key: UserKey) {
        let queue = self.queue(key);
        if queue.connections == 0 && !queue.is_ready && !queue.suspended {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: UserKey) {
        let queue = self.queue(key);
        queue.state = None;
        let user = queue.user;
        self.keys.remove(&user);
        self.free.push(key);
    }

    /// Returns a user's queue. A key is valid while its user has connections or work, or is
    /// suspended.
    fn queue(&mut self, key: UserKey) -> &mut UserQueue<S> {
        &mut self.users[key.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Serves connections that always have work, for `rounds` rounds. Each takes its budget in
    /// steps of a fixed size, the last of which may exceed it. Returns the units of each user.
    fn serve(connections: &[(u32, Vec<usize>)], rounds: usize) -> BTreeMap<u32, usize> {
        let mut schedule = Schedule::<()>::default();
        let (mut steps, mut taken) = (Vec::new(), BTreeMap::new());
        for (user, sizes) in connections {
            for &size in sizes {
                let key = schedule.enter(UserId(*user), || Ok(())).unwrap();
                schedule.wake(key, steps.len() as u64);
                steps.push((*user, size));
            }
        }
        for _ in 0..rounds {
            schedule.begin_round();
            while let Some(turn) = schedule.next() {
                let (user, size) = steps[turn.connection as usize];
                let units = turn.budget.div_ceil(size) * size;
                *taken.entry(user).or_insert(0) += units;
                schedule.served(turn, units, true);
            }
        }
        assert!(schedule.longest() <= ROUND_UNITS + MAPPING_UNITS);
        taken
    }

    proptest! {
        /// Users with endless work have equal shares, whatever the number of their connections and
        /// the size of their steps: those of the rounds, except for one step beyond.
        #[test]
        fn shares_are_by_user(
            users in prop::collection::vec(prop::collection::vec(1..=MAPPING_UNITS, 1..40), 1..8),
            rounds in 1_usize..60,
        ) {
            let users: Vec<_> = (0..).zip(users).collect();
            let taken = serve(&users, rounds);
            prop_assert_eq!(taken.len(), users.len());
            for (user, units) in taken {
                let share = rounds * ROUND_UNITS;
                prop_assert!((share..=share + MAPPING_UNITS).contains(&units), "user {user}: {units} of {share}");
            }
        }

        /// Compared with a plain model: any sequence of connections that come, go, have work and
        /// are served. No connection with work waits longer than its user's other connections take,
        /// no user longer than a round, and those without work get no turn.
        #[test]
        fn no_waiter_starves(steps in prop::collection::vec((0_u32..4, 0_u8..8, 0_usize..100), 1..300)) {
            let mut schedule = Schedule::<u32>::default();
            // User, key, whether it has work, and the rounds in which it had work and was not
            // served.
            let mut model: BTreeMap<u64, (u32, UserKey, bool, usize)> = BTreeMap::new();
            let mut last = 0;
            for (user, step, number) in steps {
                let chosen = model.keys().nth(number % model.len().max(1)).copied();
                match (step, chosen) {
                    (0..=2, _) => {
                        let key = schedule.enter(UserId(user), || Ok(user)).unwrap();
                        prop_assert_eq!(schedule.state(key).cloned(), Some(user));
                        last += 1;
                        model.insert(last, (user, key, false, 0));
                    }
                    (3, Some(name)) => {
                        let (_, key, ..) = model.remove(&name).unwrap();
                        schedule.leave(key);
                    }
                    (4 | 5, Some(name)) => {
                        let (_, key, works, _) = model.get_mut(&name).unwrap();
                        if !std::mem::replace(works, true) {
                            schedule.wake(*key, name);
                        }
                    }
                    _ => {
                        let mut units = BTreeMap::new();
                        schedule.begin_round();
                        while let Some(turn) = schedule.next() {
                            let took = if number % 3 == 0 { 0 } else { number % turn.budget + 1 };
                            let Some((user, key, works, waited)) = model.get_mut(&turn.connection) else {
                                // It has gone meanwhile.
                                schedule.served(turn, 0, false);
                                continue;
                            };
                            prop_assert!(*works && *key == turn.user && turn.budget <= ROUND_UNITS);
                            *units.entry(*user).or_insert(0) += took.max(VISIT_UNITS);
                            (*works, *waited) = (number % 2 == 0, 0);
                            schedule.served(turn, took, *works);
                        }
                        prop_assert!(units.values().all(|&units| units <= ROUND_UNITS));
                        for (user, _, works, waited) in model.values_mut().filter(|(_, _, works, _)| *works) {
                            prop_assert!(units.contains_key(user) && *works, "user {user} had no turn");
                            *waited += 1;
                            prop_assert!(*waited <= last as usize + 1);
                        }
                    }
                }
                let works = model.values().any(|(_, _, works, _)| *works);
                prop_assert!(!works || !schedule.is_idle());
            }
        }

        /// A user that has taken more than its share waits until the others have had the same
        /// amount.
        #[test]
        fn what_was_taken_outside_of_a_turn_is_paid(debt in 0_usize..1000) {
            let mut schedule = Schedule::<()>::default();
            let keys = [7, 8].map(|user| schedule.enter(UserId(user), || Ok(())).unwrap());
            keys.iter().zip([0, 1]).for_each(|(&key, name)| schedule.wake(key, name));
            schedule.charge(keys[0], debt);
            let mut taken = [0, 0];
            for _ in 0..20 {
                schedule.begin_round();
                while let Some(turn) = schedule.next() {
                    taken[turn.connection as usize] += turn.budget;
                    schedule.served(turn, turn.budget, true);
                }
            }
            prop_assert_eq!(taken[1] - taken[0], debt.min(DEBT_MAX as usize));
        }
    }

    /// A user with two thousand connections and one with one have equal shares while both have
    /// work.
    #[test]
    fn two_thousand_connections_have_the_share_of_one() {
        let taken = serve(&[(7, vec![8; 2000]), (8, vec![8])], 100);
        assert_eq!(taken, BTreeMap::from([(7, 100 * ROUND_UNITS), (8, 100 * ROUND_UNITS)]));
    }

    /// A suspended user has no turn, whatever work comes, and delays no other user; after it is
    /// resumed it has all of its work.
    #[test]
    fn a_suspended_user_has_no_turns() {
        let mut schedule = Schedule::<()>::default();
        let [slow, other] = [7, 8].map(|user| schedule.enter(UserId(user), || Ok(())).unwrap());
        schedule.wake(slow, 1);
        schedule.wake(other, 2);
        schedule.begin_round();
        let turn = schedule.next().unwrap();
        assert_eq!(turn.user, slow);
        schedule.suspend(slow);
        schedule.served(turn, 1, true);
        schedule.wake(slow, 3);
        let served = |schedule: &mut Schedule<()>, again| {
            schedule.begin_round();
            std::iter::from_fn(|| {
                let turn = schedule.next()?;
                schedule.served(turn, 1, again);
                Some(turn.connection)
            })
            .take(4)
            .collect::<Vec<_>>()
        };
        assert_eq!(served(&mut schedule, false), [2]);
        assert!(served(&mut schedule, false).is_empty() && schedule.is_idle());
        schedule.leave(slow);
        schedule.resume(slow);
        schedule.resume(slow);
        assert!(!schedule.is_idle());
        assert_eq!(served(&mut schedule, false), [1, 3]);
        assert!(schedule.is_idle());
        assert_eq!(schedule.keys.len(), 1, "it is forgotten");
    }

    /// Users are suspended and resumed outside of their turns, too, and each then has one turn in a
    /// round.
    #[test]
    fn a_user_is_suspended_while_it_waits_for_its_turn() {
        let mut schedule = Schedule::<()>::default();
        let [slow, other] = [7, 8].map(|user| schedule.enter(UserId(user), || Ok(())).unwrap());
        schedule.wake(slow, 1);
        schedule.wake(other, 2);
        schedule.suspend(slow);
        assert!(schedule.is_suspended(slow) && !schedule.is_suspended(other));
        schedule.resume(slow);
        schedule.suspend(slow);
        schedule.begin_round();
        let turn = schedule.next().unwrap();
        assert_eq!((turn.user, schedule.left), (other, 0));
        schedule.served(turn, 1, false);
        assert!(schedule.next().is_none() && schedule.is_idle());
        schedule.resume(slow);
        schedule.begin_round();
        let turn = schedule.next().unwrap();
        assert_eq!((turn.user, schedule.left), (slow, 0));
        schedule.served(turn, 1, false);
        assert!(schedule.next().is_none() && schedule.is_idle());
    }

    /// A suspended user that leaves, and comes again, is still suspended.
    #[test]
    fn a_suspended_user_is_not_forgotten() {
        for works in [false, true] {
            let mut schedule = Schedule::<()>::default();
            let slow = schedule.enter(UserId(7), || Ok(())).unwrap();
            if works {
                schedule.wake(slow, 1);
                schedule.begin_round();
                let turn = schedule.next().unwrap();
                schedule.suspend(slow);
                schedule.leave(slow);
                schedule.served(turn, 1, false);
                assert!(schedule.next().is_none());
            } else {
                schedule.suspend(slow);
                schedule.leave(slow);
            }
            assert_eq!(schedule.enter(UserId(7), || Ok(())), Ok(slow));
            schedule.wake(slow, 2);
            schedule.begin_round();
            assert!(schedule.next().is_none());
            schedule.leave(slow);
            schedule.resume(slow);
            schedule.begin_round();
            let turn = schedule.next().unwrap();
            schedule.served(turn, 0, false);
            assert!(schedule.next().is_none() && schedule.is_idle());
            assert!(schedule.keys.is_empty());
            // A forgotten user is not suspended.
            schedule.suspend(slow);
            assert!(!schedule.is_suspended(slow));
        }
    }

    /// A user that comes and goes is forgotten, also if it goes while it has work.
    #[test]
    fn users_without_connections_are_forgotten() {
        let mut schedule = Schedule::<()>::default();
        let idle = schedule.enter(UserId(7), || Ok(())).unwrap();
        schedule.leave(idle);
        let busy = schedule.enter(UserId(8), || Ok(())).unwrap();
        schedule.wake(busy, 1);
        schedule.leave(busy);
        assert!(!schedule.is_idle());
        schedule.begin_round();
        let turn = schedule.next().unwrap();
        schedule.served(turn, 0, false);
        assert!(schedule.next().is_none() && schedule.is_idle());
        assert!(schedule.keys.is_empty());
        assert_eq!((schedule.users.len(), schedule.free.len()), (1, 1));
    }
}

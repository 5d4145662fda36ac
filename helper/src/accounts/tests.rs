//! Tests of the accounts against a plain model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ALICE: UserId = UserId(1000);
const BOB: UserId = UserId(1001);

fn clients(capacity: u64, reserve: u64) -> Arc<Accounts> {
    let mut config = AccountsConfig::default().with_capacity(Resource::Clients, capacity);
    config.root_reserve = config.root_reserve.with(Resource::Clients, reserve);
    Accounts::new(config)
}

/// Charges a user one by one until a charge is refused.
fn take_all(accounts: &Arc<Accounts>, user: UserId) -> Charge {
    let mut charge = accounts.open(user, Resource::Clients);
    while charge.grow(1).is_ok() {}
    charge
}

#[test]
fn one_user_gets_half_and_root_gets_the_rest() {
    let accounts = clients(110, 10);
    let alone = take_all(&accounts, ALICE);
    assert_eq!(alone.count(), 50);
    let second = take_all(&accounts, BOB);
    assert_eq!(second.count(), 25);
    let root = take_all(&accounts, UserId::ROOT);
    assert_eq!(root.count(), 35);
    assert_eq!(accounts.charge(UserId(5), Resource::Clients, 1).unwrap_err().errno, Errno::EUSERS);
    drop((alone, second, root));
    assert!(accounts.held().is_zero() && accounts.users(10) == (Vec::new(), 0));
}

#[test]
fn users_that_grow_side_by_side_have_equal_shares() {
    let accounts = clients(1_000, 0);
    let mut charges: Vec<Charge> = (1..=4).map(|uid| accounts.open(UserId(uid), Resource::Clients)).collect();
    for _ in 0..1_000 {
        charges.iter_mut().for_each(|charge| _ = charge.grow(1));
    }
    assert!(charges.iter().all(|charge| charge.count() == 200), "{charges:?}");
}

#[test]
fn a_cap_counts_beside_the_share_and_not_for_root() {
    let config = AccountsConfig::default().with_per_user(Resource::Machines, 3);
    let accounts = Accounts::new(config);
    let held = accounts.charge(ALICE, Resource::Machines, 3).unwrap();
    let refusal = accounts.charge(ALICE, Resource::Machines, 1).unwrap_err();
    assert_eq!(refusal, Refusal::of(Errno::ENOMEM, Reason::Share, 4, 3));
    assert!(accounts.charge(ALICE, Resource::Buffers, 100).is_ok(), "another resource has no cap");
    assert!(accounts.charge(UserId::ROOT, Resource::Machines, 100).is_ok());
    drop(held);
    assert!(accounts.charge(ALICE, Resource::Machines, 3).is_ok());
}

#[test]
fn a_group_has_a_cap_of_each_user_and_one_of_all() {
    let group = GroupCaps {
        per_user: Amounts::ALL.with(Resource::Machines, 4),
        together: Amounts::ALL.with(Resource::Machines, 6),
    };
    let accounts = Accounts::new(AccountsConfig { groups: vec![group], ..AccountsConfig::default() });
    let payer = |user| Payer { user, group: Some(GroupId(0)) };
    let first = accounts.charge(payer(ALICE), Resource::Machines, 4).unwrap();
    assert_eq!(accounts.charge(payer(ALICE), Resource::Machines, 1).unwrap_err().limit, 4);
    let second = accounts.charge(payer(BOB), Resource::Machines, 2).unwrap();
    assert_eq!(accounts.charge(payer(BOB), Resource::Machines, 1).unwrap_err().limit, 2);
    assert!(accounts.charge(BOB, Resource::Machines, 10).is_ok(), "outside of the group");
    drop(first);
    assert!(accounts.charge(payer(BOB), Resource::Machines, 2).is_ok());
    drop(second);
}

#[test]
fn the_user_that_the_helper_runs_as_counts_as_root() {
    let config = AccountsConfig { operator: Some(ALICE), ..AccountsConfig::default() };
    let accounts = Accounts::new(config.with_capacity(Resource::Clients, 8));
    assert_eq!(take_all(&accounts, ALICE).count(), 8);
    assert_eq!(take_all(&accounts, BOB).count(), 3);
}

#[test]
fn chunks_are_charged_once_and_given_back_when_they_are_not_needed() {
    let accounts = clients(1_000, 0);
    let mut charge = accounts.open(ALICE, Resource::Clients);
    for needed in 1..=CHUNK + 1 {
        charge.cover(needed, CHUNK).unwrap();
        assert_eq!(charge.count(), needed.next_multiple_of(CHUNK));
    }
    charge.trim(CHUNK, CHUNK);
    assert_eq!(charge.count(), CHUNK);
    charge.trim(0, CHUNK);
    assert_eq!(accounts.held_by(ALICE), Amounts::NONE);
    // The share ends within a chunk: charges succeed up to its last unit and not beyond.
    charge.cover(499, CHUNK).unwrap();
    assert!(charge.cover(500, CHUNK).is_ok() && charge.cover(501, CHUNK).is_err());
    assert_eq!(charge.count(), 500);
}

#[test]
fn a_long_list_of_users_is_cut_to_those_with_the_most_clients() {
    let accounts = clients(1_000, 0);
    let charges: Vec<Charge> =
        (1..=5).map(|uid| accounts.charge(UserId(uid), Resource::Clients, uid.into()).unwrap()).collect();
    let (users, all) = accounts.users(2);
    assert_eq!((users.iter().map(|user| user.user.0).collect::<Vec<_>>(), all), (vec![4, 5], 5));
    drop(charges);
}

/// A reference implementation of the rule over plain numbers.
#[derive(Default)]
struct Model {
    held: BTreeMap<u32, u64>,
}

impl Model {
    fn ordinary(&self) -> u64 {
        self.held.iter().filter(|(uid, _)| **uid != 0).map(|(_, held)| held).sum()
    }

    fn root(&self) -> u64 {
        self.held.get(&0).copied().unwrap_or(0)
    }

    fn may_grow(&self, uid: u32, more: u64, capacity: u64, reserve: u64) -> bool {
        let total = self.ordinary() + self.root() + more;
        if uid == 0 {
            return total <= capacity;
        }
        let held = self.held.get(&uid).copied().unwrap_or(0);
        let others = i128::from(capacity) - i128::from(self.root().max(reserve));
        i128::from(held + more) <= others - i128::from(self.ordinary() + more)
    }
}

proptest! {
    /// Whatever is charged and released: the sum stays within the capacity, the reserve stays for
    /// root, a user that holds nothing can take half of what is free, and at the end nothing is
    /// held.
    #[test]
    fn the_accounts_agree_with_the_rule(
        capacity in 1..200_u64,
        part in 0..4_u64,
        steps in prop::collection::vec((0..5_u32, 0..60_u64, any::<bool>(), any::<usize>()), 1..200),
    ) {
        let reserve = capacity * part / 4;
        let accounts = clients(capacity, reserve);
        let (mut model, mut charges) = (Model::default(), Vec::new());
        for (uid, count, gives_back, which) in steps {
            if gives_back && !charges.is_empty() {
                let at = which % charges.len();
                let charge: &mut Charge = &mut charges[at];
                let less = count.min(charge.count());
                *model.held.get_mut(&charge.payer().user.0).unwrap() -= less;
                charge.shrink(count);
            } else {
                let allowed = count == 0 || model.may_grow(uid, count, capacity, reserve);
                let charged = accounts.charge(UserId(uid), Resource::Clients, count);
                prop_assert_eq!(charged.is_ok(), allowed, "{} more for {} of {:?}", count, uid, model.held);
                if let Ok(charge) = charged {
                    *model.held.entry(uid).or_default() += count;
                    charges.push(charge);
                }
            }
            for (uid, held) in &model.held {
                prop_assert_eq!(accounts.held_by(UserId(*uid)).of(Resource::Clients), *held);
            }
            prop_assert_eq!(accounts.held().of(Resource::Clients), model.ordinary() + model.root());
            prop_assert!(accounts.held().of(Resource::Clients) <= capacity);
            prop_assert!(model.ordinary() <= capacity - reserve);
            // A new user gets half of what is free.
            let free = (capacity - reserve.max(model.root())).saturating_sub(model.ordinary());
            let newcomer = take_all(&accounts, UserId(99));
            prop_assert_eq!(newcomer.count(), free / 2);
        }
        drop(charges);
        prop_assert!(accounts.held().is_zero() && accounts.users(9).1 == 0);
    }
}

//! What all clients of one user hold together, however many they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use nlx_core::Errno;
use nlx_driver_proto::{Reason, Refusal};
use parking_lot::Mutex;

/// Descriptors of the helper that each user's clients hold. There is one table of descriptors for all, and for the network:
/// who fills it shuts everybody out.
pub(super) struct Users {
    held: Mutex<BTreeMap<u32, u64>>,
    /// The most that one user may hold. Root may hold any number.
    most: u64,
}

/// Some descriptors of one user, until this is dropped.
pub(super) struct Held {
    users: Arc<Users>,
    uid: u32,
    count: u64,
}

impl Users {
    pub(super) fn new(most: Option<u64>) -> Arc<Users> {
        Arc::new(Users { held: Mutex::default(), most: most.unwrap_or(u64::MAX) })
    }

    /// Counts so many more for this user, if it may hold them.
    pub(super) fn hold(self: &Arc<Users>, uid: u32, count: u64) -> Result<Held, Refusal> {
        let mut held = self.held.lock();
        let wanted = held.get(&uid).copied().unwrap_or(0).saturating_add(count);
        if uid != 0 && wanted > self.most {
            return Err(Refusal::of(Errno::EMFILE, Reason::System, wanted, self.most));
        }
        held.insert(uid, wanted);
        Ok(Held { users: self.clone(), uid, count })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = self.users.held.lock();
        match held.get_mut(&self.uid) {
            Some(held) if *held > self.count => *held -= self.count,
            _ => drop(held.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_holds_so_much_at_the_most_and_root_any_number() {
        let users = Users::new(Some(3));
        let first = users.hold(7, 2).ok();
        let limit = users.hold(7, 2).err();
        assert_eq!(limit, Some(Refusal::of(Errno::EMFILE, Reason::System, 4, 3)));
        let others = [users.hold(7, 1), users.hold(8, 3), users.hold(0, 100)];
        assert!(first.is_some() && others.iter().all(Result::is_ok));
        drop(first);
        assert!(users.hold(7, 2).is_ok() && users.hold(7, 3).is_err());
        drop(others);
        assert!(users.held.lock().is_empty());
    }
}

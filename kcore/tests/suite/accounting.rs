//! Accounting of the room for events (MT-19, MT-23, MT-212; S-407).

use std::collections::HashMap;

use nlx_core::{Core, OperationKind};
use proptest::prelude::*;

use super::bed;
use crate::bed::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// After every initiation, refused ones included, and after every event taken, the needed count
    /// equals the reservations of the operations whose last event was not taken.
    // Covers: S-407, MT-19, MT-23, MT-212
    #[test]
    fn room_is_reserved_from_the_start_to_the_last_event(
        steps in prop::collection::vec((0u8..7, 1u32..6, any::<usize>()), 1..80),
    ) {
        let bed = bed();
        let mut posted: Vec<(nlx_core::BufferHandle, Option<Passive>)> = Vec::new();
        let mut reserved: HashMap<u64, usize> = HashMap::new();
        let mut waiting = 0;
        for (action, number, choice) in steps {
            let from = peer_of(number);
            match action {
                0 | 1 => {
                    let buffer = bed.core.register(&bed.memory).unwrap();
                    let (kind, events) = match action {
                        0 => (OperationKind::Receive { min_receive_size: 1, max_messages: number }, number),
                        _ => (OperationKind::PassiveReceive, 1),
                    };
                    let descriptor = bed.submit_on(buffer, buffer.0, kind).unwrap().descriptor;
                    posted.push((buffer, descriptor.map(|descriptor| Passive(passive_of(&descriptor)))));
                    reserved.insert(buffer.0, events as usize);
                }
                2 => {
                    let refused = OperationKind::Receive { min_receive_size: 0, max_messages: number };
                    prop_assert!(bed.submit(refused).is_err());
                }
                3 => bed.world.arrive(&bed.message(&from, 1)).into_iter().for_each(|finish| finish(Ok(()))),
                4 if !posted.is_empty() => {
                    let passive = posted[choice % posted.len()].1.as_ref().map(|passive| passive.put(&from, 1));
                    let finish = passive.and_then(|message| bed.world.arrive(&message));
                    finish.into_iter().for_each(|finish| finish(Ok(())));
                }
                5 if !posted.is_empty() => {
                    let (buffer, _) = posted.swap_remove(choice % posted.len());
                    // ENOENT if it has ended.
                    let _ = bed.tm.cancel(buffer, buffer.0);
                }
                _ => {
                    let event = bed.tm.event_get().unwrap();
                    prop_assert_eq!(event.is_some(), waiting > 0);
                    if let Some(event) = event {
                        waiting -= 1;
                        if event.unlinked() {
                            let released = reserved.remove(&event.cookie);
                            prop_assert_eq!(released, Some(event.released as usize));
                        }
                    }
                }
            }
            // Each LNet event of a waiting operation is one for the client.
            waiting += bed.spy.take_events().len();
            prop_assert_eq!(bed.tm.needed(), reserved.values().sum::<usize>());
            prop_assert_eq!(bed.tm.pending(), waiting > 0);
        }
        bed.assert_no_faults();
    }
}

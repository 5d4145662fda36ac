//! A program that sleeps in its own event loop, beside waiters and scheduler threads: it is woken
//! for its message, whichever thread drives.

use super::super::event_loop_handle::arm_with;
use super::*;

/// Starts a thread with such a loop, for its message.
fn listener(net: &Arc<Net>, number: usize) -> Running {
    start(net, Part::Waiter, move |net| {
        let sleeper = &net.sleepers[number];
        let ready = || net.got[number].load(Ordering::Acquire);
        let drive: &dyn Drive = net;
        while !ready() {
            if let Some(armed) = arm_with(drive, sleeper, None, ready) {
                net.system.sleep(number, WakeOn { mask: armed.mask, ..WakeOn::default() });
                armed.end(drive, sleeper);
            }
        }
    })
}

/// Each thread may find the other's message. The waiter holds the shard while it sleeps, and leaves
/// with the other's message unread.
pub(super) fn a_listener_and_a_waiter() {
    let net = Net::new(1);
    let threads = [waiter(&net, 0), listener(&net, 1)];
    net.arrive(0, 0);
    net.arrive(0, 1);
    end(&net, threads, []);
}

pub(super) fn two_listeners() {
    let net = Net::new(1);
    let threads = [0, 1].map(|number| listener(&net, number));
    net.arrive(0, 1);
    net.arrive(0, 0);
    end(&net, threads, []);
}

#[test]
fn a_listener_hears_of_its_message_though_a_waiter_drives() {
    check(3, a_listener_and_a_waiter);
}

#[test]
fn two_listeners_and_no_waiter() {
    check(3, two_listeners);
}

/// A scheduler thread drives until a waiter calls it off or the model ends. A listener does not
/// call it off, and its message is delivered all the same.
#[test]
fn a_listener_and_a_sched_thread() {
    check(2, || {
        let net = Net::new(1);
        let (sched_thread, listener) = (sched_thread(&net, 0), listener(&net, 0));
        net.arrive(0, 0);
        end(&net, [listener], [sched_thread]);
    });
}

//! Named points at which a client kills itself.

use std::io::Write;

use nix::sys::signal::{Signal, raise};

/// The points, in the order in which a client first reaches them.
pub const POINTS: [&str; 27] = [
    "connected",
    "hello sent",
    "welcomed",
    "ring mapped",
    "arena asked for",
    "arena received",
    "arena mapped",
    "start asked for",
    "started",
    "events mapped",
    "grow strung",
    "grow linked",
    "grow published",
    "entry filled",
    "entry stamped",
    "doorbell claimed",
    "doorbell rung",
    "request sent",
    "request done",
    "sleep announced",
    "sleep over",
    "event seen",
    "event taken",
    "event given back",
    "everything in flight",
    "all cancelled",
    "stop asked for",
];

/// The point, if any, at which a client kills itself.
#[derive(Debug, Default)]
pub struct Points {
    trap: Option<(String, u32)>,
}

impl Points {
    /// Returns points without effect.
    pub fn harmless() -> Points {
        Points::default()
    }

    /// Makes this process print a message and kill itself at its `nth` visit to the point.
    pub fn trap(name: &str, nth: u32) -> Points {
        assert!(POINTS.contains(&name), "there is no point {name:?}");
        Points { trap: Some((name.to_string(), nth)) }
    }

    /// Called when the client reaches a point.
    pub fn pass(&mut self, name: &str) {
        debug_assert!(POINTS.contains(&name), "there is no point {name:?}");
        let Some((trap, left)) = &mut self.trap else { return };
        if trap == name {
            *left -= 1;
            if *left == 0 {
                println!("hit {name}");
                let _ = std::io::stdout().flush();
                let _ = raise(Signal::SIGKILL);
            }
        }
    }
}

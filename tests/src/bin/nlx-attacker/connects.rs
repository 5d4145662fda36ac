//! Connections that are closed at once, without end: `connects THREADS`. Answers each line of its
//! input with `did COUNT`, the number of connections so far.

use std::convert::Infallible;
use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nlx_tests::client::socket::Socket;

use crate::{Target, number, say};

/// Connections before the attack has its full strength: more than the default backlog of any
/// listener.
const HEIGHT: u64 = 5000;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [threads] = *args else { return Err("THREADS is missing".into()) };
    let count = Arc::new(AtomicU64::new(0));
    for _ in 0..number::<usize>(threads)? {
        let (path, count) = (target.socket.clone(), count.clone());
        std::thread::spawn(move || {
            loop {
                // A connection that fails, for instance while the helper restarts, is not counted.
                if Socket::connect(&path).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    while count.load(Ordering::Relaxed) < HEIGHT {
        std::thread::yield_now();
    }
    say(&format!("full {HEIGHT} connections, one after the other"));
    for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
        say(&format!("did {}", count.load(Ordering::Relaxed)));
    }
    loop {
        std::thread::park();
    }
}

//! Neither taking an event nor submitting a batch costs a system call while the helper is awake.
//! The system itself checks this: a client, in a separate process, gives up the right to make any,
//! and dies if it does.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use nix::libc;
use nix::sys::signal::Signal;
use nlx_core::{CoreTm, Operation};
use nlx_ucore::{HelperOptions, Ucore};

use crate::bed::*;

/// Environment variable with the helper's path for the other process.
const PATH: &str = "NLX_TEST_HELPER_PATH";

/// Messages of a batch, and number of batches.
const BATCH: usize = 8;
const BATCHES: usize = 200;

/// Batches before the client gives up system calls: by then all memory is allocated.
const WARM: usize = 8;

const LENGTH: u64 = 64;

#[test]
fn batches_and_their_events_cost_no_system_call_while_the_helper_is_awake() {
    let helper = Helper::awake();
    let ended = client(&helper, "calls::submit_and_take");
    assert!(ended.success(), "{ended}");
}

/// The check itself works: a waiter for an event that does not come sleeps, and that is a system
/// call.
#[test]
fn the_system_notices_a_call() {
    let helper = Helper::awake();
    let ended = client(&helper, "calls::sleep");
    assert_eq!(ended.signal(), Some(Signal::SIGSYS as i32), "{ended}");
}

/// Runs a client of this helper in another process, and returns its exit status.
fn client(helper: &Helper, part: &str) -> ExitStatus {
    struct Killed(Child);
    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let command = std::env::current_exe().unwrap();
    let mut command = Command::new(command);
    command.args(["--exact", part, "--ignored", "--nocapture"]).env(PATH, helper.path());
    let mut child = Killed(command.spawn().unwrap());
    let hung = Instant::now() + HUNG;
    loop {
        if let Some(ended) = child.0.try_wait().unwrap() {
            return ended;
        }
        assert!(Instant::now() < hung, "it hangs");
        std::thread::yield_now();
    }
}

// The rest of this file runs in the other process.

fn domain() -> std::sync::Arc<Ucore> {
    Ucore::connect(&HelperOptions::at(std::env::var_os(PATH).unwrap())).unwrap()
}

/// Gives up system calls: from now on any call except `exit_group` and reading the clock, which is
/// a call on few machines only, kills this thread and its process.
fn give_up_system_calls() {
    /// Offset of the call's number in a filter's data.
    const NUMBER_AT: u32 = 0;
    let step = |code: u32, k: u32, [jt, jf]: [u8; 2]| libc::sock_filter { code: code as u16, jt, jf, k };
    let is = |call: i64, jumps| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, jumps);
    let mut filter = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER_AT, [0, 0]),
        is(libc::SYS_exit_group, [1, 0]),
        is(libc::SYS_clock_gettime, [0, 1]),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, [0, 0]),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, [0, 0]),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes plain numbers; the second reads the filter, which lives until it
    // has returned, at its length.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            | libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(refused, 0);
}

/// Ends this process without touching anything.
fn exit() -> ! {
    // SAFETY: takes a plain number and does not return.
    unsafe { libc::syscall(libc::SYS_exit_group, 0) };
    unreachable!("the process has ended")
}

/// Sends a batch to the transfer machine itself, and takes the events until each message has left
/// and arrived.
fn exchange(tm: &dyn CoreTm, batch: &[Operation]) {
    tm.submit_all(None, batch, &mut |_, outcome| assert!(outcome.is_ok(), "{outcome:?}"));
    let (mut events, hung) = (0, Instant::now() + HUNG);
    while events < 2 * batch.len() {
        match tm.event_get().unwrap() {
            Some(event) => {
                assert_eq!((event.status(), event.length), (Ok(()), LENGTH));
                events += 1;
            }
            None => assert!(Instant::now() < hung, "{events} events"),
        }
    }
}

#[test]
#[ignore = "started by batches_and_their_events_cost_no_system_call_while_the_helper_is_awake"]
fn submit_and_take() {
    let domain = domain();
    let tm = start(&*domain);
    // One message more, so that the buffer stays posted to the end.
    let messages = BATCH * (WARM + BATCHES) + 1;
    let posted = buffer(&*domain, messages * LENGTH as usize);
    submit(&*tm, &posted.receive(messages as u32));
    let sent: Vec<_> = (0..BATCH).map(|_| buffer(&*domain, LENGTH as usize)).collect();
    let batch: Vec<_> = sent.iter().map(|buffer| buffer.send(LENGTH, tm.address())).collect();
    (0..WARM).for_each(|_| exchange(&*tm, &batch));
    give_up_system_calls();
    (0..BATCHES).for_each(|_| exchange(&*tm, &batch));
    exit()
}

#[test]
#[ignore = "started by the_system_notices_a_call"]
fn sleep() {
    let domain = domain();
    let tm = start(&*domain);
    give_up_system_calls();
    tm.event_wait(Some(deadline(HUNG)));
    exit()
}

//! Neither taking an event nor submitting a batch costs a system call while the helper is awake. The system itself is the
//! witness: a client, in a process of its own, gives up the right to make any, and dies if it does.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use nix::libc;
use nix::sys::signal::Signal;
use nlx_core::{CoreTm, Operation};
use nlx_ucore::{HelperOptions, Ucore};

use crate::bed::*;

/// Where the other process learns of the helper.
const PATH: &str = "NLX_TEST_HELPER_PATH";

/// Messages of a batch, and batches.
const BATCH: usize = 8;
const BATCHES: usize = 200;

/// Batches before the client gives up system calls: everything has its size then.
const WARM: usize = 8;

const LENGTH: u64 = 64;

#[test]
fn batches_and_their_events_cost_no_system_call_while_the_helper_is_awake() {
    let helper = Helper::awake();
    let ended = client(&helper, "calls::submit_and_take");
    assert!(ended.success(), "{ended}");
}

/// The witness is awake, too: who waits for an event that does not come sleeps, and that is a call.
#[test]
fn the_system_notices_a_call() {
    let helper = Helper::awake();
    let ended = client(&helper, "calls::sleep");
    assert_eq!(ended.signal(), Some(Signal::SIGSYS as i32), "{ended}");
}

/// What a client of this helper comes to, which is another process.
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

// From here on: what the other process does.

fn domain() -> std::sync::Arc<Ucore> {
    Ucore::connect(&HelperOptions::at(std::env::var_os(PATH).unwrap())).unwrap()
}

/// From now on this thread dies, and its process with it, by any system call but `exit_group`, and the clock, which is one on
/// few machines only.
fn give_up_system_calls() {
    /// Where a filter finds the number of the call: first of all.
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
    // SAFETY: the first call takes plain numbers; the second reads the filter, which lives until it has returned, at its
    // length.
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

/// Sends a batch to the transfer machine itself, and takes the events until each message has left and arrived.
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
    // One message more, so that it is there to the end.
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

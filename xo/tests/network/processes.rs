//! Two processes that claim the same NID. The other process is this test program, which runs the
//! ignored test at the end of this file.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use nlx::{Domain, Errno, NodeConfig, TmOptions};

const NID: &str = "127.61.2.1@tcp";
const PORT: u16 = 21_761;
const HELD: &str = "holds ";

fn config() -> NodeConfig {
    NodeConfig::new().net("tcp(127.61.2.1)").unwrap().accept_port(PORT)
}

fn wanted() -> String {
    format!("{NID}:12345:31:*")
}

/// The other process, which has a transfer machine. Killed when dropped.
struct Holder {
    child: Child,
    /// The address of its transfer machine.
    address: String,
}

impl Holder {
    fn start() -> Holder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::holder", "--ignored", "--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The test program first prints other text, perhaps on the same line.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let held = |line: String| line.split_once(HELD).map(|(_, address)| address.to_owned());
        let address = lines.filter_map(held).next().expect("it says what it holds");
        Holder { address, child }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Transfer machine ids of two programs cannot collide, because a NID belongs to one process; the
/// error of another process names the owner. When the owner has been killed, the next process gets
/// the NID, and all ids.
// Covers: S-404, MT-224
#[test]
fn a_nid_is_one_processes_until_that_dies() {
    let holder = Holder::start();
    assert_eq!(holder.address, format!("{NID}:12345:31:4095"));
    let error = Domain::in_process(&config()).unwrap_err();
    assert_eq!(error.errno(), Errno::EADDRINUSE);
    let (words, pid) = (error.to_string(), holder.child.id().to_string());
    assert!(words.contains(NID) && words.contains(&pid), "{words}");
    // Addresses that are not on that NID still work.
    let other = Domain::in_process(&NodeConfig::new()).unwrap();
    other.transfer_machine("0@lo:12345:31:*", TmOptions::default()).unwrap();

    let address = holder.address.clone();
    drop(holder);
    let domain = Domain::in_process(&config()).unwrap();
    let tm = domain.transfer_machine(&wanted(), TmOptions::default()).unwrap();
    assert_eq!(tm.address().to_string(), address);
}

#[test]
#[ignore = "the other process of the test above"]
fn holder() {
    let domain = Domain::in_process(&config()).unwrap();
    let tm = domain.transfer_machine(&wanted(), TmOptions::default()).unwrap();
    println!("{HELD}{}", tm.address());
    // Until it is killed, or the process that started it is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
}

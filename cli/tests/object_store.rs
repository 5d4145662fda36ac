//! The object store of `nlx`'s examples, through one helper: a server and its clients are programs
//! of `nlxd`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::helper::Helper;
use support::store::Store;
use support::{status, until};

/// A server and three clients share a helper; one client is killed during its bulk, and the others
/// do not notice. When all have ended, nothing is left of them.
// Covers: S-3, S-6
#[test]
fn clients_of_one_helper_work_while_one_of_them_is_killed() {
    let helper = Helper::start("tcp(127.71.2.1)", 21_712);
    let store = Store::start(&helper);
    assert_eq!(store.address, "127.71.2.1@tcp:12345:41:1");
    let dying = store.uploading(&helper);
    std::thread::scope(|scope| {
        for client in 0..2 {
            let (helper, store) = (&helper, &store);
            scope.spawn(move || {
                for length in [0, 5, 1 << 20, (17 << 20) + 3] {
                    store.put_and_get(helper, client, length);
                }
            });
        }
        // Dropping a client kills it by SIGKILL.
        scope.spawn(|| drop(dying));
    });
    let listed = store.succeeds(&helper, &["list"]);
    assert_eq!(listed.lines().count(), 8, "{listed}");
    let output = store.client(&helper, &["get", "nothing", &store.file("copy")]).output().unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("nothing: No such file or directory"), "{why}");

    drop(store);
    until("something is left over", || helper.is_idle(&status()));
}

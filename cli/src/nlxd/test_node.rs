//! The test node inside `nlxd`: its settings in the file, and its limits.
//!
//! It runs beside clients that are in production, so it takes less than `nlx lst node`: one handler at
//! a time in each CPU partition, less memory. Requests that find no buffer are dropped, because those
//! that wait can block their connection, which the clients share. It has no default for the consoles
//! that it obeys: lst has no authentication, and a host must not be loaded by a stranger.

use lnet_api::Errno;
use lnet_node::{NodeError, Section, Setting};
use nlx_helper::PortalSet;
use nlx_lst::net::TestNodeOptions;
use nlx_lst::node::Config;
use nlx_service::{BUFFERS_MAX, THREADS_MAX};

use super::policy::nids;
use crate::args::{BULK_MAX, MEMORY, TestNodeArgs};
use crate::failure::Failure;

/// Default of `--lst-threads-max`: data requests are short, and their threads compete with those that
/// serve clients.
const THREADS: u32 = 1;

/// Default of `--lst-buffers-max`: for 2,048 requests of each kind in each partition, twice the most
/// that one client has in flight to one server.
const BUFFERS: u32 = 32;

/// Default of `--lst-bulk-max`: 64 MiB in each partition.
const BULK: usize = 64;

/// Default of `--lst-memory-max`: 256 transfers of 1 MiB, less what a test needs otherwise.
const TEST_MEMORY: u64 = 256 << 20;

/// The keys of the table `[helper.lst]`.
const KEYS: [&str; 7] =
    ["consoles", "cpts", "threads_min", "threads_max", "buffers_max", "bulk_max", "memory_max"];

/// The portals of lst, which clients of the helper cannot have beside a test node.
pub(super) fn portals() -> PortalSet {
    use lnet_proto::lst::{DATA_PORTAL, FRAMEWORK_PORTAL, REPLY_PORTAL};
    let of = |portal: lnet_nid::Portal| PortalSet::range(portal.index() as u32, portal.index() as u32);
    of(DATA_PORTAL).and(of(FRAMEWORK_PORTAL)).and(of(REPLY_PORTAL))
}

/// Reads the table.
pub(super) fn read(table: &Section) -> Result<TestNodeArgs, NodeError> {
    let mut args = TestNodeArgs::default();
    for setting in table.settings() {
        let threads =
            |setting: &Setting<'_>| setting.number(1, THREADS_MAX.into()).map(|number| number as u32);
        match setting.key() {
            "consoles" => args.lst_consoles = Some(nids(&setting)?),
            "cpts" => {
                let cpts = setting.words()?.join(",");
                args.lst_cpts = Some(cpts.parse().map_err(|error| setting.refuse(format!("{error}")))?);
            }
            "threads_min" => args.lst_threads_min = Some(threads(&setting)?),
            "threads_max" => args.lst_threads_max = Some(threads(&setting)?),
            "buffers_max" => args.lst_buffers_max = Some(setting.number(2, BUFFERS_MAX.into())? as u32),
            "bulk_max" => args.lst_bulk_max = Some(setting.number(1, BULK_MAX)? as usize),
            "memory_max" => args.lst_memory_max = Some(setting.number(*MEMORY.start(), *MEMORY.end())?),
            _ => return Err(setting.unknown(&KEYS)),
        }
    }
    Ok(args)
}

/// Returns the options of the test node, from the command line and the file.
pub(super) fn options(args: &TestNodeArgs) -> Result<TestNodeOptions, Failure> {
    if args.lst_consoles.is_none() {
        let message = "--lst: no consoles are named that the test node obeys";
        return Err(Failure::at("configuration", Errno::EINVAL, message).hint(
            "name them with --lst-consoles, or 'consoles' in [helper.lst]: for instance '10.0.0.1@tcp', '*' for all",
        ));
    }
    let own = TestNodeOptions {
        config: Config { memory_max: TEST_MEMORY, ..Config::default() },
        threads_max: Some(THREADS),
        buffers_max: BUFFERS,
        bulk_max: BULK,
        requests_wait: false,
        ..TestNodeOptions::default()
    };
    Ok(args.over(own))
}

//! The options of a test node of LNet's self-test, of all programs that have one.

use lnet_node::CptSet;
use nlx_helper::Nids;
use nlx_lst::net::TestNodeOptions;
use nlx_service::{BUFFERS_MAX, THREADS_MAX};

use super::{bytes, whole};
use crate::failure::Failure;
use crate::nids;

/// Maximum of `--lst-bulk-max`: 64 GiB in each CPU partition.
pub(crate) const BULK_MAX: u64 = 1 << 16;

/// Limits of `--lst-memory-max`: below, no test fits; 1 TiB.
pub(crate) const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 40;

/// Whom a test node obeys, and how much it takes of its host. What is not given has the default of
/// its program.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Test node")]
pub(crate) struct TestNodeArgs {
    /// NIDs of the consoles that the test node obeys, in the form of Lustre's lists, for instance
    /// '10.0.0.[1-4]@tcp 10.1.0.*@o2ib'; '*' are all, the default of 'nlx'. Requests of others are
    /// refused and counted.
    #[arg(long, value_name = "NIDS", value_parser = nids::parse)]
    pub lst_consoles: Option<Nids>,
    /// CPU partitions on which the test node works, as '0,2-3'; all by default.
    #[arg(long, value_name = "CPTS")]
    pub lst_cpts: Option<CptSet>,
    /// Threads that each of these partitions keeps; 1 by default. Further ones start under load.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u64::from(THREADS_MAX)), allow_negative_numbers = true)]
    pub lst_threads_min: Option<u32>,
    /// Maximum number of requests that each of these partitions handles at a time, a thread for each;
    /// by default two for each core, of nlxd 1.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u64::from(THREADS_MAX)), allow_negative_numbers = true)]
    pub lst_threads_max: Option<u32>,
    /// Maximum number of request buffers of ping, and of brw, in each partition; each takes 64
    /// requests. 128 by default, of nlxd 32.
    #[arg(long, value_name = "N", value_parser = whole::<u32>(2..=u64::from(BUFFERS_MAX)), allow_negative_numbers = true)]
    pub lst_buffers_max: Option<u32>,
    /// Maximum number of bulk buffers of 1 MiB in each partition, for the data that it serves. 512 by
    /// default, of nlxd 64.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=BULK_MAX), allow_negative_numbers = true)]
    pub lst_bulk_max: Option<usize>,
    /// Maximum memory of its test clients; tests beyond it are refused. 2112 MiB by default, of nlxd
    /// 256 MiB.
    #[arg(long, value_name = "BYTES", value_parser = bytes::<u64>(MEMORY), allow_negative_numbers = true)]
    pub lst_memory_max: Option<u64>,
}

impl TestNodeArgs {
    /// Refuses options of a test node where there is none.
    pub(crate) fn refuse_without(&self, has_test_node: bool) -> Result<(), Failure> {
        if has_test_node || *self == TestNodeArgs::default() {
            return Ok(());
        }
        Err(Failure::new("options of a test node, --lst-..., have no effect without --lst").exit(2))
    }

    /// Returns these options, and where they are not given, those of a file.
    pub(crate) fn or(&self, file: &TestNodeArgs) -> TestNodeArgs {
        TestNodeArgs {
            lst_consoles: self.lst_consoles.clone().or_else(|| file.lst_consoles.clone()),
            lst_cpts: self.lst_cpts.clone().or_else(|| file.lst_cpts.clone()),
            lst_threads_min: self.lst_threads_min.or(file.lst_threads_min),
            lst_threads_max: self.lst_threads_max.or(file.lst_threads_max),
            lst_buffers_max: self.lst_buffers_max.or(file.lst_buffers_max),
            lst_bulk_max: self.lst_bulk_max.or(file.lst_bulk_max),
            lst_memory_max: self.lst_memory_max.or(file.lst_memory_max),
        }
    }

    /// Returns the options of the node, with the program's own where they are not given.
    pub(crate) fn over(&self, own: TestNodeOptions) -> TestNodeOptions {
        let mut config = own.config;
        config.memory_max = self.lst_memory_max.unwrap_or(config.memory_max);
        TestNodeOptions {
            config,
            consoles: match &self.lst_consoles {
                Some(Nids::Listed(list)) => Some(list.clone()),
                Some(Nids::All) => None,
                None => own.consoles,
            },
            cpts: self.lst_cpts.as_ref().map_or(own.cpts, |cpts| cpts.iter().collect()),
            threads_min: self.lst_threads_min.or(own.threads_min),
            // A minimum above the program's own maximum raises it.
            threads_max: self.lst_threads_max.or(own.threads_max.max(self.lst_threads_min)),
            buffers_max: self.lst_buffers_max.unwrap_or(own.buffers_max),
            bulk_max: self.lst_bulk_max.unwrap_or(own.bulk_max),
            requests_wait: own.requests_wait,
            requests_per_buffer: own.requests_per_buffer,
        }
    }
}

//! A small object store on nlx: several clients put, get, list and delete objects of any size at
//! once; the server stores them as files.
//!
//! ```text
//! cargo run --release -p nlx --example object_store -- demo
//!
//! object_store serve /tmp/store                        # 127.0.0.1@tcp:12345:41:1
//! object_store put /etc/services services
//! object_store list
//! object_store get services /tmp/copy
//! object_store delete services
//! ```
//!
//! With `--helper`, server and clients are clients of this host's helper `nlxd`, and share its NID;
//! nothing else changes:
//!
//! ```text
//! nlxd --net 'tcp(eth0)' &
//! object_store --helper serve /tmp/store
//! object_store --helper put /etc/services services
//! ```
//!
//! The server is a service, the client makes calls (`nlx::service`). The bytes of objects are
//! transferred in bulk, in pieces of 1 MiB, directly between the server's memory and the client's: a
//! call offers memory of the client, and the server reads it or fills it before it answers. So the
//! server decides when each transfer starts and how long it is. A request that is lost is repeated,
//! and runs once all the same.
//!
//! ```text
//!   client                                     server
//!     │ create "name", 40 MiB                    │ opens a temporary file
//!     │ ───────────────────────────────────────▶ │
//!     │ ◀─────────────────────────── upload 7 ── │
//!     │ write upload 7 at 0, offer of 1 MiB      │
//!     │ ───────────────────────────────────────▶ │
//!     │ ◀═════════════════════ reads the offer ══│ then writes the bytes to the file
//!     │ ◀──────────────────────────────── done ──│
//!     │ … the same for each piece …              │
//!     │ commit upload 7                          │ file to disk, renamed to "name"
//!     │ ───────────────────────────────────────▶ │
//! ```

mod client;
mod demo;
mod disk;
mod protocol;
mod server;

use std::error::Error;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use nlx::{Domain, NodeConfig};

use crate::client::Client;
use crate::disk::Disk;
use crate::protocol::{Name, PORTAL};
use crate::server::Server;

/// The result of every fallible function in this example.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A small object store: put, get, list and delete objects of any size.
#[derive(Parser)]
struct Arguments {
    /// This node's network; 127.0.0.1 for the server, 127.0.0.2 for clients.
    #[arg(long)]
    net: Option<String>,
    /// Run through this host's helper, or the one with this socket, instead of a node inside this
    /// program.
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, conflicts_with_all = ["net", "port"])]
    helper: Option<Option<PathBuf>>,
    /// The TCP port on which nodes take connections: the same for all.
    #[arg(long, default_value_t = 9834)]
    port: u16,
    /// The server's address; 127.0.0.1@tcp:12345:41:1, and with a helper that of a server of the
    /// same helper.
    #[arg(long)]
    server: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the objects in this directory, until killed.
    Serve {
        directory: PathBuf,
        /// Number of threads that handle requests, and write and read files.
        #[arg(long, default_value_t = 4)]
        workers: u32,
    },
    /// Store a file as an object.
    Put { file: PathBuf, name: Name },
    /// Fetch an object into a file.
    Get { name: Name, file: PathBuf },
    /// List the objects with their lengths.
    List,
    /// Delete an object.
    Delete { name: Name },
    /// Run a demo in one process: a server and four clients.
    Demo,
}

impl Arguments {
    /// Opens the domain: the only code that differs between a node and a helper.
    fn domain(&self, default: &str) -> Outcome<Domain> {
        let node = || NodeConfig::new().net(self.net.as_deref().unwrap_or(default));
        Ok(match &self.helper {
            Some(Some(path)) => Domain::helper_at(path)?,
            Some(None) => Domain::helper()?,
            None => Domain::in_process(&node()?.accept_port(self.port))?,
        })
    }

    fn server(&self, domain: &Domain) -> Outcome<String> {
        Ok(match (&self.server, &self.helper) {
            (Some(server), _) => server.clone(),
            (None, None) => format!("127.0.0.1@tcp:12345:{PORTAL}:1"),
            (None, Some(_)) => {
                let nid = domain.nids().first().copied().ok_or("a helper without a network")?;
                format!("{nid}:12345:{PORTAL}:1")
            }
        })
    }
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let client = || {
        let domain = arguments.domain("tcp(127.0.0.2)")?;
        Client::new(&domain, &arguments.server(&domain)?)
    };
    match &arguments.command {
        Command::Demo => demo::run(&arguments.domain("lo")?)?,
        Command::Serve { directory, workers } => {
            let domain = arguments.domain("tcp(127.0.0.1)")?;
            let server = arguments.server(&domain)?;
            let server = Server::start(&domain, &server, Disk::open(directory)?, *workers)?;
            println!("serving {} at {}", directory.display(), server.address);
            server.wait();
        }
        Command::Put { file, name } => client()?.put_file(name, file)?,
        Command::Get { name, file } => client()?.get_file(name, file)?,
        Command::Delete { name } => client()?.delete(name)?,
        Command::List => {
            for object in client()?.list()? {
                println!("{:>12} {}", object.length, object.name);
            }
        }
    }
    Ok(())
}

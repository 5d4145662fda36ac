//! A small object store on nlx: objects of any size, put, got, listed and deleted by several clients at once; files on disk.
//!
//! ```text
//! cargo run --release -p nlx --example object_store -- demo
//!
//! object_store serve /tmp/store                        # 127.0.0.1@tcp:12345:33:1
//! object_store put /etc/services services
//! object_store list
//! object_store get services /tmp/copy
//! object_store delete services
//! ```
//!
//! Requests and answers are messages; the bytes of objects go in bulk, in pieces of 16 MiB, straight between the server's
//! memory and the client's: a request carries the offer of the client's buffer, and the server reads from there or writes
//! to there. So the server decides when and how much moves, and however many clients there are, its memory stays the same.
//!
//! ```text
//!   client                                     server
//!     │ create "name", 40 MiB                    │ opens a temporary file
//!     │ ───────────────────────────────────────▶ │
//!     │ ◀─────────────────────────── upload 7 ── │
//!     │ write upload 7 at 0, offer of 16 MiB     │
//!     │ ───────────────────────────────────────▶ │
//!     │ ◀══ reads the offer, 16 parts of 1 MiB ══│ then writes them to the file
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
use crate::protocol::Name;
use crate::server::Server;

/// What everything in here ends with.
type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A small object store: put, get, list and delete objects of any size.
#[derive(Parser)]
struct Arguments {
    /// This node's network; 127.0.0.1 for the server, 127.0.0.2 for clients.
    #[arg(long)]
    net: Option<String>,
    /// The TCP port on which nodes take connections: the same for all.
    #[arg(long, default_value_t = 9834)]
    port: u16,
    /// The server's address.
    #[arg(long, default_value = "127.0.0.1@tcp:12345:33:1")]
    server: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the objects in this directory, until killed.
    Serve {
        directory: PathBuf,
        /// Threads that take requests, and write and read files.
        #[arg(long, default_value_t = 4)]
        workers: usize,
    },
    /// Store a file as an object.
    Put { file: PathBuf, name: Name },
    /// Fetch an object into a file.
    Get { name: Name, file: PathBuf },
    /// List the objects with their lengths.
    List,
    /// Delete an object.
    Delete { name: Name },
    /// Show it all in one process: a server and four clients.
    Demo,
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let node = |default: &str| -> Outcome<Domain> {
        let net = arguments.net.as_deref().unwrap_or(default);
        Ok(Domain::in_process(&NodeConfig::new().net(net)?.accept_port(arguments.port))?)
    };
    let client = || Client::new(&node("tcp(127.0.0.2)")?, &arguments.server);
    match &arguments.command {
        Command::Demo => demo::run()?,
        Command::Serve { directory, workers } => {
            let server = Server::start(&node("tcp(127.0.0.1)")?, &arguments.server, Disk::open(directory)?)?;
            println!("serving {} at {}", directory.display(), server.address());
            server.run(*workers)?;
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

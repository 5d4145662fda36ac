//! The demo, in one process: a server, four clients, and objects of all sizes, over the loopback
//! network.

use std::io::Read;
use std::time::Instant;

use nlx::Domain;

use crate::Outcome;
use crate::client::Client;
use crate::disk::Disk;
use crate::protocol::Name;
use crate::server::Server;

const SERVER: &str = "0@lo:12345:41:1";
const CLIENTS: u64 = 4;
const LENGTHS: [u64; 6] = [0, 1, 100_000, 1 << 20, (16 << 20) + 1, 40_000_000];

/// Stores objects, fetches and compares them, lists and deletes them.
pub(crate) fn run(domain: &Domain) -> Outcome<()> {
    let directory = std::env::temp_dir().join(format!("nlx-object-store-{}", std::process::id()));
    let server = Server::start(domain, SERVER, Disk::open(&directory)?, 2)?;
    println!("serving {} at {SERVER}", directory.display());
    let outcome = clients(domain);
    drop(server);
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn clients(domain: &Domain) -> Outcome<()> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(domain, number))).collect();
        clients.into_iter().try_for_each(|client| client.join().map_err(|_| "a client has panicked")?)
    })?;
    let (seconds, bytes) = (began.elapsed().as_secs_f64(), 2 * CLIENTS * LENGTHS.iter().sum::<u64>());
    println!("{CLIENTS} clients: {} MB stored and fetched in {seconds:.2} s", bytes / 1_000_000);

    let mut client = Client::new(domain, SERVER)?;
    let objects = client.list()?;
    for object in &objects {
        println!("{:>12} {}", object.length, object.name);
        client.delete(&object.name)?;
    }
    match (objects.len() as u64 == CLIENTS * LENGTHS.len() as u64, client.list()?.as_slice()) {
        (true, []) => {
            println!("all of them deleted");
            Ok(())
        }
        (_, left) => Err(format!("{} objects were there, {} are left", objects.len(), left.len()).into()),
    }
}

fn client(domain: &Domain, number: u64) -> Outcome<()> {
    let mut client = Client::new(domain, SERVER)?;
    for length in LENGTHS {
        let name: Name = format!("client-{number}.{length}-bytes").parse()?;
        client.put(&name, length, bytes(number, length))?;
        let got = client.get(&name, || Ok(Vec::new()))?;
        let mut expected = Vec::new();
        bytes(number, length).read_to_end(&mut expected)?;
        if got != expected {
            return Err(format!("{name} is not what was put").into());
        }
    }
    Ok(())
}

/// Returns a stream of `length` pseudo-random bytes that depends on the seed.
fn bytes(seed: u64, length: u64) -> impl Read {
    struct Bytes(u64);
    impl Read for Bytes {
        fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
            for byte in &mut *target {
                // Knuth's generator; its upper bits are the most random.
                self.0 =
                    self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (self.0 >> 56) as u8;
            }
            Ok(target.len())
        }
    }
    Bytes(seed).take(length)
}

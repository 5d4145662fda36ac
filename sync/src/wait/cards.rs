//! Busy polling of network cards by epoll, instead of waiting for their interrupts.
#![allow(unsafe_code, reason = "nix has no such call")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;

/// Maximum number of packets per poll of a card without CAP_NET_ADMIN.
const BUDGET: u16 = 64;

/// The kernel's `struct epoll_params`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Params {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

mod call {
    use super::Params;

    nix::ioctl_write_ptr!(set, 0x8a, 0x01, Params);
    #[cfg(test)]
    nix::ioctl_read!(get, 0x8a, 0x02, Params);
}

/// Makes each `epoll_wait` on this set busy-poll the network cards of its sockets for up to
/// `time_us` microseconds, if their drivers support it. 0 turns it off.
///
/// # Errors
/// ENOTTY or EINVAL before Linux 6.9, and from a kernel built without busy polling.
pub fn poll_cards(epoll: impl AsFd, time_us: u32) -> Result<(), Errno> {
    let params = Params { busy_poll_usecs: time_us, busy_poll_budget: BUDGET, ..Params::default() };
    set(epoll.as_fd(), &params)
}

fn set(epoll: BorrowedFd<'_>, params: &Params) -> Result<(), Errno> {
    // SAFETY: the call reads a structure of this layout from the address, which is valid during the
    // call, and keeps no reference to it.
    unsafe { call::set(epoll.as_raw_fd(), params) }.map(drop)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use nix::sys::epoll::{Epoll, EpollCreateFlags};

    use super::*;

    fn get(epoll: &Epoll) -> Params {
        let mut params = Params::default();
        // SAFETY: the call writes a structure of this layout to the address.
        unsafe { call::get(epoll.0.as_raw_fd(), &mut params) }.unwrap();
        params
    }

    #[test]
    fn the_setting_is_kept_or_refused() {
        let epoll = Epoll::new(EpollCreateFlags::empty()).unwrap();
        match poll_cards(&epoll.0, 40) {
            Ok(()) => {
                assert_eq!((get(&epoll).busy_poll_usecs, get(&epoll).busy_poll_budget), (40, BUDGET));
                poll_cards(&epoll.0, 0).unwrap();
                assert_eq!(get(&epoll).busy_poll_usecs, 0);
            }
            Err(errno) => assert!([Errno::ENOTTY, Errno::EINVAL].contains(&errno), "{errno}"),
        }
        assert!(poll_cards(std::fs::File::open("/").unwrap(), 0).is_err(), "no epoll set");
    }
}

use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

use lnet_api::Errno;
use lnet_region::{Part, PartMut};
use nix::sys::socket::MsgFlags;
use smallvec::SmallVec;
use socket2::{Socket, TcpKeepalive};

use super::{errno, retry};
use crate::SockConfig;

/// The most pieces of memory handed to one system call: a message of LNet's 256 fragments with what stands before or
/// behind it. The system itself allows 1024.
pub(crate) const PIECES_MAX: usize = 512;

/// What one call sends, on the stack.
pub(crate) type Gather<'a> = SmallVec<[Part<'a>; PIECES_MAX]>;

/// Where one call receives to, on the stack.
pub(crate) type Scatter<'a> = SmallVec<[PartMut<'a>; PIECES_MAX]>;

/// What a receive gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// This many bytes.
    Bytes(usize),
    /// There is nothing now.
    Nothing,
    /// The other side sends no more.
    End,
    /// The connection is broken.
    Broken(Errno),
}

/// Writes as much as there is room for. EAGAIN: there is none.
pub(crate) fn send(socket: &Socket, pieces: &[Part<'_>]) -> Result<usize, Errno> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    retry(|| Ok(lnet_region::send(socket.as_fd(), pieces, flags)?))
}

/// Reads into one buffer, which is not empty.
pub(crate) fn receive(socket: &Socket, buffer: &mut [u8]) -> Received {
    let mut socket = socket;
    received(retry(|| socket.read(buffer)))
}

/// Reads into several pieces of memory in order, which are not all empty.
pub(crate) fn receive_into(socket: &Socket, pieces: &mut [PartMut<'_>]) -> Received {
    received(retry(|| Ok(lnet_region::receive(socket.as_fd(), pieces, MsgFlags::empty())?)))
}

fn received(result: Result<usize, Errno>) -> Received {
    match result {
        Ok(0) => Received::End,
        Ok(count) => Received::Bytes(count),
        Err(Errno::EAGAIN) => Received::Nothing,
        Err(errno) => Received::Broken(errno),
    }
}

/// How a connection that was under way has ended.
pub(crate) fn connect_result(socket: &Socket) -> Result<(), Errno> {
    match socket.take_error() {
        Ok(None) => Ok(()),
        Ok(Some(error)) | Err(error) => Err(errno(&error)),
    }
}

/// Sets a connection's options (lnet-wire 29).
pub(crate) fn tune(socket: &Socket, config: &SockConfig) -> Result<(), Errno> {
    let attempt = || {
        socket.set_tcp_nodelay(!config.nagle)?;
        socket.set_linger(None)?;
        if config.tx_buffer_size > 0 {
            socket.set_send_buffer_size(config.tx_buffer_size as usize)?;
        }
        if config.rx_buffer_size > 0 {
            socket.set_recv_buffer_size(config.rx_buffer_size as usize)?;
        }
        if config.keepalive_idle_s > 0 {
            let seconds = |count: u32| Duration::from_secs(u64::from(count));
            let keepalive = TcpKeepalive::new()
                .with_time(seconds(config.keepalive_idle_s))
                .with_interval(seconds(config.keepalive_intvl_s.max(1)))
                .with_retries(config.keepalive_count.max(1));
            socket.set_tcp_keepalive(&keepalive)?;
        }
        // Data that TCP cannot get acknowledged counts as no progress (lnet-wire 28).
        socket.set_tcp_user_timeout(Some(Duration::from_secs(u64::from(config.timeout_s))))?;
        if let Some(name) = &config.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        Ok(())
    };
    attempt().map_err(|error: std::io::Error| errno(&error))
}

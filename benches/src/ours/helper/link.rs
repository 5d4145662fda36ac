//! Descriptors for another process, over a Unix socket.

#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::error::{BenchError, Result};
use crate::server;

/// Reports that it is ready, with its address, and receives `N` descriptors from the client.
pub(super) fn take<const N: usize>() -> Result<([OwnedFd; N], UnixStream)> {
    let name = format!("nlx-bench-{}", std::process::id());
    let listener =
        SocketAddr::from_abstract_name(&name).and_then(|address| UnixListener::bind_addr(&address));
    let listener = listener.map_err(BenchError::system("listen for a client"))?;
    server::ready(&name)?;
    let (stream, _) = listener.accept().map_err(BenchError::system("accept a client"))?;
    let mut byte = [0];
    let mut room = nix::cmsg_space!([std::os::fd::RawFd; N]);
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut bytes, Some(&mut room), flags)
        .map_err(BenchError::system("take descriptors"))?;
    let mut fds = Vec::new();
    for part in message.cmsgs().map_err(BenchError::system("take descriptors"))? {
        if let ControlMessageOwned::ScmRights(raw) = part {
            // SAFETY: recvmsg has just created these descriptors, for this process and this caller
            // alone.
            fds.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
    }
    let count = fds.len() as u64;
    let wrong =
        |_| BenchError::Wrong { subject: "the number of descriptors", value: count, expected: N as u64 };
    Ok((fds.try_into().map_err(wrong)?, stream))
}

/// Sends these descriptors to the server at its reported address.
pub(super) fn give(reported: &str, fds: &[BorrowedFd<'_>]) -> Result<UnixStream> {
    let stream =
        SocketAddr::from_abstract_name(reported).and_then(|address| UnixStream::connect_addr(&address));
    let stream = stream.map_err(BenchError::system("connect to a server"))?;
    let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&[0])], &rights, MsgFlags::empty(), None)
        .map_err(BenchError::system("give descriptors"))?;
    Ok(stream)
}

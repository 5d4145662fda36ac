//! TCP streams over the system's sockets, and their options.

use std::cell::RefCell;
use std::io::Read;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use lnet_api::Errno;
use lnet_region::{Part, PartMut};
use nix::sys::socket::{self, MsgFlags};
use socket2::{Socket, TcpKeepalive};

use super::{errno, retry};
use crate::sys::{Handle, Options, RecvResult, Stream, TcpFacts};

impl Stream for Socket {
    fn handle(&self) -> Handle<'_> {
        Handle::Fd(self.as_fd())
    }

    fn send(&self, pieces: &[Part<'_>]) -> Result<usize, Errno> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match length_to_join(pieces) {
            None => retry(|| Ok(lnet_region::send(self.as_fd(), pieces, flags)?)),
            Some(length) => JOINED.with_borrow_mut(|joined| {
                join(pieces, joined);
                retry(|| Ok(socket::send(self.as_raw_fd(), &joined[..length], flags)?))
            }),
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> RecvResult {
        let mut socket = self;
        received(retry(|| socket.read(buffer)))
    }

    fn receive_into(&self, pieces: &mut [PartMut<'_>]) -> RecvResult {
        received(retry(|| Ok(lnet_region::receive(self.as_fd(), pieces, MsgFlags::empty())?)))
    }

    fn connect_result(&self) -> Result<(), Errno> {
        match self.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(errno(&error)),
        }
    }

    fn tune(&self, options: &Options) -> Result<(), Errno> {
        tune(self, options)
    }

    fn acknowledge_now(&self) {
        // If this fails, acknowledgements leave a little later.
        let _ = self.set_tcp_quickack(true);
    }

    fn shutdown(&self) {
        // The call fails if the other side has already ended the connection.
        let _ = Socket::shutdown(self, Shutdown::Both);
    }

    fn limit_unacked(&self, seconds: u32) {
        // The call does not fail on a TCP socket.
        let _ = self.set_tcp_user_timeout(Some(Duration::from_secs(u64::from(seconds))));
    }

    fn facts(&self) -> Option<TcpFacts> {
        let mut info = [0; TcpFacts::BYTES];
        let length = lnet_region::tcp_info(self.as_fd(), &mut info).ok()?;
        Some(TcpFacts::parse(&info[..length]))
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Socket::peer_addr(self).ok()?.as_socket()
    }
}

/// The maximum number of bytes joined: a window of small messages.
const JOINED_MAX: usize = 16 << 10;

/// Pieces of at most this average length are joined: one more piece costs the system about as much
/// as copying this number of bytes (49 ns against 20 to 60).
const JOINED_EACH: usize = 512;

thread_local! {
    static JOINED: RefCell<[u8; JOINED_MAX]> = const { RefCell::new([0; JOINED_MAX]) };
}

/// Returns the total length of the pieces if joining them into one costs less than passing them
/// separately; otherwise `None`.
fn length_to_join(pieces: &[Part<'_>]) -> Option<usize> {
    let most = JOINED_MAX.min(pieces.len() * JOINED_EACH);
    let add = |length: usize, piece: &Part<'_>| Some(length + piece.len()).filter(|&length| length <= most);
    pieces.iter().try_fold(0, add).filter(|_| pieces.len() > 1)
}

/// Copies pieces into one, which has room for them.
fn join(pieces: &[Part<'_>], joined: &mut [u8]) {
    let mut end = 0;
    for piece in pieces {
        end += piece.load(0, &mut joined[end..]);
    }
}

fn received(result: Result<usize, Errno>) -> RecvResult {
    match result {
        Ok(0) => RecvResult::End,
        Ok(count) => RecvResult::Bytes(count),
        Err(Errno::EAGAIN) => RecvResult::Nothing,
        Err(errno) => RecvResult::Broken(errno),
    }
}

/// Sets a socket's options (lnet-wire 29).
pub(super) fn tune(socket: &Socket, options: &Options) -> Result<(), Errno> {
    let attempt = || {
        socket.set_tcp_nodelay(!options.nagle)?;
        socket.set_linger(None)?;
        if options.tx_buffer_size > 0 {
            socket.set_send_buffer_size(options.tx_buffer_size as usize)?;
        }
        if options.rx_buffer_size > 0 {
            socket.set_recv_buffer_size(options.rx_buffer_size as usize)?;
        }
        if options.keepalive_idle_s > 0 {
            let seconds = |count: u32| Duration::from_secs(u64::from(count));
            let keepalive = TcpKeepalive::new()
                .with_time(seconds(options.keepalive_idle_s))
                .with_interval(seconds(options.keepalive_intvl_s.max(1)))
                .with_retries(options.keepalive_count.max(1));
            socket.set_tcp_keepalive(&keepalive)?;
        }
        socket.set_tcp_user_timeout(Some(Duration::from_secs(u64::from(options.timeout_s))))?;
        if let Some(name) = &options.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if let Some(tos) = options.tos {
            set_tos(socket, tos)?;
        }
        Ok(())
    };
    attempt().map_err(|error: std::io::Error| errno(&error))
}

fn set_tos(socket: &Socket, tos: u8) -> std::io::Result<()> {
    match socket.domain()? {
        socket2::Domain::IPV6 => socket.set_tclass_v6(u32::from(tos)),
        _ => socket.set_tos_v4(u32::from(tos)),
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;
    use crate::{NiConfig, SockConfig};

    #[test]
    fn the_system_knows_its_connections() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let facts = Stream::facts(&Socket::from(stream)).unwrap();
        assert!(facts.mss > 500 && facts.path_mtu > facts.mss, "{facts:?}");
        assert_eq!((facts.retransmissions, facts.unacked_bytes, facts.is_stuck()), (0, 0, false));
        assert_eq!(Stream::facts(&Socket::new(Domain::UNIX, Type::STREAM, None).unwrap()), None);
    }

    #[test]
    fn options_are_set_on_both_families() {
        let config = SockConfig { tos: Some(0x20), rx_buffer_size: 9000, ..SockConfig::default() };
        let options = Options::of(&config, &NiConfig::from(&config));
        for domain in [Domain::IPV4, Domain::IPV6] {
            let socket = Socket::new(domain, Type::STREAM, None).unwrap();
            tune(&socket, &options).unwrap();
            let tos = if domain == Domain::IPV4 { socket.tos_v4() } else { socket.tclass_v6() };
            // The system doubles buffers for its own bookkeeping (socket(7)).
            assert_eq!((tos.unwrap(), socket.recv_buffer_size().unwrap()), (0x20, 18_000));
            assert_eq!((socket.tcp_nodelay().unwrap(), socket.linger().unwrap()), (true, None));
            assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(50)));
            for seconds in [0, 7] {
                Stream::limit_unacked(&socket, seconds);
                let limit = socket.tcp_user_timeout().unwrap().unwrap_or_default();
                assert_eq!(limit, Duration::from_secs(u64::from(seconds)));
            }
        }
    }
}

//! Memory that the helper does not share.

use nlx::{Buffer, Domain, Errno, Error, IoVec, NodeConfig, Op, Region, TmOptions};
use nlx_testkit::buffers::pattern;

use super::support;

const BYTES: usize = 5000;

fn domain() -> Domain {
    support::domain(module_path!(), &NodeConfig::new())
}

/// Foreign memory is refused, and the error names the alternative.
// Covers: S-3
#[test]
fn foreign_memory_is_refused_by_name() {
    let domain = domain();
    let foreign = || IoVec::whole(Region::heap(BYTES).unwrap());
    let refusals =
        [domain.register(foreign()), domain.adopt(pattern(0, BYTES)), domain.adopt(vec![0; 3 << 20])];
    for refused in refusals {
        let error = refused.unwrap_err();
        assert_eq!(error.errno(), Errno::EFAULT, "{error}");
        assert!(error.to_string().contains("register it copying"), "{error}");
    }
    // Refused memory leaves nothing registered.
    assert_eq!(domain.adopt(Vec::new()).unwrap_err().errno(), Errno::EINVAL);
    assert!(domain.node().is_none());
}

/// By copy it sends and receives, in one or several segments, and in one or several parts.
// Covers: S-3
#[test]
fn foreign_memory_sends_and_receives_by_copy() {
    let domain = domain();
    let [a, b] = [(); 2].map(|()| domain.transfer_machine("0@lo:12345:41:*", TmOptions::default()).unwrap());
    let segments = || {
        let regions = [1, 4095, 64, BYTES - 4160].map(|bytes| Region::heap(bytes).unwrap());
        IoVec::new(regions.map(|region| IoVec::whole(region).fragments()[0].clone()).to_vec()).unwrap()
    };
    for length in [BYTES, (3 << 20) + 17] {
        let target = match length {
            BYTES => domain.register_copying(segments()).unwrap(),
            _ => domain.adopt_copying(vec![0; length]).unwrap(),
        };
        let offer = b.start(Op::passive_receive(target).length(length)).unwrap().offer;
        let source = domain.adopt_copying(pattern(0, length)).unwrap();
        a.start(Op::active_send(source, &offer).length(length)).unwrap();
        let sent = a.wait(None).unwrap().unwrap();
        assert_eq!((sent.status, sent.buffer.as_ref().map(Buffer::len)), (Ok(()), Some(length)));
        let received = b.wait(None).unwrap().unwrap();
        assert_eq!((received.status, received.length), (Ok(()), length));
        assert!(bytes_of(&received.buffer.unwrap()) == pattern(0, length), "{length} bytes came changed");
    }
}

fn bytes_of(buffer: &Buffer) -> Vec<u8> {
    match buffer.read() {
        Ok(bytes) => bytes.to_vec(),
        Err(Error::Segments { .. }) => {
            let fragments = buffer.memory().fragments().iter();
            let whole = fragments.map(|fragment| IoVec::new(vec![fragment.clone()]).unwrap());
            whole.flat_map(|piece| piece.read(0..piece.len()).unwrap().as_slice().unwrap().to_vec()).collect()
        }
        Err(error) => panic!("{error}"),
    }
}

/// Without a helper at the socket the domain is not opened, and the error has the socket's path.
// Covers: MT-167
#[test]
fn a_helper_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nobody.sock");
    let error = Domain::helper_at(&path).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOENT, "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

//! Recorded streams of messages, cut at any position, decode to the same messages (lnet-wire 25).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Item, Stream, streams};
use lnet_proto::sock::{Decoder, Frame, Version};
use lnet_proto::{ByteOrder, Header};

/// Returns the messages after the hello, up to the first whose payload is not recorded.
fn messages(stream: &Stream) -> Vec<u8> {
    let whole = stream.items.iter().skip_while(|item| !matches!(item, Item::Hello(_))).skip(1);
    let pieces = whole.map_while(|item| match item {
        Item::Noop(bytes) => Some(bytes.clone()),
        Item::Lnet(lnet) => Some([&lnet.prefix[..], &lnet.header, lnet.payload.as_deref()?].concat()),
        _ => None,
    });
    pieces.collect::<Vec<_>>().concat()
}

/// The state of a stream's reader between two pieces.
struct Reader {
    decoder: Decoder,
    unread: Vec<u8>,
    payload_left: usize,
    seen: Vec<(Frame, Vec<u8>)>,
}

impl Reader {
    fn feed(&mut self, piece: &[u8]) {
        self.unread.extend_from_slice(piece);
        loop {
            if self.payload_left > 0 {
                let taken = self.payload_left.min(self.unread.len());
                self.payload_left -= taken;
                self.seen.last_mut().unwrap().1.extend(self.unread.drain(..taken));
            }
            let Some((length, frame)) = self.decoder.decode(&self.unread).unwrap() else { break };
            self.unread.drain(..length);
            if let Frame::Lnet(_, Header { payload_length, .. }) = frame {
                self.payload_left = payload_length as usize;
            }
            self.seen.push((frame, Vec::new()));
            if self.payload_left > 0 && self.unread.is_empty() {
                break;
            }
        }
        assert!(self.unread.len() < Decoder::FRAME_MAX, "a whole frame is never left unread");
    }
}

fn read<'a>(decoder: Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<(Frame, Vec<u8>)> {
    let mut reader = Reader { decoder, unread: Vec::new(), payload_left: 0, seen: Vec::new() };
    for piece in pieces {
        reader.feed(piece);
    }
    assert_eq!((reader.unread.len(), reader.payload_left), (0, 0), "the stream ends behind a message");
    reader.seen
}

#[test]
fn a_recorded_stream_means_the_same_however_it_is_cut() {
    let (mut frames, mut payloads) = (0, 0);
    for stream in streams() {
        let version = if stream.hello()[4] == 4 { Version::V4 } else { Version::V3 };
        let decoder = Decoder::new(version, ByteOrder::Little);
        let bytes = messages(&stream);
        let whole = read(decoder, [&bytes[..]]);
        assert_eq!(read(decoder, bytes.chunks(1)), whole, "{} byte by byte", stream.name);
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(read(decoder, [head, tail]), whole, "{} cut at {at}", stream.name);
        }
        frames += whole.len();
        payloads += whole.iter().filter(|(_, payload)| !payload.is_empty()).count();
    }
    assert!(frames > payloads && payloads > 0);
}

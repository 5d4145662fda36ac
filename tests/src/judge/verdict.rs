//! Checks of messages that both sides of the judge use.

use super::frame::{ACK, GET, Message, Prefix, REPLY};
use super::wire::Nid;

/// Checks that a message has no checksum (lnet-wire 25.3): V3 and V4 have none, and V2 none by
/// default.
pub(crate) fn no_checksum(prefix: &Prefix) -> Result<(), String> {
    if prefix.csum != 0 {
        return Err(format!("a checksum of {:#x}", prefix.csum));
    }
    Ok(())
}

/// Checks the prefix and the header of any message: source, destination, and zeros in unused
/// fields.
pub(crate) fn judge_message(message: &Message, from: (Nid, u32), to: (Nid, u32)) -> Result<(), String> {
    no_checksum(&message.prefix)?;
    let (src, dest) = ((message.src, message.src_pid), (message.dest, message.dest_pid));
    if src != from {
        return Err(format!("a message from {src:?}, not {from:?}"));
    }
    if dest != to {
        return Err(format!("a message to {dest:?}, not {to:?}"));
    }
    let reserved = match message.kind {
        ACK => &message.body[28..],
        GET => &message.body[36..],
        REPLY => &message.body[16..],
        _ => &[],
    };
    if reserved.iter().any(|&byte| byte != 0) {
        return Err(format!("{reserved:02x?} in a header of type {}, where 0 is due", message.kind));
    }
    Ok(())
}

/// Checks that a REPLY or ACK answers a message: it echoes the handle, and has a permitted length.
pub(crate) fn judge_answer(asked: &Message, answer: &Message) -> Result<(), String> {
    let expected = if asked.kind == GET { REPLY } else { ACK };
    if answer.kind != expected {
        return Err(format!("a message of type {} where {expected} was due", answer.kind));
    }
    if answer.handle() != asked.handle() {
        return Err(format!("handle {:02x?} for {:02x?}", answer.handle(), asked.handle()));
    }
    if expected == REPLY && answer.length > asked.sink() {
        return Err(format!("a REPLY of {} bytes to a GET of {}", answer.length, asked.sink()));
    }
    if expected == ACK && answer.bits() != asked.bits() {
        return Err(format!("an ACK with match bits {:#x} for {:#x}", answer.bits(), asked.bits()));
    }
    if expected == ACK && answer.mlength() > asked.length {
        return Err(format!("an ACK of {} bytes for a PUT of {}", answer.mlength(), asked.length));
    }
    Ok(())
}

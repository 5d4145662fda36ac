//! Posting work requests, and their completions.

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use lnet_api::Errno;
use nlx_ibverbs_sys as ffi;
use smallvec::SmallVec;

use super::check;
use super::context::holds;
use super::queues::Queues;
use crate::fabric::{
    COMPLETIONS_PER_LOOK, Completions, Piece, PostError, ReceiveWork, SendKind, SendWork, WorkCompletion,
    WorkError,
};
use crate::sizes::PIECES_MAX;

/// The maximum number of work requests per call of the driver; a longer chain takes several calls.
/// The call's requests are kept on the stack.
const CHAIN: usize = 32;

/// The maximum number of pieces of memory per call, and so per work request: [`PIECES_MAX`], which
/// is all that queues are created with, even on devices that support more.
const PIECES: usize = PIECES_MAX as usize;

impl Queues {
    pub(super) fn post_receives(&self, works: &[ReceiveWork]) -> Result<(), PostError> {
        self.check_origin()?;
        works.chunks(CHAIN).enumerate().try_for_each(|(number, chain)| {
            let behind = |index| number * CHAIN + index;
            self.post_receive_chain(chain).map_err(|error| PostError { index: behind(error.index), ..error })
        })
    }

    fn post_receive_chain(&self, works: &[ReceiveWork]) -> Result<(), PostError> {
        let mut pieces: SmallVec<[ffi::ibv_sge; CHAIN]> =
            works.iter().map(|work| entry(&work.piece)).collect();
        let request = |(work, piece): (&ReceiveWork, &mut ffi::ibv_sge)| ffi::ibv_recv_wr {
            wr_id: work.id,
            next: null_mut(),
            sg_list: piece,
            num_sge: 1,
        };
        let mut chain: SmallVec<[ffi::ibv_recv_wr; CHAIN]> =
            works.iter().zip(&mut pieces).map(request).collect();
        let Some(last) = chain.len().checked_sub(1) else { return Ok(()) };
        let first = chain.as_mut_ptr();
        let mut bad = null_mut();
        // SAFETY: all requests of the chain, linked here within it, and their pieces stay where
        // they are until the call returns, and the device's driver copies them. The queue pair is
        // valid, and its context has the table of its driver's calls. The device checks the memory
        // that the pieces name.
        let result = unsafe {
            (0..last).for_each(|index| (*first.add(index)).next = first.add(index + 1));
            let pair = self.pair();
            let post =
                (*pair.as_ref().context).ops.post_recv.ok_or(PostError { index: 0, errno: Errno::ENOSYS })?;
            post(pair.as_ptr(), first, &mut bad)
        };
        check(result).map_err(|errno| PostError { index: index_of(first, bad, chain.len()), errno })
    }

    pub(super) fn post_sends(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        self.check_origin()?;
        let mut posted = 0;
        while posted < works.len() {
            let chain = fitting(&works[posted..]);
            let behind = |error: PostError| PostError { index: posted + error.index, ..error };
            if chain == 0 {
                return Err(behind(PostError { index: 0, errno: Errno::EINVAL }));
            }
            self.post_send_chain(&works[posted..posted + chain]).map_err(behind)?;
            posted += chain;
        }
        Ok(())
    }

    /// Posts the work requests of one call, up to the first inline send whose memory is not
    /// registered: the call would read that memory, and fault if it does not exist. No registration
    /// ends during the call.
    fn post_send_chain(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        let copied = works.iter().any(|work| work.inline).then(|| self.context().registered.hold());
        let readable = |work: &SendWork<'_>| {
            let holds = |registered| work.pieces.iter().all(|piece| holds(registered, piece));
            !work.inline || copied.as_ref().is_some_and(holds)
        };
        // Post the work requests before the first one whose memory cannot be read.
        let good = works.iter().take_while(|work| readable(work)).count();
        self.post_readable(&works[..good])?;
        if good < works.len() { Err(PostError { index: good, errno: Errno::EFAULT }) } else { Ok(()) }
    }

    /// Posts work requests. The caller ensures, until this returns, that the pieces of inline sends
    /// lie in registered memory.
    fn post_readable(&self, works: &[SendWork<'_>]) -> Result<(), PostError> {
        let mut pieces: SmallVec<[ffi::ibv_sge; PIECES]> =
            works.iter().flat_map(|work| work.pieces).map(entry).collect();
        let mut chain: SmallVec<[ffi::ibv_send_wr; CHAIN]> = SmallVec::new();
        let mut rest = pieces.as_mut_slice();
        for work in works {
            let (own, behind) = rest.split_at_mut(work.pieces.len());
            rest = behind;
            chain.push(request(work, own));
        }
        let Some(last) = chain.len().checked_sub(1) else { return Ok(()) };
        let first = chain.as_mut_ptr();
        let mut bad = null_mut();
        // SAFETY: as for receives. The call itself reads the memory of inline sends: it is
        // registered, and so it exists, as no registration ends while the caller holds them
        // (`RegistrationTable`).
        let result = unsafe {
            (0..last).for_each(|index| (*first.add(index)).next = first.add(index + 1));
            let pair = self.pair();
            let post =
                (*pair.as_ref().context).ops.post_send.ok_or(PostError { index: 0, errno: Errno::ENOSYS })?;
            post(pair.as_ptr(), first, &mut bad)
        };
        check(result).map_err(|errno| PostError { index: index_of(first, bad, chain.len()), errno })
    }

    pub(super) fn poll(&self, done: &mut Completions) -> Result<(), Errno> {
        if !self.fork_guard().in_owner_process() {
            return Err(Errno::EPERM);
        }
        let mut found = [const { MaybeUninit::<ffi::ibv_wc>::uninit() }; COMPLETIONS_PER_LOOK];
        let room = COMPLETIONS_PER_LOOK.saturating_sub(done.len());
        let queue = self.completions();
        // SAFETY: the queue is valid, its context has the table of its driver's calls, and there is
        // room for `room` completions.
        let count = unsafe {
            let poll = (*queue.as_ref().context).ops.poll_cq.ok_or(Errno::ENOSYS)?;
            poll(queue.as_ptr(), room as i32, found.as_mut_ptr().cast())
        };
        let count = usize::try_from(count).map_err(|_| Errno::EIO)?;
        // SAFETY: the driver has filled in the first `count`.
        done.extend(found[..count].iter().map(|found| completion(unsafe { found.assume_init_ref() })));
        Ok(())
    }

    pub(super) fn arm(&self) -> Result<(), Errno> {
        if !self.fork_guard().in_owner_process() {
            return Err(Errno::EPERM);
        }
        let queue = self.completions();
        // SAFETY: the queue is valid, and its context has the table of its driver's calls.
        check(unsafe {
            let notify = (*queue.as_ref().context).ops.req_notify_cq.ok_or(Errno::ENOSYS)?;
            notify(queue.as_ptr(), 0)
        })
    }

    fn check_origin(&self) -> Result<(), PostError> {
        if self.fork_guard().in_owner_process() {
            Ok(())
        } else {
            Err(PostError { index: 0, errno: Errno::EPERM })
        }
    }
}

/// Returns the number of leading work requests that fit into one call.
fn fitting(works: &[SendWork<'_>]) -> usize {
    let mut pieces = 0;
    let fits = |work: &&SendWork<'_>| {
        pieces += work.pieces.len();
        pieces <= PIECES
    };
    works.iter().take(CHAIN).take_while(fits).count()
}

fn entry(piece: &Piece) -> ffi::ibv_sge {
    ffi::ibv_sge { addr: piece.address, length: piece.length, lkey: piece.key }
}

fn request(work: &SendWork<'_>, pieces: &mut [ffi::ibv_sge]) -> ffi::ibv_send_wr {
    let mut flags = ffi::ibv_send_flags(0);
    if work.signalled {
        flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED;
    }
    if work.inline {
        flags |= ffi::ibv_send_flags::IBV_SEND_INLINE;
    }
    let mut request = ffi::ibv_send_wr {
        wr_id: work.id,
        sg_list: pieces.as_mut_ptr(),
        num_sge: pieces.len() as i32,
        opcode: ffi::ibv_wr_opcode::IBV_WR_SEND,
        send_flags: flags.0,
        ..Default::default()
    };
    if let SendKind::Write { address, key } = work.kind {
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        request.wr.rdma.remote_addr = address;
        request.wr.rdma.rkey = key;
    }
    request
}

/// Returns the index of the work request that the driver refused; 0 if the driver does not report
/// it.
fn index_of<T>(first: *const T, bad: *const T, length: usize) -> usize {
    let index = bad.addr().wrapping_sub(first.addr()) / size_of::<T>();
    if index < length { index } else { 0 }
}

fn completion(found: &ffi::ibv_wc) -> WorkCompletion {
    let status = match found.status {
        ffi::ibv_wc_status::IBV_WC_SUCCESS => Ok(()),
        ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Err(WorkError::Flushed),
        ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR => Err(WorkError::RetriesExceeded),
        ffi::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => Err(WorkError::NoReceiver),
        ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR => Err(WorkError::RemoteAccess),
        other => Err(WorkError::Other(other)),
    };
    // A failed completion has only an id and a status.
    let received = status.is_ok() && found.opcode & ffi::ibv_wc_opcode::IBV_WC_RECV != 0;
    WorkCompletion { id: found.wr_id, length: if received { found.byte_len } else { 0 }, status }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(pieces: &[Piece]) -> SendWork<'_> {
        SendWork { id: 0, pieces, kind: SendKind::Send, signalled: true, inline: false }
    }

    #[test]
    fn a_call_takes_as_many_as_have_room() {
        let pieces = [Piece::default(); PIECES + 1];
        assert_eq!(fitting(&[work(&pieces[..1]); CHAIN + 5]), CHAIN);
        assert_eq!(fitting(&[work(&pieces[..PIECES]), work(&pieces[..1])]), 1);
        assert_eq!(fitting(&[work(&pieces)]), 0, "more pieces than a device is said to take");
        assert_eq!(fitting(&[]), 0);
    }

    #[test]
    fn the_driver_names_the_request_that_it_refuses() {
        let chain = [0u64; 4];
        let first = chain.as_ptr();
        assert_eq!(index_of(first, &chain[3], 4), 3);
        assert_eq!(index_of(first, std::ptr::null(), 4), 0, "it does not say");
    }

    #[test]
    fn completions_of_failures_have_no_length() {
        let mut found = ffi::ibv_wc { wr_id: 7, byte_len: 64, ..Default::default() };
        found.opcode = ffi::ibv_wc_opcode::IBV_WC_RECV;
        assert_eq!(completion(&found), WorkCompletion { id: 7, length: 64, status: Ok(()) });
        found.opcode = ffi::ibv_wc_opcode::IBV_WC_RDMA_WRITE;
        assert_eq!(completion(&found).length, 0, "sent, not received");
        for (status, error) in [
            (5, WorkError::Flushed),
            (10, WorkError::RemoteAccess),
            (12, WorkError::RetriesExceeded),
            (13, WorkError::NoReceiver),
            (4, WorkError::Other(4)),
        ] {
            let failed = ffi::ibv_wc { status, opcode: ffi::ibv_wc_opcode::IBV_WC_RECV, ..found };
            assert_eq!(completion(&failed), WorkCompletion { id: 7, length: 0, status: Err(error) });
        }
    }
}

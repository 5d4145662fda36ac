//! Comparison of the engine's events with those that are due.

use lnet_api::{Errno, Event, EventKind, MdHandle};

use super::node::{Due, Node, OutKind};
use super::{Model, Mutant};

impl Model {
    /// Checks an event of an engine. Its `user_ptr` is the model's id of the MD.
    pub(crate) fn event(&mut self, node: usize, event: &Event) {
        let id = event.user_ptr;
        let Some(md) = self.nodes[node].mds.get_mut(&id) else {
            return self.fail(|| {
                format!("node {node}: an event of MD {id}, which does not exist any more: {event:?}")
            });
        };
        if *md.handle.get_or_insert(event.md) != event.md {
            return self.fail(|| format!("node {node}: an event names another handle of MD {id}: {event:?}"));
        }
        let Some(due) = self.take_due(node, event) else {
            let due: Vec<&Due> = self.nodes[node].due.iter().filter(|due| due.md == id).collect();
            let due = format!("{due:#?}");
            return self.fail(|| format!("node {node}: an event that is not due: {event:?}\ndue: {due}"));
        };
        self.accept(node, event, due);
    }

    fn accept(&mut self, node: usize, event: &Event, due: Due) {
        let mutant = self.mutant;
        let node_ = &mut self.nodes[node];
        let md = node_.md(due.md);
        if let Some((offset, bytes)) = &due.content {
            let start = *offset as usize;
            md.shadow[start..start + bytes.len()].copy_from_slice(bytes);
        }
        md.busy -= u32::from(!due.last);
        let used_up = md.bound && md.auto && md.is_exhausted();
        let unlinked = due.last || md.busy == 0 && (md.dead || used_up);
        let status = match due.status {
            Ok(()) if unlinked && md.aborted && mutant != Some(Mutant::ForgivesAborts) => {
                Err(Errno::ETIMEDOUT)
            }
            status => status,
        };
        self.seen.exhausted += u64::from(unlinked && !due.last && !md.aborted);
        if due.content.is_some() {
            node_.written.push(due.md);
        }
        if unlinked {
            node_.retire(due.md);
            if let Some(gone) = node_.mds.remove(&due.md)
                && gone.leases.is_empty()
            {
                node_.ended.push((due.md, gone.memory));
            }
        }
        if (status, unlinked) != (event.status, event.unlinked) {
            self.fail(|| format!("node {node}: status {status:?}, unlinked {unlinked} expected: {event:?}"));
        }
    }

    /// Removes and returns the expectation that an event fulfils.
    fn take_due(&mut self, node: usize, event: &Event) -> Option<Due> {
        let fits = |due: &Due| due.md == event.user_ptr && same(&due.event, event);
        // Of several equal operations, one with this result is taken.
        let has_status = |due: &Due| due.status == event.status || due.status.is_ok();
        let dues = &self.nodes[node].due;
        let place = dues.iter().position(|due| fits(due) && has_status(due));
        if let Some(place) = place {
            return Some(self.nodes[node].due.remove(place));
        }
        self.ended_in_queue(node, event).or_else(|| self.lost_answer(node, event))
    }

    /// Returns the event of a message that ended while it waited for credits: its MD was unlinked,
    /// its time was over, or its NI stopped.
    fn ended_in_queue(&mut self, node: usize, event: &Event) -> Option<Due> {
        let errno = event.status.err()?;
        let node_ = &self.nodes[node];
        let found = node_.outs.iter().find(|(_, out)| {
            let waits = out.token.is_none() && out.md == Some(event.user_ptr);
            let fits = out.event.as_ref().is_some_and(|expected| same(expected, event));
            let aborted = out.md.is_some_and(|md| node_.mds[&md].aborted);
            let stopping = out.ni.and_then(|ni| node_.ni(ni)).is_some_and(|ni| ni.stopping);
            let reason = match errno {
                Errno::ETIMEDOUT => out.deadline_ns <= node_.now_ns,
                Errno::ECANCELED => aborted,
                Errno::ESHUTDOWN => stopping,
                _ => false,
            };
            waits && fits && reason
        });
        let id = *found?.0;
        let out = self.nodes[node].outs.remove(&id)?;
        debug_assert!(out.kind != OutKind::Ack);
        self.seen.cancelled += 1;
        self.end_out(node, out, Err(errno))
    }

    /// Returns the event of an answer that will not come, because its peer is lost or its NI stops.
    fn lost_answer(&mut self, node: usize, event: &Event) -> Option<Due> {
        let node_ = &mut self.nodes[node];
        let errno = event.status.err()?;
        let fails = |node: &Node, response: &super::node::Response| {
            let ni = response.ni?;
            let lost = node.losing == Some((ni, response.target.nid, errno));
            let stops = errno == Errno::ESHUTDOWN && node.ni(ni)?.stopping;
            (lost || stops).then_some(())
        };
        let found = node_.responses.iter().find(|response| {
            let expected = node_.response_event(response);
            let fits = response.md == event.user_ptr && same(&expected, event);
            fits && response.sent && fails(node_, response).is_some()
        });
        let response = found?.clone();
        node_.take_response(response.id);
        node_.md(response.md).consume();
        node_.md(response.md).busy += 1;
        self.seen.answers_lost += 1;
        let (md, status) = (response.md, Err(errno));
        Some(Due { md, event: node_.response_event(&response), status, content: None, last: false })
    }
}

/// Returns whether two events are equal except for the fields that depend on the MD's state.
fn same(expected: &Event, event: &Event) -> bool {
    let bare = |event: &Event| Event {
        md: MdHandle(0),
        user_ptr: 0,
        status: Ok(()),
        unlinked: false,
        // An UNLINK event has no other fields (lnet-semantics 8).
        ..*event
    };
    match event.kind {
        EventKind::Unlink => expected.kind == EventKind::Unlink,
        _ => bare(expected) == bare(event),
    }
}

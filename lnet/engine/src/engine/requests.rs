//! The start of a PUT or GET of this node.

use lnet_api::{LNetError, Md, MdHandle};

use super::Engine;
use crate::message::{Launched, NewOperation, Path};
use crate::names::{MdLocation, MdName};
use crate::resources::Bound;
use crate::work::DeferredWork;

impl Engine {
    /// Sends a PUT or GET from a bound MD.
    pub(super) fn send(&self, md: MdHandle, request: &NewOperation) -> Result<(), LNetError> {
        self.with(|work| {
            let gone = || LNetError::NoSuch { object: "MD", handle: md.0 };
            let (location, key) = self.common.handles.decode_md(md).ok_or_else(gone)?;
            let MdLocation { bound: true, partition } = location else { return Err(gone()) };
            let named = |bound: &mut Bound| bound.sendable(key).ok_or_else(gone);
            self.begin(partition, request, work, named, false)
        })
    }

    /// Creates an MD and sends a PUT or GET from it. Returns its handle, or `None` if the MD has
    /// ended already.
    pub(super) fn bind_and_send(
        &self,
        md: Md,
        request: &NewOperation,
    ) -> Result<Option<MdHandle>, LNetError> {
        md.check_sent()?;
        self.with(|work| {
            self.begin(self.common.current_partition(), request, work, |bound| bound.make(md), true)?;
            // A failure up to here ends the MD as well.
            self.run(work);
            Ok(work.made.map(|MdName { location, key }| self.common.handles.md(location, key)))
        })
    }

    /// Commits the MD that `choose` returns under the lock of its partition to a PUT or GET: finds
    /// the path, and launches the message if its peer is in the partition in which the path is
    /// searched for, which is the common case. An MD that was created for this call is freed again
    /// on an error.
    ///
    /// This is the only function that takes a net lock under another lock: under that of the MD's
    /// partition. So either the MD is not committed at all, or its message is in flight.
    fn begin(
        &self,
        partition: usize,
        request: &NewOperation,
        work: &mut DeferredWork,
        choose: impl FnOnce(&mut Bound) -> Result<u32, LNetError>,
        is_made: bool,
    ) -> Result<(), LNetError> {
        // A message to this node itself has no peer.
        let home = match request.target.nid.is_loopback() {
            true => self.common.current_partition(),
            false => request.target.nid.cpt_of(self.common.partitions()),
        };
        let mut bound = self.bound.lock(partition);
        let md = choose(&mut bound)?;
        let mut net = self.net.lock(home);
        let (part, shared) = net.split();
        let routed = part.route(shared, request, partition);
        let launch = match routed.and_then(|route| bound.commit(md, request, &route)) {
            Ok(launch) => launch,
            Err(error) => {
                if is_made {
                    bound.unmake(md, work);
                }
                return Err(error);
            }
        };
        work.made = launch.message.md.filter(|_| is_made);
        match launch.path {
            Path::Here => {
                part.count_loopback(request.op.kind(), launch.header.payload_length);
                drop((net, bound));
                self.deliver_here(launch, work);
            }
            Path::Over { partition, .. } if partition == home => match part.launch(shared, launch, work) {
                Some(Launched::Waits { md: Some(md), token }) => bound.remember(md.key, token, work),
                Some(launched) => {
                    drop((net, bound));
                    self.hand_over(launched, work);
                }
                None => {}
            },
            // The NI uses only some of the partitions, and the peer belongs to another one.
            Path::Over { .. } => {
                drop((net, bound));
                self.launch(launch, work);
            }
        }
        Ok(())
    }
}

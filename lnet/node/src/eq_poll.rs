//! Waiting for the events of polled queues.

use std::time::Duration;

use lnet_api::{Clock, Drive, EqHandle, LNet, LNetError, LndError, Polled};

use crate::drive::NodeDrive;

pub(crate) fn eq_poll(
    drive: &NodeDrive,
    eqs: &[EqHandle],
    timeout: Option<Duration>,
) -> Result<Option<Polled>, LNetError> {
    let engine = &drive.engine;
    // What is there already costs neither a list nor a descriptor.
    if let Some(polled) = engine.eq_poll(eqs)? {
        return Ok(Some(polled));
    }
    let deadline_ns = timeout.map(|timeout| {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        drive.now_ns().saturating_add(timeout_ns)
    });
    let outcome = crate::interrupt::with_sleeper(|sleeper| {
        let _watch = engine.eq_watch(eqs, sleeper)?;
        let mut found = Ok(None);
        drive.wait(sleeper, deadline_ns, || {
            found = engine.eq_poll(eqs);
            !matches!(found, Ok(None))
        });
        found
    });
    let no_sleeper = |errno| LndError { what: "make an eventfd to wait for events".to_string(), errno };
    let found = outcome.map_err(no_sleeper)??;
    let drive: &dyn Drive = drive;
    if found.is_none() && drive.has_ended() { Err(LNetError::ShuttingDown) } else { Ok(found) }
}

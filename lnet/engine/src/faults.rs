//! Deliberate losses and delays: rules for arriving messages, after `lctl net_drop_add` and
//! `net_delay_add`.

mod held;
mod rule;
mod table;
mod text;

pub use rule::{DELAY_MAX, FaultAction, FaultRate, FaultRule, FaultRuleError, MessageKinds};
pub use table::{FAULT_RULES_MAX, FaultId, FaultStatistics};
pub(crate) use table::{FaultEffect, FaultRules};

pub(crate) use held::{DelayedMessages, DelayedTable};

//! The rates of `stat`.

use super::Printed;
use super::nodes::target_name;
use crate::command::{StatView, View};
use crate::console::{Rates, TargetReport};

const MIB: f64 = 1_048_576.0;
const MB: f64 = 1e6;

/// A pair of lines: messages or bytes received, and sent.
struct Pair {
    title: &'static str,
    received: fn(&Rates) -> f64,
    sent: fn(&Rates) -> f64,
    /// What a rate is divided by.
    unit: f64,
    /// The unit as it follows a number.
    label: &'static str,
    decimals: usize,
}

pub(super) fn rates(to: &mut Printed, targets: &[TargetReport<Rates>], view: &View) {
    let view = if let View::Stat(view) = view { *view } else { StatView::default() };
    let messages = Pair {
        title: "Rates",
        received: |rates| rates.received,
        sent: |rates| rates.sent,
        unit: 1.0,
        label: "RPC/s",
        decimals: 0,
    };
    let (unit, label) = if view.mbs { (MB, "MB/s  ") } else { (MIB, "MiB/s ") };
    let bytes = Pair {
        title: "Bandwidth",
        received: |rates| rates.bytes_received,
        sent: |rates| rates.bytes_sent,
        unit,
        label,
        decimals: 2,
    };
    for target in targets {
        if view.rate {
            pair(to, target, &messages, view);
        }
        if view.bandwidth {
            pair(to, target, &bytes, view);
        }
        failures(to, target);
    }
}

fn pair(to: &mut Printed, target: &TargetReport<Rates>, pair: &Pair, view: StatView) {
    to.out(format_args!("[LNet {} of {}]", pair.title, target_name(&target.target)));
    let lines = [(view.received, "[R]", pair.received), (view.sent, "[W]", pair.sent)];
    for (_, mark, rate) in lines.into_iter().filter(|(shown, ..)| *shown) {
        let Some(sums) = target.summary(rate) else { continue };
        let columns = [
            (view.average, "Avg", sums.average),
            (view.minimum, "Min", sums.minimum),
            (view.maximum, "Max", sums.maximum),
        ];
        let columns = columns.into_iter().filter(|(shown, ..)| *shown);
        let columns = columns.map(|(_, name, value)| {
            let number = format!("{:.*}", pair.decimals, value / pair.unit);
            format!("{name}: {number:<8} {}", pair.label)
        });
        // The labels of bytes end with the blank that separates the columns.
        let separator = if pair.label.ends_with(' ') { "" } else { " " };
        to.out(format_args!("{mark} {}", columns.collect::<Vec<_>>().join(separator)));
    }
}

fn failures(to: &mut Printed, target: &TargetReport<Rates>) {
    let failures: Vec<_> = target.nodes.iter().filter_map(|node| node.answer.err()).collect();
    for failure in &failures {
        to.note(*failure);
    }
    if !failures.is_empty() {
        to.err(format_args!("Failed to stat on {} nodes", failures.len()));
    }
}

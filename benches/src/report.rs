//! What is printed: an aligned table for people, or one line of JSON per row.

use serde::Serialize;

use crate::anchors;
use crate::cores::Cores;
use crate::measure::{Cpu, Measurement, Ratio};
use crate::meter::CpuTime;
use crate::rows::{Goal, Row};

/// Prints what rows there are: the name, the goal, and what the row is compared with. A second comparison has a line of
/// its own, without a name.
pub(crate) fn list(rows: &[&Row]) {
    let width = name_width(rows);
    for row in rows {
        println!("{:width$}  {:8} {}", row.name, row.goal.to_string(), row.anchor_name);
        if let Some(second) = &row.second {
            println!("{:width$}  {:8} {}", "", second.goal.to_string(), second.name);
        }
    }
}

fn name_width(rows: &[&Row]) -> usize {
    rows.iter().map(|row| row.name.len()).max().unwrap_or(0)
}

/// Prints rows as they are measured.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    name_width: usize,
    flag_ns: f64,
}

/// A row as a line of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    row: &'a str,
    value: f64,
    unit: &'a str,
    anchor: &'a str,
    anchor_value: f64,
    ratio: f64,
    goal: String,
    met: bool,
    rounds: usize,
    spread: [f64; 2],
    congestion: &'a str,
    flag_ns: f64,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    cpu: Option<CpuKeys>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    second: Option<SecondKeys<'a>>,
}

/// The unit is in the name of the keys.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum CpuKeys {
    PerGib { cpu_s_per_gib: f64, anchor_cpu_s_per_gib: f64, cpu_ratio: f64 },
    PerMessage { cpu_us_per_message: f64, anchor_cpu_us_per_message: f64, cpu_ratio: f64 },
}

impl From<Cpu> for CpuKeys {
    fn from(cpu: Cpu) -> CpuKeys {
        let (ours, anchor, cpu_ratio) = (cpu.ours.value(), cpu.anchor.value(), cpu.ratio.median);
        match cpu.ours {
            CpuTime::PerGib(_) => {
                CpuKeys::PerGib { cpu_s_per_gib: ours, anchor_cpu_s_per_gib: anchor, cpu_ratio }
            }
            CpuTime::PerMessage(_) => {
                CpuKeys::PerMessage { cpu_us_per_message: ours, anchor_cpu_us_per_message: anchor, cpu_ratio }
            }
        }
    }
}

#[derive(Debug, Serialize)]
struct SecondKeys<'a> {
    second_anchor: &'a str,
    second_anchor_value: f64,
    second_ratio: f64,
}

impl Report {
    /// Prints the head of the table. `flag_ns` is how long a cache line takes from one core to the other: it tells in which state the
    /// machine is, and figures differ by a factor of two with it.
    pub(crate) fn begin(json: bool, rows: &[&Row], cores: Cores, flag_ns: f64) -> Report {
        let name_width = name_width(rows);
        if !json {
            println!(
                "cores {cores}, a cache line from one to the other {flag_ns:.0} ns; TCP congestion control on both sides: {}",
                anchors::CONGESTION
            );
            println!(
                "{:name_width$}  {:>9} {:>9} {:7} {:>6}  {:13} {:8} {:4} compared with",
                "row", "ours", "anchor", "unit", "ratio", "spread", "goal", "met"
            );
        }
        Report { json, name_width, flag_ns }
    }

    /// Prints a row.
    pub(crate) fn row(&mut self, row: &Row, measured: &Measurement) {
        if self.json { self.line(row, measured) } else { self.table(row, measured) }
    }

    fn line(&self, row: &Row, measured: &Measurement) {
        let line = Line {
            row: row.name,
            value: measured.value,
            unit: row.unit,
            anchor: row.anchor_name,
            anchor_value: measured.anchor_value,
            ratio: measured.ratio.median,
            goal: goals(row, measured),
            met: measured.met(row),
            rounds: measured.rounds,
            spread: [measured.ratio.min, measured.ratio.max],
            congestion: anchors::CONGESTION,
            flag_ns: self.flag_ns,
            cpu: measured.cpu.map(CpuKeys::from),
            second: row.second.as_ref().zip(measured.second).map(|(other, got)| SecondKeys {
                second_anchor: other.name,
                second_anchor_value: got.value,
                second_ratio: got.ratio.median,
            }),
        };
        match serde_json::to_string(&line) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("nlx-bench: {}: {error}", row.name),
        }
    }

    fn table(&self, row: &Row, measured: &Measurement) {
        let Measurement { value, anchor_value, ratio, .. } = *measured;
        self.compare(row.name, [value, anchor_value], row.unit, ratio, row.goal, row.anchor_name);
        if let Some(cpu) = measured.cpu {
            let note = "processor time of both processes";
            let values = [cpu.ours.value(), cpu.anchor.value()];
            self.compare("", values, cpu.ours.unit(), cpu.ratio, cpu.goal(), note);
        }
        if let Some((other, got)) = row.second.as_ref().zip(measured.second) {
            self.compare("", [value, got.value], row.unit, got.ratio, other.goal, other.name);
        }
    }

    fn compare(
        &self,
        name: &str,
        [ours, anchor]: [f64; 2],
        unit: &str,
        ratio: Ratio,
        goal: Goal,
        note: &str,
    ) {
        let width = self.name_width;
        let spread = format!("{:.3}–{:.3}", ratio.min, ratio.max);
        let met = match goal {
            Goal::Open => "",
            _ if goal.is_met(ratio.median) => "yes",
            _ => "no",
        };
        let (ratio, goal) = (ratio.median, goal.to_string());
        println!(
            "{name:width$}  {ours:>9.3} {anchor:>9.3} {unit:7} {ratio:>6.3}  {spread:13} {goal:8} {met:4} {note}"
        );
    }
}

/// Every goal of a row, in words: `>= 0.95, processor time <= 1.1`.
fn goals(row: &Row, measured: &Measurement) -> String {
    let mut text = row.goal.to_string();
    if let Some(goal) = measured.cpu.map(|cpu| cpu.goal()).filter(|&goal| goal != Goal::Open) {
        text += &format!(", processor time {goal}");
    }
    if let Some(other) = &row.second {
        text += &format!(", {} {}", other.name, other.goal);
    }
    text
}

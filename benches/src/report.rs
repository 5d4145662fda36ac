//! Output: an aligned table for people, one line of JSON per row, or a table in Markdown.

use std::fmt::Display;
use std::time::SystemTime;

use serde::Serialize;

use crate::anchors;
use crate::cores::Cores;
use crate::measure::{Cpu, Measurement, Ratio};
use crate::meter::CpuTime;
use crate::rows::{Goal, NEAR_NS, Row};

/// Prints the rows: the name, the goal, and the anchor. A second comparison has a separate line,
/// without a name.
pub(crate) fn list(rows: &[&Row]) {
    let width = name_width(rows);
    for row in rows {
        println!("{:width$}  {:8} {}", row.name, row.goal.to_string(), row.anchor_name);
        if let Some(goal) = row.near {
            println!(
                "{:width$}  {:8} the same, where a cache line takes less than {NEAR_NS} ns",
                "",
                goal.to_string()
            );
        }
        if let Some(second) = &row.second {
            println!("{:width$}  {:8} {}", "", second.goal.to_string(), second.name);
        }
    }
}

fn name_width(rows: &[&Row]) -> usize {
    rows.iter().map(|row| row.name.len()).max().unwrap_or(0)
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
    Markdown,
}

/// A printer of rows as they are measured.
#[derive(Debug)]
pub(crate) struct Report {
    format: Format,
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
    /// Prints the head of the table. `flag_ns` is the time of a cache line from one core to the
    /// other: it shows the state of the machine, with which figures differ by a factor of two.
    pub(crate) fn begin(format: Format, rows: &[&Row], cores: Cores, rounds: usize, flag_ns: f64) -> Report {
        let name_width = name_width(rows);
        match format {
            Format::Table => {
                println!(
                    "cores {cores}, a cache line from one to the other {flag_ns:.0} ns; TCP congestion control on both sides: {}",
                    anchors::CONGESTION
                );
                println!(
                    "{:name_width$}  {:>9} {:>9} {:7} {:>6}  {:13} {:8} {:4} compared with",
                    "row", "ours", "anchor", "unit", "ratio", "spread", "goal", "met"
                );
            }
            Format::Json => {}
            Format::Markdown => {
                println!(
                    "{rounds} rounds of each row, on cores {cores}. A cache line takes {flag_ns:.0} ns from one to the other. TCP congestion control on both sides: {}.\n",
                    anchors::CONGESTION
                );
                println!("| row | nlx | anchor | ratio | spread | goal | met | date |");
                println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
            }
        }
        Report { format, name_width, flag_ns }
    }

    /// Prints a row.
    pub(crate) fn row(&mut self, row: &Row, measured: &Measurement) {
        match self.format {
            Format::Json => self.line(row, measured),
            Format::Table | Format::Markdown => self.comparisons(row, measured),
        }
    }

    /// Prints a row that this machine cannot measure; only the table in Markdown has a line for it.
    pub(crate) fn not_measured(&self, row: &Row, reason: &impl Display) {
        if self.format == Format::Markdown {
            println!(
                "{}",
                cells(&[
                    &ticked(row.name),
                    &"–",
                    &row.anchor_name,
                    &"–",
                    &"–",
                    &symbol(row.goal),
                    &format!("not measured: {reason}"),
                    &today(),
                ])
            );
        }
    }

    fn line(&self, row: &Row, measured: &Measurement) {
        let line = Line {
            row: row.name,
            value: measured.value,
            unit: row.unit,
            anchor: row.anchor_name,
            anchor_value: measured.anchor_value,
            ratio: measured.ratio.median,
            goal: self.goals(row, measured),
            met: measured.met(row, self.flag_ns),
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

    fn comparisons(&self, row: &Row, measured: &Measurement) {
        let Measurement { value, anchor_value, ratio, .. } = *measured;
        let goal = row.goal_at(self.flag_ns);
        self.compare(row.name, [value, anchor_value], row.unit, ratio, goal, row.anchor_name);
        if let Some(cpu) = measured.cpu {
            let note = "processor time of both processes";
            let values = [cpu.ours.value(), cpu.anchor.value()];
            self.compare(SAME, values, cpu.ours.unit(), cpu.ratio, cpu.goal(), note);
        }
        if let Some((other, got)) = row.second.as_ref().zip(measured.second) {
            self.compare(SAME, [value, got.value], row.unit, got.ratio, other.goal, other.name);
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
        let met = match goal {
            Goal::Open => "",
            _ if goal.is_met(ratio.median) => "yes",
            _ => "no",
        };
        if self.format == Format::Markdown {
            let name = if name == SAME { "the same".to_string() } else { ticked(name) };
            let [ours, anchor] = [ours, anchor].map(significant);
            let spread = format!("{}–{}", significant(ratio.min), significant(ratio.max));
            // "1" is the unit of a plain number.
            let ours = if unit == "1" { ours } else { format!("{ours} {unit}") };
            let anchor = format!("{note}: {anchor}");
            let ratio = significant(ratio.median);
            println!("{}", cells(&[&name, &ours, &anchor, &ratio, &spread, &symbol(goal), &met, &today()]));
            return;
        }
        let width = self.name_width;
        let spread = format!("{:.3}–{:.3}", ratio.min, ratio.max);
        let (ratio, goal) = (ratio.median, goal.to_string());
        println!(
            "{name:width$}  {ours:>9.3} {anchor:>9.3} {unit:7} {ratio:>6.3}  {spread:13} {goal:8} {met:4} {note}"
        );
    }

    /// Returns every goal of a row as text: `>= 0.95, processor time <= 1.1`.
    fn goals(&self, row: &Row, measured: &Measurement) -> String {
        let mut text = row.goal_at(self.flag_ns).to_string();
        if let Some(goal) = measured.cpu.map(|cpu| cpu.goal()).filter(|&goal| goal != Goal::Open) {
            text += &format!(", processor time {goal}");
        }
        if let Some(other) = &row.second {
            text += &format!(", {} {}", other.name, other.goal);
        }
        text
    }
}

/// The name of a further comparison of a row.
const SAME: &str = "";

/// Returns a line of a table in Markdown.
fn cells(cells: &[&dyn Display]) -> String {
    let cell = |text: String| format!(" {} |", text.replace('|', "\\|"));
    let line = cells.iter().map(|&text| cell(text.to_string()));
    format!("|{}", line.collect::<String>())
}

/// Returns the date of the measurement, in UTC.
fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_string()
}

fn ticked(name: &str) -> String {
    format!("`{name}`")
}

fn symbol(goal: Goal) -> String {
    goal.to_string().replace(">=", "≥").replace("<=", "≤").replace("none", "–")
}

/// Formats three significant digits; digits before the point are all printed.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    format!("{value:.*}", usize::try_from(3 - before).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits() {
        let texts = [0.0, 0.012345, 0.98765, 1.0, 9.876, 47.34, 512.6, 39_830.4].map(significant);
        assert_eq!(texts, ["0", "0.0123", "0.988", "1.00", "9.88", "47.3", "513", "39830"]);
    }

    #[test]
    fn a_cell_ends_no_column() {
        assert_eq!(cells(&[&"a|b", &1]), "| a\\|b | 1 |");
    }

    #[test]
    fn goals_have_the_signs_of_the_document() {
        let goals = [Goal::AtLeast(0.9), Goal::AtMost(1.1), Goal::Open].map(symbol);
        assert_eq!(goals, ["≥ 0.9", "≤ 1.1", "–"]);
    }
}

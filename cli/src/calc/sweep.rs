//! A sweep: a range of values of one tunable.

use std::fmt;

use lnet_o2iblnd::sizes::{MdPages, SizeTunable};
use serde_json::{Value, json};

use super::barriers;
use super::input::{SideInput, wrong};
use super::result::Calculation;
use crate::failure::Failure;
use crate::tables::numbers;
use crate::units::{grouped, in_bytes};

/// Largest number of values of a sweep: no picture can show more.
pub(super) const VALUES_MAX: usize = 4096;

/// Number of lines of the picture in a terminal.
const LINES: usize = 24;

/// Width of the longest bar of the picture, in characters.
const BAR: usize = 32;

/// The results for each value.
pub(super) struct Sweep {
    /// The tunable as requested: `a.peer_credits`, or of both sides `peer_credits`.
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) peers: u32,
    /// The sides' releases.
    pub(super) releases: [&'static str; 2],
    /// The reasons that prevent `a` from connecting, with any value.
    pub(super) barred: Vec<String>,
    pub(super) points: Vec<Point>,
}

/// The results for one value. Without a connection there are no numbers.
pub(super) struct Point {
    pub(super) value: u32,
    pub(super) depth: Option<u16>,
    /// Send work requests of a connection, of each side.
    pub(super) sends: Option<[u32; 2]>,
    /// Largest number of completion queue entries of a connection, of each side.
    pub(super) completions: Option<[u32; 2]>,
    /// Bytes of each side's NI.
    pub(super) bytes: Option<[u64; 2]>,
    /// The reason why there is no connection.
    pub(super) error: Option<String>,
}

impl Sweep {
    pub(super) fn of(
        text: &str,
        peers: &[SideInput; 2],
        count: u32,
        buffer: MdPages,
    ) -> Result<Sweep, Failure> {
        let form = || {
            wrong(format!("--sweep '{text}': it must be NAME=FROM..TO[:STEP]"))
                .hint("for instance peer_credits=8..256, or a.peer_credits=8..256:8")
        };
        let (name, range) = text.split_once('=').ok_or_else(form)?;
        let (range, step) = match range.split_once(':') {
            Some((range, step)) => {
                (range, step.parse::<usize>().ok().filter(|step| *step > 0).ok_or_else(form)?)
            }
            None => (range, 1),
        };
        let (from, to) = range.split_once("..").ok_or_else(form)?;
        let (from, to) = (from.parse::<u32>().map_err(|_| form())?, to.parse::<u32>().map_err(|_| form())?);
        let (sides, tunable): (&[usize], &str) = match name.split_once('.') {
            Some(("a", tunable)) => (&[0], tunable),
            Some(("b", tunable)) => (&[1], tunable),
            Some(_) => return Err(form()),
            None => (&[0, 1], name),
        };
        let tunable = SizeTunable::named(tunable).map_err(|error| wrong(error.to_string()))?;
        [from, to]
            .iter()
            .try_for_each(|value| tunable.check(*value))
            .map_err(|error| wrong(error.to_string()))?;
        let values: Vec<u32> = (from..=to).step_by(step).take(VALUES_MAX + 1).collect();
        if values.is_empty() || values.len() > VALUES_MAX {
            let problem = if values.is_empty() { "no value at all" } else { "more values than that" };
            return Err(wrong(format!(
                "--sweep '{text}': from 1 to {VALUES_MAX} values are computed; these are {problem}"
            )));
        }
        let point = |value: u32| {
            let mut peers = peers.clone();
            for side in sides {
                peers[*side].set_to(tunable.name, value).map_err(wrong)?;
            }
            Ok(Point::of(value, Calculation::of(peers, count, buffer)))
        };
        Ok(Sweep {
            name: name.to_string(),
            unit: tunable.unit,
            peers: count,
            barred: barriers::between(peers.each_ref())
                .into_iter()
                .filter(|barrier| barrier.bars(0))
                .map(|barrier| barrier.text)
                .collect(),
            releases: peers.each_ref().map(|peer| peer.side.release.name()),
            points: values.into_iter().map(point).collect::<Result<_, Failure>>()?,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let point = |point: &Point| {
            json!({
                "value": point.value, "depth": point.depth, "send_work_requests": point.sends, "completions": point.completions, "bytes": point.bytes,
                "error": point.error,
            })
        };
        let points: Vec<Value> = self.points.iter().map(point).collect();
        json!({ "tunable": self.name, "unit": self.unit, "peers": self.peers, "sides": self.releases, "barred": self.barred, "points": points })
    }
}

impl Point {
    fn of(value: u32, all: Result<Calculation, lnet_o2iblnd::sizes::SizesError>) -> Point {
        let nothing = |error: String| Point {
            value,
            depth: None,
            sends: None,
            completions: None,
            bytes: None,
            error: Some(error),
        };
        let all = match all {
            Ok(all) => all,
            Err(error) => return nothing(error.to_string()),
        };
        match &all.directions[0].outcome {
            Err(error) => nothing(error.to_string()),
            Ok(agreed) => Point {
                value,
                depth: Some(agreed.depth),
                sends: Some([agreed.active.sends, agreed.passive.sends]),
                completions: Some([agreed.active.completions, agreed.passive.completions]),
                bytes: all.memory(0, 0).zip(all.memory(1, 0)).map(|(a, b)| [a, b]),
                error: None,
            },
        }
    }
}

impl fmt::Display for Sweep {
    /// Prints a line for some of the values, with a bar for the memory of `a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most =
            self.points.iter().filter_map(|point| point.bytes).map(|[a, _]| a).max().unwrap_or(1).max(1);
        let every = self.points.len().div_ceil(LINES).max(1);
        let [a, b] = self.releases;
        let header = [
            self.name.clone(),
            "depth".into(),
            format!("sends, a ({a})"),
            format!("sends, b ({b})"),
            "bytes, b".into(),
            "bytes, a".into(),
        ];
        let mut table = numbers(header, 0);
        let last = self.points.len() - 1;
        let shown = self.points.iter().enumerate().filter(|(at, _)| at % every == 0 || *at == last);
        let rows = shown.map(|(_, point)| match (point.depth, point.sends, point.bytes) {
            (Some(depth), Some(sends), Some(bytes)) => [
                point.value.to_string(),
                depth.to_string(),
                grouped(sends[0].into()),
                grouped(sends[1].into()),
                in_bytes(bytes[1]),
                format!("{} {:<BAR$}", in_bytes(bytes[0]), bar(bytes[0], most)),
            ],
            _ => {
                [point.value.to_string(), "none".into(), "-".into(), "-".into(), "-".into(), " ".repeat(BAR)]
            }
        });
        for row in rows {
            table.add_row(row);
        }
        write!(
            f,
            "{table}\nbytes: of an NI, what connections have and transmit descriptors; peers: {}",
            self.peers
        )?;
        let error = self.points.iter().find_map(|point| point.error.as_ref());
        self.barred.iter().chain(error).try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// Returns a bar in steps of an eighth of a letter.
fn bar(value: u64, most: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (u128::from(value) * 8 * BAR as u128 / u128::from(most)) as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

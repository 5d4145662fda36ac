//! A sweep as a self-contained page: a picture for each quantity, with one line for each side.

use std::fs;
use std::path::Path;

use super::sweep::{Point, Sweep};
use crate::failure::{Context, Failure};
use crate::svg::{Anchor, Frame, document, escaped, section};
use crate::units::{counted, in_bytes, in_thousands};

/// The frame of all pictures. There is room for units above the vertical axis and below the ticks.
const FRAME: Frame =
    Frame { width: 560.0, height: 270.0, left: 64.0, right: 546.0, top: 34.0, bottom: 226.0 };

/// Approximate number of steps of an axis.
const STEPS: u32 = 5;

/// The lines of both sides, which differ in more than their colour.
const MORE_STYLE: &str = "
.side-a, .side-b { fill: none; stroke-width: 2; stroke-linejoin: round; }
.side-a { stroke: var(--latency); } .side-b { stroke: var(--mark); stroke-dasharray: 6 4; }
.legend { display: flex; gap: 18px; margin: 0; color: var(--muted); }
.legend svg { display: inline-block; width: 34px; height: 10px; vertical-align: middle; margin-right: 6px; }
.unit { fill: var(--muted); font-size: 12px; }
";

/// Writes the page.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(sweep: &Sweep, path: &Path) -> Result<(), Failure> {
    fs::write(path, page(sweep)).context(&format!("cannot write the page to {}", path.display()))
}

pub(super) fn page(sweep: &Sweep) -> String {
    let [a, b] = sweep.releases;
    let title = format!("What {} costs", sweep.name);
    let quantities: [Quantity<'_>; 4] = [
        ("Queue depth agreed on", "messages", &|point| point.depth.map(|depth| [f64::from(depth); 2]), true),
        (
            "Send work requests per connection",
            "work requests",
            &|point| point.sends.map(|sends| sends.map(f64::from)),
            false,
        ),
        (
            "Completion queue entries per connection",
            "entries",
            &|point| point.completions.map(|completions| completions.map(f64::from)),
            false,
        ),
        (
            "Memory per NI: its connections, and transmit descriptors",
            "bytes",
            &|point| point.bytes.map(|bytes| bytes.map(|bytes| bytes as f64)),
            false,
        ),
    ];
    let pictures: String = quantities
        .iter()
        .map(|quantity| section(quantity.0, "", &format!("<figure>{}</figure>", picture(sweep, quantity))))
        .collect();
    let key = |class: &str| {
        format!(r#"<svg viewBox="0 0 34 10" aria-hidden="true"><path class="{class}" d="M0 5L34 5"/></svg>"#)
    };
    let peers = counted(sweep.peers, "peer");
    let body = format!(
        "<header>\n<p>nlx o2iblnd-calc</p>\n<h1>{}</h1>\n<p>{peers}; a opens the connections</p>\n</header>\n\
         <p class=\"legend\"><span>{}a ({a})</span><span>{}b ({b})</span></p>\n<div class=\"pair\">\n{pictures}</div>\n{}",
        escaped(&title),
        key("side-a"),
        key("side-b"),
        failures(sweep),
    );
    document(title, MORE_STYLE, "sweep", &body)
}

/// Title, unit, value of each side, and whether both have the same.
type Quantity<'a> = (&'a str, &'a str, &'a dyn Fn(&Point) -> Option<[f64; 2]>, bool);

fn picture(sweep: &Sweep, (title, unit, values, same): &Quantity<'_>) -> String {
    let points = &sweep.points;
    let all = || points.iter().filter_map(|point| Some((f64::from(point.value), values(point)?)));
    let most = all().flat_map(|(_, values)| values).fold(0.0, f64::max);
    let upright = FRAME.upright(most, STEPS);
    let across = FRAME.across(points.iter().map(|point| f64::from(point.value)).fold(0.0, f64::max));
    let words = |value: f64| if *unit == "bytes" { in_bytes(value as u64) } else { in_thousands(value) };
    let label = format!("{title}, against {}", sweep.name);
    let mut svg = FRAME.picture(label, &upright.labels(STEPS, words), &across.labels(STEPS, in_thousands));
    svg.text("unit", Anchor::Start, (4.0, 16.0), unit);
    svg.text(
        "unit",
        Anchor::End,
        (FRAME.right, FRAME.height - 8.0),
        format_args!("{}, {}", sweep.name, sweep.unit),
    );
    let sides: &[(usize, &str)] = if *same { &[(0, "side-a")] } else { &[(0, "side-a"), (1, "side-b")] };
    for (side, class) in sides {
        // A line is interrupted where there is no connection.
        for run in points.split(|point| values(point).is_none()).filter(|run| !run.is_empty()) {
            let places = run.iter().filter_map(|point| {
                Some((across.position(f64::from(point.value)), upright.position(values(point)?[*side])))
            });
            svg.path(class, places);
        }
    }
    svg.end()
}

fn failures(sweep: &Sweep) -> String {
    let errors = || sweep.points.iter().filter_map(|point| point.error.as_ref());
    let none = errors()
        .next()
        .map(|first| format!("values without a connection: {}. The first: {first}", errors().count()));
    let failures = sweep.barred.iter().chain(&none);
    failures.map(|text| format!("<section><p class=\"wrong\">{}</p></section>\n", escaped(text))).collect()
}

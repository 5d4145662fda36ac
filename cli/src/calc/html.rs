//! A sweep as one self-contained page: a picture for each quantity, one line for each side.

use std::fs;
use std::path::Path;

use super::sweep::{Point, Sweep};
use crate::failure::{Context, Failure};
use crate::svg::{Anchor, Linear, STYLE, Svg, escaped, in_thousands};
use crate::units::{counted, in_bytes};

/// The whole picture, and where its axes end.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = HEIGHT - 44.0;

/// About as many steps as an axis has.
const STEPS: u32 = 5;

/// The lines of both sides, told apart by more than their colour.
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
    let pictures: String = quantities.iter().map(|quantity| section(sweep, quantity)).collect();
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
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>\n{STYLE}{MORE_STYLE}</style>\n</head>\n\
         <body class=\"sweep\">\n{body}</body>\n</html>\n",
        escaped(title)
    )
}

/// Title, unit, value of each side, and whether both have the same.
type Quantity<'a> = (&'a str, &'a str, &'a dyn Fn(&Point) -> Option<[f64; 2]>, bool);

fn section(sweep: &Sweep, quantity: &Quantity<'_>) -> String {
    let (title, ..) = quantity;
    format!(
        "<section><div class=\"head\"><h2>{}</h2></div><figure>{}</figure></section>\n",
        escaped(title),
        picture(sweep, quantity)
    )
}

fn picture(sweep: &Sweep, (title, unit, values, same): &Quantity<'_>) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, format_args!("{title}, against {}", sweep.name));
    let points = &sweep.points;
    let all = || points.iter().filter_map(|point| Some((f64::from(point.value), values(point)?)));
    let most = all().flat_map(|(_, values)| values).fold(0.0, f64::max);
    let upright = Linear::rounded(most, STEPS, BOTTOM, TOP);
    let across =
        Linear::exact(points.iter().map(|point| f64::from(point.value)).fold(0.0, f64::max), LEFT, RIGHT);
    for value in upright.ticks(STEPS) {
        let y = upright.place(value);
        svg.line("grid", (LEFT, y), (RIGHT, y));
        let words = if *unit == "bytes" { in_bytes(value as u64) } else { in_thousands(value) };
        svg.text("tick", Anchor::End, (LEFT - 7.0, y + 3.5), words);
    }
    for value in across.ticks(STEPS) {
        let x = across.place(value);
        svg.line("axis", (x, BOTTOM), (x, BOTTOM + 4.0));
        svg.text("tick", Anchor::Middle, (x, BOTTOM + 16.0), in_thousands(value));
    }
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    svg.text("unit", Anchor::Start, (4.0, 16.0), unit);
    svg.text("unit", Anchor::End, (RIGHT, HEIGHT - 8.0), format_args!("{}, {}", sweep.name, sweep.unit));
    let sides: &[(usize, &str)] = if *same { &[(0, "side-a")] } else { &[(0, "side-a"), (1, "side-b")] };
    for (side, class) in sides {
        // A line ends where there is no connection.
        for run in points.split(|point| values(point).is_none()).filter(|run| !run.is_empty()) {
            let places = run.iter().filter_map(|point| {
                Some((across.place(f64::from(point.value)), upright.place(values(point)?[*side])))
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
    let told = sweep.barred.iter().chain(&none);
    told.map(|told| format!("<section><p class=\"wrong\">{}</p></section>\n", escaped(told))).collect()
}

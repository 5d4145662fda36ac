//! The frame that both pictures of a phase have, so that they stand side by side in line.

use crate::svg::{Anchor, Linear, Svg};

/// The whole picture.
pub(super) const WIDTH: f64 = 560.0;
pub(super) const HEIGHT: f64 = 244.0;

/// Where the axes end.
pub(super) const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = WIDTH - 12.0;
pub(super) const TOP: f64 = 56.0;
pub(super) const BOTTOM: f64 = HEIGHT - 22.0;

/// Half of what the words of a tick take.
const HALF: f64 = 20.0;

/// About as many steps as the upright axis has.
pub(super) const STEPS: u32 = 4;

/// What an axis says: the place of a tick, and its words.
pub(super) type Tick = (f64, String);

/// Lines across, their values on the left, and the axis below.
pub(super) fn frame(svg: &mut Svg, upright: &[Tick], across: &[Tick]) {
    for (y, words) in upright {
        svg.line("grid", (LEFT, *y), (RIGHT, *y));
        svg.text("tick", Anchor::End, (LEFT - 7.0, y + 3.5), words);
    }
    for (x, words) in across {
        svg.line("axis", (*x, BOTTOM), (*x, BOTTOM + 4.0));
        // At the edge there is room on one side only.
        let (anchor, x) = if *x > RIGHT - HALF { (Anchor::End, RIGHT) } else { (Anchor::Middle, *x) };
        svg.text("tick", anchor, (x, BOTTOM + 16.0), words);
    }
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
}

/// The upright axis from 0 to at least this.
pub(super) fn upright(max: f64) -> Linear {
    Linear::rounded(max, STEPS, BOTTOM, TOP)
}

/// A picture without anything to see, and why.
pub(super) fn nothing(label: &str, why: &str) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT, label);
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    svg.text("note", Anchor::Middle, ((LEFT + RIGHT) / 2.0, (TOP + BOTTOM) / 2.0), why);
    svg.end()
}

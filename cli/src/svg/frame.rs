//! The frame of a picture, so that pictures stand side by side in line.

use std::fmt::Display;

use super::{Anchor, Linear, Svg, Tick};

/// Half of what the words of a tick take.
const HALF: f64 = 20.0;

/// How large a picture is, and where its axes end.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Frame {
    /// The upright axis, from 0 to a round number of at least `max`, in about so many steps.
    pub(crate) fn upright(&self, max: f64, steps: u32) -> Linear {
        Linear::rounded(max, steps, self.bottom, self.top)
    }

    /// The axis below, from 0 to exactly `end`.
    pub(crate) fn across(&self, end: f64) -> Linear {
        Linear::exact(end, self.left, self.right)
    }

    /// A picture with lines across, their values on the left, and the axis below. The label says in words what it shows.
    pub(crate) fn picture(&self, label: impl Display, upright: &[Tick], across: &[Tick]) -> Svg {
        let Frame { left, right, bottom, .. } = *self;
        let mut svg = Svg::new(self.width, self.height, label);
        for (y, words) in upright {
            svg.line("grid", (left, *y), (right, *y));
            svg.text("tick", Anchor::End, (left - 7.0, y + 3.5), words);
        }
        for (x, words) in across {
            svg.line("axis", (*x, bottom), (*x, bottom + 4.0));
            // At the edge there is room on one side only.
            let (anchor, x) = if *x > right - HALF { (Anchor::End, right) } else { (Anchor::Middle, *x) };
            svg.text("tick", anchor, (x, bottom + 16.0), words);
        }
        svg.line("axis", (left, bottom), (right, bottom));
        svg
    }

    /// A picture without anything to see, and why.
    pub(crate) fn nothing(&self, label: impl Display, why: &str) -> String {
        let mut svg = self.picture(label, &[], &[]);
        let middle = ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0);
        svg.text("note", Anchor::Middle, middle, why);
        svg.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_at_the_edge_stay_in_the_picture() {
        let frame = Frame { width: 100.0, height: 50.0, left: 20.0, right: 90.0, top: 5.0, bottom: 40.0 };
        let ticks = [(50.0, "middle".to_string()), (89.0, "edge".to_string())];
        let picture = frame.picture("label", &[], &ticks).end();
        assert!(picture.contains(r#"text-anchor="middle" x="50.0" y="56.0">middle<"#), "{picture}");
        assert!(picture.contains(r#"text-anchor="end" x="90.0" y="56.0">edge<"#), "{picture}");
    }
}

//! The frame of a picture, which aligns adjacent pictures.

use std::fmt::Display;

use super::{Anchor, Linear, Svg, Tick};

/// Half of the width of a tick's text.
const HALF: f64 = 20.0;

/// The size of a picture and of its axes.
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
    /// Returns the vertical axis, from 0 to a round number of at least `max`, in about `steps`
    /// steps.
    pub(crate) fn upright(&self, max: f64, steps: u32) -> Linear {
        Linear::rounded(max, steps, self.bottom, self.top)
    }

    /// Returns the horizontal axis, from 0 to exactly `end`.
    pub(crate) fn across(&self, end: f64) -> Linear {
        Linear::exact(end, self.left, self.right)
    }

    /// Starts a picture with horizontal lines, their values on the left, and the axis below. The
    /// label describes it in words.
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

    /// Returns a picture without data, with the reason as its text.
    pub(crate) fn nothing(&self, label: impl Display, reason: &str) -> String {
        let mut svg = self.picture(label, &[], &[]);
        let middle = ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0);
        svg.text("note", Anchor::Middle, middle, reason);
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

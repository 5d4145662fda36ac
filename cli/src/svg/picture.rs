//! A writer of pictures.

use std::fmt::{Display, Write};

use super::escaped;

/// A picture that is being written. Positions are in units of the picture; the page's classes
/// define the style.
pub(crate) struct Svg {
    body: String,
}

/// The end of a text that is at its position.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// Starts a picture of this size; the label describes it in words.
    pub(crate) fn new(width: f64, height: f64, label: impl Display) -> Svg {
        let label = escaped(label);
        let body = format!(r#"<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">"#);
        Svg { body }
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// Adds a rectangle with a tooltip.
    pub(crate) fn bar(&mut self, class: &str, at: (f64, f64), size: (f64, f64), more: impl Display) {
        let ((x, y), (width, height), more) = (at, size, escaped(more));
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"><title>{more}</title></rect>"#
        ));
    }

    /// Adds a line through these points.
    pub(crate) fn path(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut data = String::new();
        for (x, y) in points {
            let command = if data.is_empty() { 'M' } else { 'L' };
            // Writing to a String cannot fail.
            let _ = write!(data, "{command}{x:.1} {y:.1}");
        }
        self.push(format_args!(r#"<path class="{class}" d="{data}"/>"#));
    }

    pub(crate) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: impl Display) {
        let text = escaped(text);
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            r#"<text class="{class}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#
        ));
    }

    /// Returns the complete picture.
    pub(crate) fn end(mut self) -> String {
        self.body.push_str("</svg>");
        self.body
    }

    fn push(&mut self, element: impl Display) {
        let _ = write!(self.body, "{element}");
    }
}

//! JSON output only: this crate reads no JSON, and needs no library for it.

use std::fmt::{Display, Write};

use lnet_nid::is_printable;

/// Builds a JSON object: the members that programs add to the status
/// ([`Node::add_status`](crate::Node::add_status)).
///
/// ```
/// use lnet_node::{JsonObject, quoted};
///
/// let text = JsonObject::new().value("all", 2).text("name", "x").list("names", [quoted("y")].into_iter()).end();
/// assert_eq!(text, r#"{"all":2,"name":"x","names":["y"]}"#);
/// ```
#[derive(Debug, Default)]
pub struct JsonObject {
    text: String,
}

impl JsonObject {
    /// Creates an object without members.
    #[must_use]
    pub fn new() -> JsonObject {
        JsonObject::default()
    }

    /// Adds a number, or any other value whose output is JSON.
    #[must_use]
    pub fn value(mut self, name: &str, value: impl Display) -> JsonObject {
        let comma = if self.text.is_empty() { "{" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{comma}{}:{value}", quoted(name));
        self
    }

    /// Adds a number, or `null`.
    #[must_use]
    pub fn maybe(self, name: &str, value: Option<impl Display>) -> JsonObject {
        match value {
            Some(value) => self.value(name, value),
            None => self.value(name, "null"),
        }
    }

    /// Adds a string.
    #[must_use]
    pub fn text(self, name: &str, text: impl Display) -> JsonObject {
        self.value(name, quoted(&text.to_string()))
    }

    /// Adds a list of values that are already JSON.
    #[must_use]
    pub fn list(self, name: &str, values: impl Iterator<Item = String>) -> JsonObject {
        self.value(name, format_args!("[{}]", values.collect::<Vec<_>>().join(",")))
    }

    /// Returns the complete object.
    #[must_use]
    pub fn end(mut self) -> String {
        self.text.push_str(if self.text.is_empty() { "{}" } else { "}" });
        self.text
    }
}

/// Returns the JSON escape of a character: `\u009b`, in two parts above U+FFFF.
fn json_escape(letter: char) -> String {
    letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

/// Escapes JSON in the way of [`quoted`]: characters that occur only within strings are escaped,
/// and white space becomes a blank.
///
/// ```
/// assert_eq!(lnet_node::escaped("{\"a\":\r\"\u{9b}\"}"), r#"{"a": "\u009b"}"#);
/// ```
#[must_use]
pub fn escaped(json: &str) -> String {
    let mut all = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            // These characters occur only outside of strings: within strings they would already be
            // escaped.
            '\t' | '\n' | '\r' => all.push(' '),
            letter if is_printable(letter) => all.push(letter),
            letter => all.push_str(&json_escape(letter)),
        }
    }
    all
}

/// Returns a JSON string in quotes. Non-printable characters are escaped too
/// ([`lnet_nid::is_printable`]).
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut all = String::with_capacity(text.len() + 2);
    all.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => all.extend(['\\', letter]),
            letter if is_printable(letter) => all.push(letter),
            letter => all.push_str(&json_escape(letter)),
        }
    }
    all.push('"');
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_whatever_stands_in_them() {
        assert_eq!(quoted("a\"b\\c\n\u{1b}é"), r#""a\"b\\c\u000a\u001bé""#);
        assert_eq!(quoted("\u{7f}\u{9b}\u{202e}\u{e0001}"), r#""\u007f\u009b\u202e\udb40\udc01""#);
    }

    #[test]
    fn members_stand_in_their_order() {
        let inner = JsonObject::new().maybe("known", Some(1)).maybe("unknown", None::<u64>).end();
        let all =
            JsonObject::new().value("inner", inner).list("list", ["1", "2"].map(String::from).into_iter());
        assert_eq!(
            all.text("text", "x").end(),
            r#"{"inner":{"known":1,"unknown":null},"list":[1,2],"text":"x"}"#
        );
        assert_eq!(JsonObject::new().end(), "{}");
    }
}

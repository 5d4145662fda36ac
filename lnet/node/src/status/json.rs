//! Just enough to write JSON: this crate reads none, and needs no library for it.

use std::fmt::{Display, Write};

/// An object that is being written.
pub(super) struct Object {
    text: String,
}

impl Object {
    pub(super) fn new() -> Object {
        Object { text: String::from("{") }
    }

    /// A number, or anything else that is JSON as it prints.
    pub(super) fn value(mut self, name: &str, value: impl Display) -> Object {
        let comma = if self.text.len() > 1 { "," } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{comma}{}:{value}", quoted(name));
        self
    }

    /// A number that may not be known.
    pub(super) fn maybe(self, name: &str, value: Option<impl Display>) -> Object {
        match value {
            Some(value) => self.value(name, value),
            None => self.value(name, "null"),
        }
    }

    pub(super) fn text(self, name: &str, text: impl Display) -> Object {
        self.value(name, quoted(&text.to_string()))
    }

    /// Values that are JSON already.
    pub(super) fn list(self, name: &str, values: impl Iterator<Item = String>) -> Object {
        self.value(name, format_args!("[{}]", values.collect::<Vec<_>>().join(",")))
    }

    /// The whole of it.
    pub(super) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut all = String::with_capacity(text.len() + 2);
    all.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => all.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(all, "\\u{:04x}", u32::from(letter));
            }
            letter => all.push(letter),
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
    }

    #[test]
    fn members_stand_in_their_order() {
        let inner = Object::new().maybe("known", Some(1)).maybe("unknown", None::<u64>).end();
        let all = Object::new().value("inner", inner).list("list", ["1", "2"].map(String::from).into_iter());
        assert_eq!(
            all.text("text", "x").end(),
            r#"{"inner":{"known":1,"unknown":null},"list":[1,2],"text":"x"}"#
        );
        assert_eq!(Object::new().end(), "{}");
    }
}

//! The parts that all pages share: style, and text escaped for a browser.

use std::fmt::Display;

/// The style of pages, light and dark, for phones and paper.
const STYLE: &str = include_str!("style.css");

/// Returns a page that loads nothing; `style` has the rules of this page alone.
pub(crate) fn document(title: impl Display, style: &str, class: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n\
         <body class=\"{class}\">\n{body}</body>\n</html>\n"
    )
}

/// Returns a section with its title and a text beside it.
pub(crate) fn section(title: &str, words: &str, body: &str) -> String {
    let (title, words) = (escaped(title), escaped(words));
    let words = if words.is_empty() { words } else { format!("<p>{words}</p>") };
    format!("<section>\n<div class=\"head\"><h2>{title}</h2>{words}</div>\n{body}</section>\n")
}

/// Escapes text for an element and for an attribute in double quotes. Characters that XML forbids
/// are left out.
pub(crate) fn escaped(value: impl Display) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() && !letter.is_whitespace() => {}
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_text_or_an_attribute() {
        let hostile = "<script>\"'&\u{1b}\u{0}</script>";
        assert_eq!(escaped(hostile), "&lt;script&gt;&quot;&#39;&amp;&lt;/script&gt;");
    }
}

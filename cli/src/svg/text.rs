//! Values as text that a browser takes for nothing else.

use std::fmt::Display;

/// Escaped for an element's text and for an attribute in double quotes. What XML has no place for is left out.
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

/// A time in microseconds, in the unit and with the digits that people would use.
pub(crate) fn in_time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} µs", three_digits(us)),
        us if us < 1e6 => format!("{} ms", three_digits(us / 1e3)),
        us => format!("{} s", three_digits(us / 1e6)),
    }
}

/// A rate, with a prefix where it is large.
pub(crate) fn in_thousands(value: f64) -> String {
    match value {
        value if value < 10e3 => three_digits(value),
        value if value < 1e6 => format!("{} k", three_digits(value / 1e3)),
        value => format!("{} M", three_digits(value / 1e6)),
    }
}

/// Three digits that count; no zeros at the end of a fraction.
pub(crate) fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@=,".contains(letter);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_text_or_an_attribute() {
        let hostile = "<script>\"'&\u{1b}\u{0}</script>";
        assert_eq!(escaped(hostile), "&lt;script&gt;&quot;&#39;&amp;&lt;/script&gt;");
    }

    #[test]
    fn times_and_rates_have_three_digits() {
        let times = [0.0, 0.5, 63.14, 200.0, 1_944.6, 13_344.8, 2e6];
        let expected = ["0 µs", "0.5 µs", "63.1 µs", "200 µs", "1.94 ms", "13.3 ms", "2 s"];
        assert_eq!(times.map(in_time), expected);
        assert_eq!(
            [0.0, 7.25, 4_147.1, 15_472.0, 3.2e6].map(in_thousands),
            ["0", "7.25", "4147", "15.5 k", "3.2 M"]
        );
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["tcp", "drop 1/100 put", "it's", ""];
        assert_eq!(words.map(quoted), ["tcp", "'drop 1/100 put'", r"'it'\''s'", "''"]);
    }
}

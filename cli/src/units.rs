//! Amounts and times as text for people.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Formats bytes with a decimal unit.
pub(crate) fn in_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.2} GB", value / 1e9),
        _ => format!("{:.2} TB", value / 1e12),
    }
}

/// Formats a number with its thousands separated by a space that does not break lines: `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    const SPACE: char = '\u{202f}';
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(SPACE);
        }
        text.push(digit);
    }
    text
}

/// Returns the noun for this count: `peer` for one, `peers` for any other number.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    if count == 1 { noun.to_string() } else { format!("{noun}s") }
}

/// Returns a number with its noun: `1 peer`, `2 peers`.
pub(crate) fn counted(count: impl Into<u64>, noun: &str) -> String {
    let count = count.into();
    format!("{} {}", grouped(count), plural(count, noun))
}

/// Formats a long time by its two largest units.
pub(crate) fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Formats a time in microseconds, with a suitable unit and number of digits.
pub(crate) fn in_time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{} µs", three_digits(us)),
        us if us < 1e6 => format!("{} ms", three_digits(us / 1e3)),
        us => format!("{} s", three_digits(us / 1e6)),
    }
}

/// Formats a rate, with a prefix where it is large.
pub(crate) fn in_thousands(value: f64) -> String {
    match value {
        value if value < 10e3 => three_digits(value),
        value if value < 1e6 => format!("{} k", three_digits(value / 1e3)),
        value => format!("{} M", three_digits(value / 1e6)),
    }
}

/// Returns a rate per second; 0 if no time has passed.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Formats three significant digits; no zeros at the end of a fraction.
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

/// Formats a time as ISO 8601 in UTC: `2026-11-21T21:45:03Z`. A clock before 1970 counts as 1970;
/// Linux has none beyond the year 9999, which this form could not represent.
pub(crate) fn in_iso(moment: SystemTime) -> String {
    humantime::format_rfc3339_seconds(moment.max(UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units() {
        let amounts = [0, 999, 1_000, 1_500_000, 19_280_000_000, 3_000_000_000_000];
        let expected = ["0 B", "999 B", "1.0 kB", "1.5 MB", "19.28 GB", "3.00 TB"];
        assert_eq!(amounts.map(in_bytes), expected);
    }

    #[test]
    fn thousands_stand_apart() {
        let numbers = [0, 12, 123, 1_234, 123_456, 1_234_567];
        let expected = ["0", "12", "123", "1 234", "123 456", "1 234 567"];
        assert_eq!(numbers.map(grouped), expected.map(|text| text.replace(' ', "\u{202f}")));
    }

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|count| plural(count, "client")), ["clients", "client", "clients"]);
    }

    #[test]
    fn times_have_two_units() {
        let times = [0.25, 59.94, 61.0, 3_599.0, 7_260.0, 90_000.0].map(Duration::from_secs_f64);
        let expected = ["0.2 s", "59.9 s", "1 min 1 s", "59 min 59 s", "2 h 1 min", "1 d 1 h"];
        assert_eq!(times.map(in_words), expected);
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
    fn moments_are_what_a_calendar_says() {
        let at = |seconds| in_iso(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(in_iso(UNIX_EPOCH - Duration::from_secs(1)), at(0));
    }
}

//! Moments as text.

use std::time::{SystemTime, UNIX_EPOCH};

/// In the form of ISO 8601: `2026-11-21T21:45:03Z`. A clock before 1970 counts as 1970.
pub(crate) fn in_iso(moment: SystemTime) -> String {
    const DAY_S: u64 = 86_400;
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date(seconds / DAY_S);
    let rest = seconds % DAY_S;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

/// The Gregorian date of a day counted from 1970. Years are counted from March, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // Days from 1 March of the year 0 to 1970.
    let days = days + 719_468;
    let (era, day_of_era) = (days / ERA, days % ERA);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / (ERA - 1)) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_what_a_calendar_says() {
        let at = |seconds| in_iso(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    /// Each day follows the one before, by the rules of the calendar.
    #[test]
    fn days_follow_each_other() {
        let mut before = date(0);
        for day in 1..200_000 {
            let (year, month, today) = date(day);
            let leap =
                before.0.is_multiple_of(4) && (!before.0.is_multiple_of(100) || before.0.is_multiple_of(400));
            let length = match before.1 {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let expected = match before {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, day) if day == length => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
            assert_eq!((year, month, today), expected);
            before = expected;
        }
    }
}

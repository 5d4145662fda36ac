//! The page as a whole: well-formed, self-contained, correct, and safe with any values.

use std::time::{Duration, SystemTime};

use super::page;
use crate::machine::Machine;
use crate::selftest::result::{Ending, Outcome};
use crate::selftest::samples::{HOSTILE, hostile, outcome};
use crate::svg::elements;

fn machine() -> Machine {
    Machine { host: HOSTILE.into(), processor: HOSTILE.into(), ..Machine::this() }
}

#[test]
fn every_element_ends_and_every_phase_has_its_pictures() {
    let outcome = outcome();
    let page = page(&outcome, &machine());
    let names = elements(&page);
    let count = |name: &str| names.iter().filter(|found| *found == name).count();
    assert_eq!(count("svg"), 2 * outcome.phases.len());
    assert_eq!((count("h1"), count("header"), count("script")), (1, 1, 0));
    for phase in &outcome.phases {
        assert!(page.contains(&format!("Latencies of {}:", phase.name.replace('_', " "))));
    }
}

/// Numbers are short, also for sums of fractions.
#[test]
fn no_word_of_a_picture_is_longer_than_its_place() {
    const WORDS_MAX: usize = 28;
    for seconds in 1..60 {
        let mut outcome = outcome();
        for phase in &mut outcome.phases {
            let stretch = |at: Duration| at * seconds / 3;
            phase.elapsed = stretch(phase.elapsed);
            phase.samples.iter_mut().for_each(|sample| sample.at = stretch(sample.at));
        }
        let page = page(&outcome, &Machine::default());
        for part in page.split("<text ").skip(1) {
            let words =
                part.split_once('>').and_then(|(_, rest)| rest.split_once("</text>")).expect("a text").0;
            assert!(words.chars().count() <= WORDS_MAX, "{seconds} s: {words}");
        }
        for tick in page.split("class=\"tick\"").skip(1) {
            let words =
                tick.split_once('>').and_then(|(_, rest)| rest.split_once("</text>")).expect("a tick").0;
            assert!(words.chars().count() <= 8, "{seconds} s: {words}");
        }
    }
}

/// Nothing is loaded: a report is read years later, on a machine without a network.
#[test]
fn nothing_comes_from_elsewhere() {
    let page = page(&outcome(), &machine());
    for word in ["src=", "href", "url(", "@import", "http:", "https:", "//", "<link", "<script", "<img"] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn values_of_other_nodes_are_text_and_nothing_else() {
    let page = page(&hostile(), &machine());
    elements(&page);
    assert!(!page.contains(HOSTILE) && !page.contains("<script") && !page.contains("onload=\""));
    assert!(page.contains("&lt;script&gt;"));
}

#[test]
fn the_verdict_is_that_of_the_test() {
    let verdict = |outcome: &Outcome| {
        let page = page(outcome, &Machine::default());
        let class = page.split("<body class=\"").nth(1).and_then(|rest| rest.split('"').next());
        class.expect("a body").to_string()
    };
    assert_eq!(verdict(&outcome()), "passed");
    assert_eq!(verdict(&Outcome { ending: Ending::Interrupted, ..outcome() }), "interrupted");
    assert_eq!(verdict(&Outcome { ending: Ending::Failed("why".into()), ..outcome() }), "failed");
    let mut wrong = outcome();
    wrong.phases[0].errors = 1;
    assert_eq!(verdict(&wrong), "failed");
}

/// A test that was ended at once has nothing to draw.
#[test]
fn a_test_without_a_result_has_a_page_too() {
    let mut empty = outcome();
    for phase in &mut empty.phases {
        (phase.operations, phase.bytes, phase.elapsed) = (0, 0, Duration::ZERO);
        phase.latencies_ns.reset();
        phase.samples.clear();
    }
    let text = page(&empty, &Machine::default());
    elements(&text);
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    empty.phases.clear();
    elements(&page(&Outcome { started: SystemTime::UNIX_EPOCH, ..empty }, &Machine::default()));
}

//! `docs/configuration.md` agrees with the code.

use super::*;

const PAGE: &str = include_str!("../../../../../docs/configuration.md");

/// Returns the examples of the document in one language.
fn examples(language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let behind = PAGE.split(&opening).skip(1);
    behind.map(|rest| rest.split_once("```").expect("the example ends").0.to_string()).collect()
}

#[test]
fn every_example_is_a_configuration() {
    for (language, form) in [("yaml", Form::Yaml), ("modprobe", Form::Modprobe), ("toml", Form::Toml)] {
        let examples = examples(language);
        assert!(!examples.is_empty(), "{language}");
        for text in examples {
            let config =
                NodeConfig::new().read(&text, form, None).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(config.warnings(), [], "{text}");
            assert_eq!(
                (config.nets().first().map(|spec| spec.net), form),
                (Some(lnet_nid::Net::TCP), Form::of_text(&text)),
                "{text}"
            );
        }
    }
}

/// The document's tables of tunables have every row of the code's tables, in the same order.
#[test]
fn the_tables_are_ours() {
    let expected = tables();
    let start = PAGE.find("### lnet").unwrap_or(PAGE.len());
    assert!(PAGE[start..] == expected, "docs/configuration.md must end with:\n{expected}");
}

fn tables() -> String {
    let row = |cells: &[&str]| format!("| {} |\n", cells.join(" | "));
    let code = |text: &str| if text.is_empty() { "empty".to_string() } else { format!("`{text}`") };
    let modules = ["lnet", "ksocklnd", "ko2iblnd", "nlx", "lnet_selftest"];
    let of = |module: &'static str, acting: bool| {
        Tunable::all().filter(move |tunable| tunable.module() == module && tunable.acts() == acting)
    };
    let mut text = String::new();
    for module in &modules[..4] {
        text += &format!("### {module}\n\n");
        text += &row(&["tunable", "default", "unit", "range", "must agree", "effect"]);
        text += &row(&["---"; 6]);
        for tunable in of(module, true) {
            let (name, default) = (code(tunable.name()), code(&tunable.default()));
            let (unit, range) = (tunable.unit(), tunable.range());
            text += &row(&[&name, &default, unit, &range, tunable.agree(), tunable.meaning()]);
        }
        text += "\n";
    }
    text += "## Tunables without effect\n\nnlx accepts these tunables, and warns if a value other than LNet's default requests something that nlx does not do.\n";
    for module in modules.iter().filter(|module| of(module, false).next().is_some()) {
        text += &format!("\n### {module}, without effect\n\n");
        text += &row(&["tunable", "LNet's default", "why it has no effect"]);
        text += &row(&["---"; 3]);
        for tunable in of(module, false) {
            text += &row(&[&code(tunable.name()), &code(&tunable.default()), tunable.meaning()]);
        }
    }
    text
}

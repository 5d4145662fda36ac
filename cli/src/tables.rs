//! Tables as all commands print them.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Row, Table};

/// A table of words.
pub(crate) fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// A table whose columns are numbers from this one on: they stand on the right.
pub(crate) fn numbers(header: impl Into<Row>, first: usize) -> Table {
    numbers_in(UTF8_BORDERS_ONLY, header, first)
}

/// The same with lines of the caller's choice.
pub(crate) fn numbers_in(preset: &str, header: impl Into<Row>, first: usize) -> Table {
    let mut table = table(header);
    table.load_preset(preset);
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Text of another process, on this one's terminal: what could move the cursor is shown instead of done.
pub(crate) fn printable(text: &str) -> String {
    let quotes = |letter| matches!(letter, '\'' | '"' | '\\');
    let shown = |letter: char| match quotes(letter) {
        true => letter.to_string(),
        false => letter.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands_from_another_process() {
        assert_eq!(printable("a 'word'\u{1b}[2J\n\u{202e}"), "a 'word'\\u{1b}[2J\\n\\u{202e}");
    }
}

//! Tables of all commands.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Row, Table};

/// Returns a table of words.
pub(crate) fn table(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// Returns a table whose columns are right-aligned numbers from index `first` on.
pub(crate) fn numbers(header: impl Into<Row>, first: usize) -> Table {
    numbers_in(UTF8_BORDERS_ONLY, header, first)
}

/// Returns a table of numbers as [`numbers`] does, with this preset of borders.
pub(crate) fn numbers_in(preset: &str, header: impl Into<Row>, first: usize) -> Table {
    let mut table = table(header);
    table.load_preset(preset);
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table for terminals and pages.
pub(crate) struct Grid {
    pub(crate) header: Vec<&'static str>,
    /// The number of columns of words, in front of those of numbers.
    pub(crate) words: usize,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Grid {
    /// Returns the table for a terminal, with this preset of borders.
    pub(crate) fn text(&self, preset: &str) -> Table {
        let mut table = numbers_in(preset, self.header.clone(), self.words);
        table.add_rows(self.rows.iter().map(|row| row.iter().map(|cell| printable(cell))));
        table
    }
}

/// Escapes text of another process for a cell of a table: see [`lnet_nid::printable`].
pub(crate) fn printable(text: &str) -> String {
    lnet_nid::printable(text).to_string()
}

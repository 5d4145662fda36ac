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

/// Escapes text of another process for a cell of a table: see [`lnet_nid::printable`].
pub(crate) fn printable(text: &str) -> String {
    lnet_nid::printable(text).to_string()
}

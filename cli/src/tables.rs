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

/// Text of another process, as a cell of a table: see [`lnet_nid::printable`].
pub(crate) fn printable(text: &str) -> String {
    lnet_nid::printable(text).to_string()
}

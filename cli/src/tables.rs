//! Tables as all commands print them.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

/// A table of words.
pub(crate) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// A table whose columns are numbers from this one on: they stand on the right.
pub(crate) fn numbers<const N: usize>(header: [&str; N], first: usize) -> Table {
    let mut table = table(header);
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

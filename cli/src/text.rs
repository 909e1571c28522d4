//! Text for terminals.

use comfy_table::{CellAlignment, Table, presets};

/// A table without lines whose columns from `numbers_from` on are aligned to the right.
pub(crate) fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Text of a trace must not steer the terminal: control characters are shown, not sent.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

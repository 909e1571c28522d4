//! Text for terminals.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanCount;

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

/// The table, and how many rows it does not have; nothing if it has none.
pub(crate) fn write_table(out: &mut impl Write, table: &Table, rows_left_out: usize) -> io::Result<()> {
    if table.row_count() == 0 {
        return Ok(());
    }
    writeln!(out)?;
    for line in table.lines() {
        writeln!(out, " {}", line.trim_end())?;
    }
    if rows_left_out > 0 {
        writeln!(out, "  ... and {} more (--verbose or --json shows all)", HumanCount(rows_left_out as u64))?;
    }
    Ok(())
}

/// `1 read`, `2 reads`, `2 flushes`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    let ending = match (count, what.ends_with('h')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {what}{ending}", HumanCount(count))
}

/// Whole milliseconds.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:03} s", HumanCount(ns / 1_000_000_000), ns / 1_000_000 % 1000)
}

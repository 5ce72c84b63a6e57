//! Reports: projections of one run record, none of which knows more than it.

pub mod certificate;
pub mod html;
pub mod junit;
pub mod markdown;
pub mod table;
pub mod text;

/// A stranger's words as one line of a report, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A number of things: `1 cell`, `2 cells`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

//! The nearest of the names that would have been right.

/// ` (did you mean `x`?)` for the nearest name, or nothing if none is near.
pub fn nearest(given: &str, names: &[&str]) -> String {
    names
        .iter()
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().div_ceil(2))
        .map(|(_, name)| format!(" (did you mean `{name}`?)"))
        .unwrap_or_default()
}

/// The name that `given` is a misspelling of: at most two letters off, and not itself a name.
pub fn near_miss<'a>(given: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&str| strsim::damerau_levenshtein(given, name);
    let name = names.iter().copied().min_by_key(distance)?;
    // Short names resemble one another by chance.
    let near = if name.len() > 4 { 2 } else { 1 };
    (1..=near).contains(&distance(&name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        assert_eq!(nearest("e4m4", &["e4m3", "e5m2"]), " (did you mean `e4m3`?)");
        assert_eq!(nearest("propogate", &["propagate", "te"]), " (did you mean `propagate`?)");
        assert_eq!(nearest("xyzzy", &["e4m3"]), "");
    }
}

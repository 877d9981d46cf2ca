//! Suggestion of the name that a mistyped one probably meant.

/// Jaro similarity above which a name is suggested, as in clap for options.
const MIN_JARO: f64 = 0.7;
/// Damerau-Levenshtein similarity above which a name is suggested. Better for short words: swapped
/// letters count as one mistake.
const MIN_DAMERAU_LEVENSHTEIN: f64 = 0.65;

/// Returns the known name most similar to `given`, if one is similar enough.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.replace('_', "-");
    let alike = known.into_iter().filter_map(|name| {
        let (alike, right) =
            (strsim::jaro(&given, name), strsim::normalized_damerau_levenshtein(&given, name));
        (alike > MIN_JARO || right > MIN_DAMERAU_LEVENSHTEIN).then_some((alike + right, name))
    });
    alike.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_mistyped_name_is_recognized_and_another_word_is_not() {
        let names = ["src", "dst", "src-dst", "five-tuple"];
        assert_eq!(nearest("five_tuple", names), Some("five-tuple"));
        assert_eq!(nearest("fivetuple", names), Some("five-tuple"));
        assert_eq!(nearest("scr", names), Some("src"));
        assert_eq!(nearest("port", names), None);
        assert_eq!(nearest("", names), None);
    }
}

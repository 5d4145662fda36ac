//! Sets of NIDs in options and in the configuration of `nlxd`.

use lnet_nid::NidList;
use nlx_helper::Nids;

/// Parses `*`, or lists of NIDs in Lustre's form. No list at all is the empty set.
pub(crate) fn of_words(words: &[&str]) -> Result<Nids, String> {
    if words == ["*"] {
        return Ok(Nids::All);
    }
    if words.iter().any(|word| word.trim().is_empty()) {
        return Err("NIDs must stand here, or \"*\" for all, or an empty list".to_string());
    }
    let list = words.join(" ").parse::<NidList>().map_err(|error| error.to_string())?;
    Ok(Nids::Listed(list))
}

/// Parses the value of an option.
pub(crate) fn parse(text: &str) -> Result<Nids, String> {
    of_words(&[text])
}

//! The bytes that `docs/driver-protocol.md` shows.

const DOCUMENT: &str = include_str!("../../../docs/driver-protocol.md");

/// The bytes of the block that is opened by "```hex" and this name.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let open = format!("```hex {name}\n");
    let (_, rest) = DOCUMENT.split_once(&open).unwrap_or_else(|| panic!("the document shows {name}"));
    let (block, _) = rest.split_once("```").unwrap();
    let tokens = block.lines().flat_map(|line| line.split(';').next().unwrap().split_whitespace());
    tokens.flat_map(parse).collect()
}

/// The names of all blocks.
pub(crate) fn names() -> Vec<&'static str> {
    DOCUMENT.lines().filter_map(|line| line.strip_prefix("```hex ")).collect()
}

/// "1f", or "00*24".
fn parse(token: &str) -> Vec<u8> {
    let (digits, count) = token.split_once('*').unwrap_or((token, "1"));
    vec![u8::from_str_radix(digits, 16).unwrap(); count.parse().unwrap()]
}

/// The text of a section, by its headline.
pub(crate) fn section(headline: &str) -> &'static str {
    let (_, rest) = DOCUMENT.split_once(&format!("\n{headline}\n")).unwrap();
    rest.split("\n## ").next().unwrap()
}

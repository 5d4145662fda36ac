//! The bytes that `docs/driver-protocol.md` shows. (The fuzz targets start from them, too.)

pub(crate) const DOCUMENT: &str = include_str!("../../../docs/driver-protocol.md");

/// Returns the bytes of the block that is opened by "```hex" and this name.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    let open = format!("```hex {name}\n");
    let (_, rest) = DOCUMENT.split_once(&open).unwrap_or_else(|| panic!("the document shows {name}"));
    let (block, _) = rest.split_once("```").expect("blocks are closed");
    let tokens = block.lines().flat_map(|line| line.split(';').next().unwrap_or_default().split_whitespace());
    tokens.flat_map(parse).collect()
}

/// Returns the names of all blocks.
pub(crate) fn names() -> Vec<&'static str> {
    DOCUMENT.lines().filter_map(|line| line.strip_prefix("```hex ")).collect()
}

/// Parses "1f", or "00*24".
fn parse(token: &str) -> Vec<u8> {
    let (digits, count) = token.split_once('*').unwrap_or((token, "1"));
    let byte = u8::from_str_radix(digits, 16).expect("bytes are in hexadecimal");
    vec![byte; count.parse().expect("and repeated so often")]
}

//! Sets of numbers: `[1,3-5,10-20/2]`.

use std::fmt;

use crate::range::Expression;
use crate::{NidError, text};

/// The maximum number of items of one bracket list. An octet has no more values, and longer lists
/// are not needed for rules.
pub(crate) const ITEMS_MAX: usize = 256;

/// The kind of the numbers in a set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One octet of an IPv4 address, decimal; `*` is all of them.
    Octet,
    /// A whole address of 32 bits, decimal or hexadecimal.
    Address,
}

impl Kind {
    fn parse(self, text: &str) -> Option<u32> {
        match self {
            // As in a plain address, an octet has no leading zero.
            Kind::Octet if text.len() > 1 && text.starts_with('0') => None,
            Kind::Octet => text::parse_decimal(text, 255),
            Kind::Address => text::parse_number(text),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Kind::Octet => "a decimal number of 0 to 255",
            Kind::Address => "a number of 0 to 4294967295",
        }
    }
}

/// A set of numbers, never empty: the items of a bracket list, sorted, with overlapping and
/// adjacent ranges of step 1 joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbers(Vec<Item>);

/// The numbers `first`, `first + step` and so on up to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Item {
    first: u32,
    last: u32,
    step: u32,
}

const EVERY_OCTET: Item = Item { first: 0, last: 255, step: 1 };

impl Item {
    fn contains(self, number: u32) -> bool {
        self.first <= number && number <= self.last && (number - self.first).is_multiple_of(self.step)
    }

    /// Returns the least number of the item that is not below `number`.
    fn at_or_above(self, number: u32) -> Option<u32> {
        let Some(above) = number.checked_sub(self.first) else { return Some(self.first) };
        let next = u64::from(self.first) + u64::from(above).next_multiple_of(u64::from(self.step));
        u32::try_from(next).ok().filter(|next| *next <= self.last)
    }

    fn parse(expression: Expression<'_>, kind: Kind, text: &str) -> Result<Item, NidError> {
        let number = |part| kind.parse(part).ok_or_else(|| expression.error(part, kind.expected()));
        let Some((first, rest)) = text.split_once('-') else {
            let first = number(text)?;
            return Ok(Item { first, last: first, step: 1 });
        };
        let (end, step) = match rest.split_once('/') {
            Some((end, step)) => {
                let value = text::parse_decimal(step, u32::MAX).filter(|step| *step > 0);
                let expected = "a step of 1 to 4294967295";
                (end, value.ok_or_else(|| expression.error(step, expected))?)
            }
            None => (rest, 1),
        };
        let (first, end) = (number(first)?, number(end)?);
        if end < first {
            return Err(expression.error(text, "a range that rises"));
        }
        let last = end - (end - first) % step;
        Ok(Item { first, last, step: if first == last { 1 } else { step } })
    }
}

impl Numbers {
    pub(crate) fn one(number: u32) -> Numbers {
        Numbers(vec![Item { first: number, last: number, step: 1 }])
    }

    /// Parses a number, a bracket list, or the `*` of an octet.
    pub(crate) fn parse(expression: Expression<'_>, kind: Kind, text: &str) -> Result<Numbers, NidError> {
        if kind == Kind::Octet && text == "*" {
            return Ok(Numbers(vec![EVERY_OCTET]));
        }
        let Some(list) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            return kind.parse(text).map(Numbers::one).ok_or_else(|| expression.error(text, kind.expected()));
        };
        let mut items = Vec::new();
        for item in list.split(',') {
            if items.len() == ITEMS_MAX {
                return Err(expression.too_long("items of a list", item, ITEMS_MAX));
            }
            items.push(Item::parse(expression, kind, item)?);
        }
        Ok(Numbers::of(items))
    }

    /// Sorts the items, joins overlapping and adjacent ones of step 1, and removes duplicates of
    /// the others.
    fn of(mut items: Vec<Item>) -> Numbers {
        items.sort_unstable();
        let (whole, mut joined): (Vec<Item>, Vec<Item>) = items.into_iter().partition(|item| item.step == 1);
        let stepped = joined.len();
        for item in whole {
            match joined[stepped..].last_mut() {
                Some(last) if item.first <= last.last.saturating_add(1) => {
                    last.last = last.last.max(item.last)
                }
                _ => joined.push(item),
            }
        }
        joined.sort_unstable();
        joined.dedup();
        Numbers(joined)
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.iter().any(|item| item.contains(number))
    }

    /// Returns the numbers in ascending order, each once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let at_or_above = |number| self.0.iter().filter_map(|item| item.at_or_above(number)).min();
        std::iter::successors(at_or_above(0), move |number| at_or_above(number.checked_add(1)?))
    }
}

/// Prints the set as a bracket list, and a single number without brackets. The alternate form
/// (`{:#}`), for octets, prints the set of all octets as `*`.
impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0[..] {
            [EVERY_OCTET] if f.alternate() => return f.write_str("*"),
            [Item { first, last, .. }] if first == last => return write!(f, "{first}"),
            _ => {}
        }
        for (at, Item { first, last, step }) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "[" } else { "," })?;
            match (first == last, step) {
                (true, _) => write!(f, "{first}")?,
                (false, 1) => write!(f, "{first}-{last}")?,
                (false, _) => write!(f, "{first}-{last}/{step}")?,
            }
        }
        f.write_str("]")
    }
}

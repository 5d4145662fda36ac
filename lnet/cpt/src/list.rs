//! Lists of numbers: `0-3,8,16-31/2`, the grammar of the kernel's CPU lists and of lnet-semantics
//! 21.

use crate::CptError;

/// The maximum length of a list or pattern. A pattern that names each of 8192 CPUs separately fits.
pub(crate) const MAX_TEXT_BYTES: usize = 64 * 1024;

/// One `low-high/stride`; a single number is a range of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) low: usize,
    pub(crate) high: usize,
    pub(crate) stride: usize,
}

/// A text being parsed, with the current position for messages.
pub(crate) struct Cursor<'a> {
    what: &'static str,
    text: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(what: &'static str, text: &'a str) -> Result<Cursor<'a>, CptError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(CptError::TextLength { what, bytes: text.len(), max: MAX_TEXT_BYTES });
        }
        Ok(Cursor { what, text: text.as_bytes(), position: 0 })
    }

    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn at_end(&self) -> bool {
        self.position == self.text.len()
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    /// Takes `byte` in either case, if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek().is_some_and(|next| next.eq_ignore_ascii_case(&byte));
        self.position += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), CptError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(reason)) }
    }

    /// Skips blanks; returns whether there were any.
    pub(crate) fn blanks(&mut self) -> bool {
        let start = self.position;
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.position += 1;
        }
        self.position > start
    }

    pub(crate) fn error(&self, reason: &'static str) -> CptError {
        CptError::Syntax { what: self.what, position: self.position, reason }
    }

    pub(crate) fn number(&mut self) -> Result<usize, CptError> {
        let start = self.position;
        let mut number = 0usize;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            number = number
                .checked_mul(10)
                .and_then(|n| n.checked_add(usize::from(digit - b'0')))
                .filter(|&n| n <= u32::MAX as usize)
                .ok_or_else(|| self.error("the number is too large"))?;
            self.position += 1;
        }
        if self.position == start { Err(self.error("expected a number")) } else { Ok(number) }
    }

    /// Parses `range { ',' range }`, at least one.
    pub(crate) fn ranges(&mut self) -> Result<Vec<Range>, CptError> {
        let mut ranges = vec![self.range()?];
        while self.take(b',') {
            ranges.push(self.range()?);
        }
        Ok(ranges)
    }

    fn range(&mut self) -> Result<Range, CptError> {
        let low = self.number()?;
        if !self.take(b'-') {
            return Ok(Range { low, high: low, stride: 1 });
        }
        let high = self.number()?;
        if high < low {
            return Err(self.error("the range ends before it starts"));
        }
        let stride = if self.take(b'/') { self.number()? } else { 1 };
        if stride == 0 {
            return Err(self.error("a stride of zero never ends"));
        }
        Ok(Range { low, high, stride })
    }
}

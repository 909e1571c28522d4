//! Fragments of a chunk, one byte at a time (spec, trace-buffer 1.4).

/// The size a writer stores in place of a packet that it had to drop.
pub const DROP_SENTINEL: u64 = 268_435_455;

/// What is found at a place of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A fragment: its body begins at `body` and ends before `end`.
    Fragment {
        /// First byte of the body.
        body: usize,
        /// First byte after the body.
        end: usize,
    },
    /// No byte left.
    End,
    /// No header that ends, or a body that is longer than what is left.
    Malformed,
    /// The sentinel.
    Sentinel,
}

/// Looks at the fragment that begins at `at`.
#[must_use]
pub fn token(payload: &[u8], at: usize) -> Token {
    if at >= payload.len() {
        return Token::End;
    }
    let mut size = 0u64;
    for i in 0..10 {
        let Some(&byte) = payload.get(at + i) else {
            return Token::Malformed;
        };
        // The tenth byte is shifted by 63: only its lowest bit counts.
        size |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            let body = at + i + 1;
            return if size == DROP_SENTINEL {
                Token::Sentinel
            } else if size > (payload.len() - body) as u64 {
                Token::Malformed
            } else {
                Token::Fragment { body, end: body + size as usize }
            };
        }
    }
    Token::Malformed
}

/// Why fewer fragments were found than declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A fragment is missing or malformed.
    Malformed,
    /// The writer dropped a packet.
    Sentinel,
}

/// The first `count` fragments: their bytes, and what cut them short.
#[must_use]
pub fn valid_prefix(payload: &[u8], count: u16) -> (usize, Option<Cut>) {
    let mut visible = 0;
    for _ in 0..count {
        match token(payload, visible) {
            Token::Fragment { end, .. } => visible = end,
            Token::Sentinel => return (visible, Some(Cut::Sentinel)),
            Token::End | Token::Malformed => return (visible, Some(Cut::Malformed)),
        }
    }
    (visible, None)
}

/// Whether any of `len` bytes from `offset` belongs to a fragment's size.
#[must_use]
pub fn touches_header(payload: &[u8], offset: usize, len: usize) -> bool {
    let mut at = 0;
    while let Token::Fragment { body, end } = token(payload, at) {
        if offset < body && at < offset + len {
            return true;
        }
        at = end;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_to_ten_bytes() {
        assert_eq!(token(&[2, 7, 7], 0), Token::Fragment { body: 1, end: 3 });
        assert_eq!(token(&[0x81, 0x80, 0x80, 0, 7], 0), Token::Fragment { body: 4, end: 5 });
        let ten = [0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02, 9];
        assert_eq!(
            token(&ten, 0),
            Token::Fragment { body: 10, end: 11 },
            "only the lowest bit of the tenth counts"
        );
        assert_eq!(token(&[0x80; 12], 0), Token::Malformed);
        assert_eq!(token(&[0x80; 3], 0), Token::Malformed);
        assert_eq!(token(&[3, 1, 1], 0), Token::Malformed);
        assert_eq!(token(&[0], 0), Token::Fragment { body: 1, end: 1 });
        assert_eq!(token(&[0], 1), Token::End);
    }

    #[test]
    fn the_sentinel_is_a_value_not_a_pattern() {
        assert_eq!(token(&[0xff, 0xff, 0xff, 0x7f], 0), Token::Sentinel);
        assert_eq!(token(&[0xff, 0xff, 0xff, 0xff, 0], 0), Token::Sentinel);
    }

    #[test]
    fn a_prefix_ends_at_the_count_or_at_the_cut() {
        assert_eq!(valid_prefix(&[1, 9, 1, 9], 1), (2, None));
        assert_eq!(valid_prefix(&[1, 9], 2), (2, Some(Cut::Malformed)));
        assert_eq!(valid_prefix(&[1, 9, 5], 2), (2, Some(Cut::Malformed)));
        assert_eq!(valid_prefix(&[1, 9, 0xff, 0xff, 0xff, 0x7f], 3), (2, Some(Cut::Sentinel)));
        assert_eq!(valid_prefix(&[], 0), (0, None));
    }

    #[test]
    fn a_patch_touches_a_header() {
        let payload = [4, 0, 0, 0, 0, 4, 0, 0, 0, 0];
        assert!(touches_header(&payload, 0, 4));
        assert!(!touches_header(&payload, 1, 4));
        assert!(touches_header(&payload, 2, 4));
        assert!(!touches_header(&payload, 6, 4));
    }
}

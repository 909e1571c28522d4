//! Files that were compressed as a whole, with gzip or zstd: known by their first bytes.

use std::cell::RefCell;
use std::io::{self, Cursor, ErrorKind, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// What is wrong with the compressed data, once reading has come to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Broken(Rc<RefCell<Option<String>>>);

impl Broken {
    pub(super) fn take(&self) -> Option<String> {
        self.0.borrow_mut().take()
    }
}

/// The bytes of the trace. Where compressed data is damaged they end, and `broken` says why.
pub(super) fn unpack(mut input: Box<dyn Read>, broken: &Broken) -> io::Result<Box<dyn Read>> {
    let mut head = Vec::new();
    input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let (is_gzip, is_zstd) = (head.starts_with(GZIP), head == ZSTD);
    let whole = Cursor::new(head).chain(input);
    let (how, unpacked): (_, Box<dyn Read>) = match (is_gzip, is_zstd) {
        (true, _) => ("gzip", Box::new(MultiGzDecoder::new(whole))),
        (_, true) => match StreamingDecoder::new(whole) {
            Ok(decoder) => ("zstd", Box::new(decoder)),
            Err(error) => ("zstd", Box::new(Failing(Some(error.to_string())))),
        },
        _ => return Ok(Box::new(whole)),
    };
    Ok(Box::new(Unpacked { unpacked, how, broken: broken.clone() }))
}

struct Unpacked {
    unpacked: Box<dyn Read>,
    how: &'static str,
    broken: Broken,
}

impl Read for Unpacked {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self.unpacked.read(out) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                *self.broken.0.borrow_mut() = Some(format!("its {} data is damaged: {error}", self.how));
                Ok(0)
            }
            other => other,
        }
    }
}

/// Has nothing but an error.
struct Failing(Option<String>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), |error| Err(io::Error::other(error)))
    }
}

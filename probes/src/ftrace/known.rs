//! What was learnt from the kernel: formats, constant texts, names of functions.

use std::collections::HashMap;
use std::sync::Arc;

use super::format::EventFormat;
use super::ring::EventName;
use super::symbols::Symbols;
use super::tracefs::{self, TraceFs};
use crate::Roots;

/// Each is read when it is needed first.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) tracefs: TraceFs,
    formats: HashMap<EventName, Option<Arc<EventFormat>>>,
    texts: Option<Arc<HashMap<u64, Vec<u8>>>>,
    pub(super) symbols: Option<Arc<Symbols>>,
    generic_numbers: HashMap<EventName, u32>,
}

impl Known {
    pub(super) fn new(tracefs: TraceFs) -> Self {
        Self { tracefs, formats: HashMap::new(), texts: None, symbols: None, generic_numbers: HashMap::new() }
    }

    /// The format of an event, if the kernel has it and it is understood.
    pub(super) fn format(&mut self, event: &EventName) -> Option<Arc<EventFormat>> {
        let tracefs = &self.tracefs;
        let read = || EventFormat::parse(&tracefs.format(&event.0, &event.1).ok()?).map(Arc::new);
        self.formats.entry(event.clone()).or_insert_with(read).clone()
    }

    /// The number of an event that the schema does not have, the same for all sessions.
    pub(super) fn generic_number(&mut self, event: &EventName) -> u32 {
        let next = super::plan::GENERIC_FIRST + self.generic_numbers.len() as u32;
        *self.generic_numbers.entry(event.clone()).or_insert(next)
    }

    /// Constant texts by address.
    pub(super) fn texts(&mut self) -> Arc<HashMap<u64, Vec<u8>>> {
        let path = self.tracefs.root().join("printk_formats");
        let read = || Arc::new(parse_texts(&tracefs::read(&path).unwrap_or_default()));
        self.texts.get_or_insert_with(read).clone()
    }

    /// Names of the kernel's functions.
    pub(super) fn symbols(&mut self, roots: &Roots) -> std::io::Result<Arc<Symbols>> {
        if let Some(symbols) = &self.symbols {
            return Ok(symbols.clone());
        }
        let text = tracefs::read(&roots.proc.join("kallsyms"))?;
        let symbols = Arc::new(Symbols::parse(&text)?);
        self.symbols = Some(symbols.clone());
        Ok(symbols)
    }
}

/// Lines such as `0xffffffff82000000 : "text"`.
fn parse_texts(text: &str) -> HashMap<u64, Vec<u8>> {
    let line = |line: &str| {
        let (address, text) = line.split_once(" : ")?;
        let address = u64::from_str_radix(address.trim().strip_prefix("0x")?, 16).ok()?;
        let text = text.trim_end().strip_prefix('"')?.strip_suffix('"')?;
        Some((address, text.as_bytes().to_vec()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_texts() {
        let texts = parse_texts("0x10 : \"a \\\"b\\\"\"\n0xzz : \"c\"\n0x20 : \"\"\nnoise\n");
        assert_eq!(texts.len(), 2);
        assert_eq!((texts[&0x10].as_slice(), texts[&0x20].as_slice()), (&b"a \\\"b\\\""[..], &b""[..]));
    }

    #[test]
    fn addresses_that_the_kernel_hides() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().join("proc"), sys: dir.path().join("sys") };
        std::fs::create_dir_all(roots.sys.join("kernel/tracing/instances")).unwrap();
        std::fs::write(roots.sys.join("kernel/tracing/trace_clock"), "[local]").unwrap();
        std::fs::create_dir(&roots.proc).unwrap();
        let mut known = Known::new(TraceFs::find(&roots).unwrap());
        let kallsyms = |text: &str| std::fs::write(roots.proc.join("kallsyms"), text).unwrap();
        // As with kptr_restrict=2.
        kallsyms("0000000000000000 T _stext\n0000000000000000 t do_work\n");
        let error = known.symbols(&roots).unwrap_err().to_string();
        assert!(error.contains("kernel.kptr_restrict"), "{error}");
        kallsyms("ffffffff81000000 T _stext\n");
        assert_eq!(known.symbols(&roots).unwrap().name(0xffff_ffff_8100_0001), Some("_stext"));
    }
}

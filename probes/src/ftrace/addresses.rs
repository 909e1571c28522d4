//! How the trace names what lies at an address of the kernel.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use super::plan::Lookup;
use super::proto::{put_bytes, put_number};
use super::symbols::Symbols;

/// What is told of the kernel's addresses.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    symbols: Option<Arc<Symbols>>,
    /// Texts by address, from `printk_formats`.
    texts: Arc<HashMap<u64, Vec<u8>>>,
    numbers: HashMap<u64, u64>,
    /// Makes the numbers of objects: readers follow a socket by its number from pass to pass, which
    /// a table of all objects would need much memory for, and the address says where the kernel is.
    key: RandomState,
    /// Addresses whose names are still to be written.
    unwritten: Vec<(u64, u64)>,
    /// Numbers of addresses hold since the packet that begins with this mark.
    is_begun: bool,
}

impl Addresses {
    pub(super) fn new(symbols: Option<Arc<Symbols>>, texts: Arc<HashMap<u64, Vec<u8>>>) -> Self {
        Self { symbols, texts, ..Self::default() }
    }

    /// Numbers of addresses may be given anew: everything that used them has been written.
    pub(super) fn end_of_pass(&mut self) {
        self.numbers.clear();
        self.is_begun = false;
    }

    /// Adds the names of addresses that the packet mentions first.
    pub(super) fn write_symbols(&mut self, packet: &mut Vec<u8>) {
        let Some(symbols) = &self.symbols else {
            self.unwritten.clear();
            return;
        };
        if self.unwritten.is_empty() {
            return;
        }
        let mut interned = Vec::new();
        for (number, address) in self.unwritten.drain(..) {
            if let Some(name) = symbols.name(address) {
                let mut entry = Vec::new();
                put_number(&mut entry, 1, number);
                put_bytes(&mut entry, 2, name.as_bytes());
                put_bytes(&mut interned, 26, &entry);
            }
        }
        put_bytes(packet, 12, &interned);
        if !std::mem::replace(&mut self.is_begun, true) {
            put_number(packet, 13, 1);
        }
    }
}

impl Lookup for Addresses {
    fn symbol_number(&mut self, address: u64) -> u64 {
        let next = self.numbers.len() as u64 + 1;
        let unwritten = &mut self.unwritten;
        *self.numbers.entry(address).or_insert_with(|| {
            unwritten.push((next, address));
            next
        })
    }

    fn object_number(&self, address: u64) -> u64 {
        // 48 bits are enough to tell objects apart.
        if address == 0 { 0 } else { self.key.hash_one(address) >> 16 }
    }

    fn text_at(&self, address: u64) -> &[u8] {
        self.texts.get(&address).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftrace::format::EventFormat;
    use crate::ftrace::plan::Plan;

    #[test]
    fn an_object_has_one_number_in_all_passes_and_it_is_not_its_address() {
        let text = "name: inet_sock_set_state\nID: 3\n\tfield:u16 common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                \tfield:const void * skaddr;\toffset:8;\tsize:8;\tsigned:0;\n";
        let plan = Plan::typed(&EventFormat::parse(text).unwrap()).unwrap();
        let mut addresses = Addresses::default();
        let mut written = |address: u64| {
            let mut out = Vec::new();
            let record = [[3, 0, 0, 0, 0, 0, 0, 0], address.to_le_bytes()].concat();
            assert!(plan.write(&record, &mut addresses, &mut out));
            addresses.end_of_pass();
            out
        };
        let socket = 0xffff_8881_0000_1000;
        let first = written(socket);
        assert_ne!(written(socket + 0x1000), first);
        assert_eq!(written(socket), first);
        let mut address = Vec::new();
        put_number(&mut address, 8, socket);
        assert_ne!(first, address);
        assert_eq!(written(0), [8 << 3, 0], "no object");
    }
}

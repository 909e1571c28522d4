//! Names of the kernel's functions by address: /proc/kallsyms.

use std::io;

/// The functions of the running kernel.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// Addresses in ascending order, each with the place of its name.
    addresses: Vec<(u64, u32)>,
    /// Names, one behind the other, each with a line's end.
    names: String,
}

impl Symbols {
    /// Reads lines such as `ffffffff81000000 T _stext`. An error if the kernel hides the addresses
    /// (they are all zero then).
    pub(super) fn parse(text: &str) -> io::Result<Self> {
        let mut symbols = Symbols::default();
        for line in text.lines() {
            let mut parts = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
                symbols.addresses.push((address, symbols.names.len() as u32));
                symbols.names.push_str(name);
                symbols.names.push('\n');
            }
        }
        if symbols.addresses.is_empty() {
            return Err(io::Error::other(
                "/proc/kallsyms has no addresses; root gets them when kernel.kptr_restrict is 0 or 1",
            ));
        }
        symbols.addresses.sort_unstable();
        Ok(symbols)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Memory that they take.
    pub(super) fn size_bytes(&self) -> usize {
        self.names.capacity() + self.addresses.capacity() * size_of::<(u64, u32)>()
    }

    /// The function in which the address lies.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let after = self.addresses.partition_point(|&(start, _)| start <= address);
        let (_, place) = *self.addresses.get(after.checked_sub(1)?)?;
        self.names[place as usize..].split('\n').next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_below_an_address() {
        let text = "0000000000000000 A fixed\n0000000000001000 T second [module]\nx\n\
                    0000000000000800 t first\n0000000000000900 d data\n";
        let symbols = Symbols::parse(text).unwrap();
        assert_eq!(symbols.count(), 2);
        for (address, name) in
            [(0x7FF, None), (0x800, Some("first")), (0xFFF, Some("first")), (u64::MAX, Some("second"))]
        {
            assert_eq!(symbols.name(address), name, "{address:x}");
        }
        assert!(Symbols::parse("0000000000000000 T hidden\n").is_err());
    }
}

//! What the kernel calls threads, each name once.

use std::collections::HashMap;

use super::THREADS_MAX;

/// The kernel has room for so many bytes of a thread's name.
const COMM_SIZE_BYTES_MAX: usize = 16;

/// Number of a name in [`Comms`]; the default is none.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::inspect) struct Comm(u32);

impl Comm {
    pub(in crate::inspect) fn is_some(self) -> bool {
        self.0 != 0
    }
}

#[derive(Debug, Default)]
pub(in crate::inspect) struct Comms {
    numbers: HashMap<Box<[u8]>, Comm>,
    /// By number, the first of which is 1.
    names: Vec<String>,
}

impl Comms {
    /// No name is the number of an empty one, and of those beyond the limit.
    pub(in crate::inspect) fn number(&mut self, name: &[u8]) -> Comm {
        let name = &name[..name.len().min(COMM_SIZE_BYTES_MAX)];
        match self.numbers.get(name) {
            Some(&comm) => comm,
            None if name.is_empty() || self.names.len() >= THREADS_MAX => Comm::default(),
            None => {
                self.names.push(String::from_utf8_lossy(name).into_owned());
                let comm = Comm(self.names.len() as u32);
                self.numbers.insert(name.into(), comm);
                comm
            }
        }
    }

    pub(in crate::inspect) fn name(&self, comm: Comm) -> Option<&str> {
        let index = (comm.0 as usize).checked_sub(1)?;
        self.names.get(index).map(String::as_str)
    }
}

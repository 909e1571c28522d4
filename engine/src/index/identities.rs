//! Identities, each kept once, so that a sequence needs four bytes for its own.

use std::collections::HashMap;

use crate::ids::ClientIdentity;

/// The identities seen so far: as many as processes have been connected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identities {
    list: Vec<ClientIdentity>,
    index: HashMap<ClientIdentity, u32>,
}

impl Identities {
    /// The number of an identity.
    pub(crate) fn intern(&mut self, identity: ClientIdentity) -> u32 {
        if let Some(last) = self.list.last()
            && *last == identity
        {
            return self.list.len() as u32 - 1;
        }
        *self.index.entry(identity).or_insert_with(|| {
            self.list.push(identity);
            self.list.len() as u32 - 1
        })
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> ClientIdentity {
        self.list[number as usize]
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.list.capacity() * size_of::<ClientIdentity>() + self.index.capacity() * 20
    }
}

//! Where the chunks of a writer go: into a buffer of the service, or to a place that is reserved
//! because no service has named the buffer yet.
//!
//! ```text
//!   writer -- chunk for reservation 3 --> batch: waits       service: "instance 8 writes into buffer 2"
//!                                           |                        |
//!                                           +--- all for 3 <-- bind 3 to 2 --> CommitData, buffer 2
//! ```
//!
//! Writers keep the reservation that they were made with; what they return later takes the same
//! way.

use std::collections::BTreeMap;

/// No buffer has this number. The service discards what comes for it, and frees its chunks.
const NO_BUFFER: u16 = 0;

/// A buffer, or a reservation in the upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target(u32);

/// A place for what is written before its buffer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reservation(u16);

impl Target {
    /// A buffer of the service.
    pub(crate) fn buffer(number: u16) -> Self {
        Self(number.into())
    }

    pub(crate) fn reserved(reservation: Reservation) -> Self {
        Self(u32::from(reservation.0) << 16)
    }

    /// As it stands in a request that has not left yet.
    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// The reservations of an arbiter. `None`: not bound yet.
#[derive(Debug, Default)]
pub(super) struct Reservations(BTreeMap<u16, Option<u16>>);

impl Reservations {
    /// A new one, unless 65,535 were made.
    pub(super) fn reserve(&mut self) -> Option<Reservation> {
        let number = u16::try_from(self.0.len() + 1).ok()?;
        self.0.insert(number, None);
        Some(Reservation(number))
    }

    /// The buffer is known, or there will be none. Only the first call has an effect.
    pub(super) fn bind(&mut self, Reservation(number): Reservation, buffer: Option<u16>) {
        if let Some(bound @ None) = self.0.get_mut(&number) {
            *bound = Some(buffer.unwrap_or(NO_BUFFER));
        }
    }

    /// Whether none was ever made.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The buffer that [`Target::number`] stands for, if it is known.
    pub(super) fn buffer_of(&self, number: u32) -> Option<u16> {
        match (number >> 16) as u16 {
            0 => Some(number as u16),
            reservation => *self.0.get(&reservation)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_bound_once() {
        let mut all = Reservations::default();
        let (first, second) = (all.reserve().unwrap(), all.reserve().unwrap());
        let buffer_of = |all: &Reservations, target: Target| all.buffer_of(target.number());
        assert_eq!(buffer_of(&all, Target::buffer(65535)), Some(65535));
        assert_eq!(buffer_of(&all, Target::reserved(first)), None);
        all.bind(first, Some(7));
        all.bind(first, None);
        all.bind(second, None);
        assert_eq!(buffer_of(&all, Target::reserved(first)), Some(7));
        assert_eq!(buffer_of(&all, Target::reserved(second)), Some(NO_BUFFER));
    }

    #[test]
    fn there_are_as_many_as_numbers() {
        let mut all = Reservations::default();
        assert_eq!((1..=70_000).filter_map(|_| all.reserve()).count(), 65_535);
    }
}

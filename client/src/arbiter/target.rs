//! Where the chunks of a writer go: into a buffer of the service, or to a place that is reserved
//! because no service has named the buffer yet.
//!
//! ```text
//!   writer -- chunk for reservation 3 --> batch 3, which     service: "instance 8 writes into buffer 2"
//!                                         is not sent               |
//!                                           |                       |
//!                                           +-- appended <-- bind 3 to 2
//!                                                  v
//!   writer -- chunk for buffer 2 ---------> the batch that is sent
//! ```
//!
//! Writers keep the reservation that they were made with; what they return once it is bound goes
//! into the batch that is sent, as everything else.

use super::batch::Batch;

/// No buffer has this number. The service discards what comes for it, and frees its chunks.
const NO_BUFFER: u16 = 0;

/// Where a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Buffer(u16),
    Reserved(BufferReservation),
}

/// A place for what is written before its buffer is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferReservation(usize);

enum Reserved {
    Waiting(Batch),
    Bound(u16),
}

/// What is to be sent, and what waits for its buffer.
pub(super) struct Batches {
    sent: Batch,
    reserved: Vec<Reserved>,
}

impl Batches {
    pub(super) fn new() -> Self {
        Self { sent: Batch::new(), reserved: Vec::new() }
    }

    pub(super) fn reserve(&mut self) -> BufferReservation {
        self.reserved.push(Reserved::Waiting(Batch::waiting()));
        BufferReservation(self.reserved.len() - 1)
    }

    /// The buffer is known, or there will be none. Only the first call has an effect.
    pub(super) fn bind(&mut self, BufferReservation(index): BufferReservation, buffer: Option<u16>) {
        let buffer = buffer.unwrap_or(NO_BUFFER);
        if let reserved @ Reserved::Waiting(_) = &mut self.reserved[index]
            && let Reserved::Waiting(batch) = std::mem::replace(reserved, Reserved::Bound(buffer))
        {
            self.sent.append(batch, buffer);
        }
    }

    /// The batch for what goes to a target, and the buffer to name there.
    pub(super) fn of(&mut self, target: Target) -> (&mut Batch, u16) {
        match target {
            Target::Buffer(buffer) => (&mut self.sent, buffer),
            Target::Reserved(BufferReservation(index)) => match &mut self.reserved[index] {
                Reserved::Waiting(batch) => (batch, NO_BUFFER),
                Reserved::Bound(buffer) => (&mut self.sent, *buffer),
            },
        }
    }

    /// What is to be sent, and is not for a writer.
    pub(super) fn sent(&mut self) -> &mut Batch {
        &mut self.sent
    }

    /// Everything, as nobody will send it.
    pub(super) fn take_all(&mut self) -> impl Sized + use<> {
        let waiting: Vec<Reserved> =
            self.reserved.iter_mut().map(|one| std::mem::replace(one, Reserved::Bound(NO_BUFFER))).collect();
        (waiting, self.sent.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_sent_when_its_buffer_is_known() {
        let mut batches = Batches::new();
        let [first, second] = [(); 2].map(|()| batches.reserve());
        let register = |batches: &mut Batches, writer_id: u16, target: Target| {
            let (batch, buffer) = batches.of(target);
            batch.register(writer_id, buffer);
        };
        register(&mut batches, 1, Target::Reserved(first));
        register(&mut batches, 2, Target::Reserved(second));
        register(&mut batches, 3, Target::Buffer(9));
        assert_eq!(batches.sent().take().registered, [(3, 9)]);
        batches.bind(first, Some(7));
        batches.bind(first, Some(8));
        register(&mut batches, 4, Target::Reserved(first));
        assert_eq!(batches.sent().take().registered, [(1, 7), (4, 7)], "it is bound once");
        batches.bind(second, None);
        assert_eq!(batches.sent().take().registered, [(2, NO_BUFFER)]);
    }
}

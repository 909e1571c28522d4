//! Drives a buffer and the model through one history and compares them after every step.

mod commits;

use std::any::Any;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::committed::{Committed, Writer};
pub use crate::compare::Scope;
use crate::compare::same;
use crate::history::{History, Start, Step};
use crate::subject::Subject;
use crate::{Model, Packet, Policy, loss};

/// Writers of a history: two for each producer.
const WRITERS: u8 = 4;

/// What a history led to.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// Steps that were compared.
    pub steps: u64,
    /// Packets that were read and equal.
    pub packets: u64,
    /// All loss bits that were seen.
    pub loss_bits: u32,
    /// The final statistics.
    pub stats: crate::Stats,
    /// The final ledger.
    pub ledger: crate::Ledger,
}

impl Reached {
    fn count(&mut self, packet: &Packet) {
        self.packets += 1;
        self.loss_bits |= packet.loss;
    }
}

/// Runs the history on a new `S` and a new model.
///
/// # Errors
///
/// The steps up to the first difference as a chain, and the difference; a panic is one.
pub fn run<S: Subject>(history: &History) -> Result<Reached, String> {
    run_in::<S>(history, Scope::All)
}

/// As [`run`], comparing only a part.
///
/// # Errors
///
/// As [`run`].
pub fn run_in<S: Subject>(history: &History, scope: Scope) -> Result<Reached, String> {
    let mut run = Run::<S>::new(history, scope);
    for step in &history.steps {
        let outcome = catch_unwind(AssertUnwindSafe(|| run.step(step).and_then(|()| run.compare())));
        outcome
            .unwrap_or_else(|panic| Err(format!("panic: {}", text_of(&*panic))))
            .map_err(|difference| format!("{}\n    => {difference}\n", run.chain))?;
        run.reached.steps += 1;
    }
    run.end()
        .and_then(|()| run.compare_image())
        .map_err(|difference| format!("{}\n    => {difference}\n", run.chain))?;
    run.reached.stats = run.model.stats();
    run.reached.ledger = run.model.ledger();
    Ok(run.reached)
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a text")
}

fn absorb_every_other(packet: &Packet) -> bool {
    packet.slices[0][0] & 1 == 1
}

/// What a committer that is stopped will commit.
struct Held {
    ticket: u64,
    writer: usize,
    chunk: Committed,
    complete: bool,
}

struct Run<S> {
    scope: Scope,
    subject: S,
    model: Model,
    writers: Vec<Writer>,
    /// Processes that had each producer id before.
    epochs: [i32; 2],
    serial: u32,
    /// Chunks that were committed in stretches.
    in_stretches: usize,
    next_ticket: u64,
    /// Committers that are stopped.
    held: Vec<Held>,
    /// What was done, readable.
    chain: String,
    reached: Reached,
}

impl<S: Subject> Run<S> {
    fn new(history: &History, scope: Scope) -> Self {
        let setup = &history.setup;
        let size = match scope {
            Scope::All => setup.size_bytes(),
            Scope::Packets { size_bytes } => size_bytes,
        };
        // A buffer of many shards is a ring and has no sink.
        let is_one = scope == Scope::All || !S::HAS_TICKETS;
        let policy = if setup.discard && is_one { Policy::Discard } else { Policy::Ring };
        let absorb = (setup.sink && is_one).then_some(absorb_every_other as crate::Absorb);
        let highest = match setup.start {
            Start::Zero => u32::MAX,
            Start::BeforeWrap => u32::MAX - 4,
            Start::BeforeSign => (1 << 31) - 4,
        };
        let sink = if absorb.is_some() { ", sink" } else { "" };
        Self {
            scope,
            subject: S::create(size, policy, absorb),
            model: Model::create(size, policy, absorb),
            writers: (0..WRITERS).map(|i| Writer::new(i, highest)).collect(),
            in_stretches: 0,
            next_ticket: 1,
            held: Vec::new(),
            epochs: [0; 2],
            serial: 0,
            chain: format!("buffer({size}, {policy:?}{sink})"),
            reached: Reached::default(),
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Commit { writer, id, contents } => self.commit_new(*writer, *id, contents),
            Step::Stretch(stretch) => self.stretch(stretch),
            Step::Recommit { writer, nth_newest, change, complete } => {
                self.recommit(*writer, *nth_newest, change, *complete)
            }
            Step::Patch { writer, nth_newest, places, pending } => {
                self.patch(*writer, *nth_newest, places, *pending)
            }
            Step::EndWriter { writer, restart } => {
                let writer = &mut self.writers[usize::from(writer % WRITERS)];
                let (producer_id, writer_id) = (writer.producer_id, writer.writer_id);
                if *restart {
                    writer.restart();
                }
                self.note(format_args!("end_writer({producer_id}/{writer_id})"));
                self.subject.end_writer(producer_id, writer_id);
                self.model.end_writer(producer_id, writer_id);
                Ok(())
            }
            Step::EndProducer { writer } => {
                let producer_id = self.writers[usize::from(writer % WRITERS)].producer_id;
                self.writers.iter_mut().filter(|w| w.producer_id == producer_id).for_each(Writer::restart);
                self.epochs[(producer_id >> 16) as usize] += 1;
                self.note(format_args!("end_producer({producer_id})"));
                self.subject.end_producer(producer_id);
                self.model.end_producer(producer_id);
                Ok(())
            }
            // A buffer that reads ahead returns losses in another way.
            Step::ReturnLoss { .. } if S::READS_ALL => Ok(()),
            Step::ReturnLoss { writer, bits } => {
                let writer = &self.writers[usize::from(writer % WRITERS)];
                let (producer_id, writer_id) = (writer.producer_id, writer.writer_id);
                let bits = u32::from(bits & 0x1ff) | loss::PRESENT;
                self.note(format_args!("return_loss({producer_id}/{writer_id}, {bits})"));
                self.subject.return_loss(producer_id, writer_id, bits);
                self.model.return_loss(producer_id, writer_id, bits);
                Ok(())
            }
            Step::Hold { writer, contents } => self.hold(*writer, contents),
            Step::Release(nth) => self.release(*nth),
            Step::Read { limit } => self.read(*limit),
            Step::ReadOn { limit } => self.read_on(*limit),
            Step::Clone => self.clone_and_read(),
        }
    }

    /// All smaller tickets are queued.
    fn cut(&self) -> u64 {
        self.held.iter().map(|held| held.ticket).fold(self.next_ticket, u64::min)
    }

    fn read(&mut self, limit: u8) -> Result<(), String> {
        let cut = S::HAS_TICKETS.then(|| self.cut());
        let below = cut.map_or(String::new(), |cut| format!(" below {cut}"));
        if limit == u8::MAX || S::READS_ALL {
            self.note(format_args!("read(all{below})"));
            return read_all(&mut self.subject, &mut self.model, cut, &mut self.reached);
        }
        self.note(format_args!("read({limit}{below})"));
        match cut {
            None => {
                self.subject.begin_read();
                self.model.begin_read();
            }
            Some(cut) => {
                self.subject.begin_read_below(cut);
                self.model.begin_read_below(cut);
            }
        }
        self.read_next(limit.into())
    }

    fn read_on(&mut self, limit: u8) -> Result<(), String> {
        if S::READS_ALL {
            return Ok(());
        }
        self.note(format_args!("read on({limit})"));
        self.read_next(if limit == u8::MAX { usize::MAX } else { limit.into() })
    }

    fn read_next(&mut self, limit: usize) -> Result<(), String> {
        for i in 0..limit {
            let (got, expected) = (self.subject.read_next(), self.model.read_next());
            same(&format!("packet {i}"), &got, &expected)?;
            let Some(packet) = expected else { break };
            self.reached.count(&packet);
        }
        Ok(())
    }

    fn clone_and_read(&mut self) -> Result<(), String> {
        self.note(format_args!("clone, read(all) of it"));
        let cut = S::HAS_TICKETS.then(|| self.cut());
        let (mut subject, mut model) = (self.subject.clone_read_only(), Model::clone_read_only(&self.model));
        self.scope.compare(&mut subject, &mut model)?;
        self.scope.compare_image(&mut subject, &model)?;
        if !S::READS_ALL {
            same("read_next without begin_read", &subject.read_next(), &model.read_next())?;
        }
        read_all(&mut subject, &mut model, cut, &mut self.reached)?;
        self.scope.compare(&mut subject, &mut model)
    }

    /// Committers that are stopped go on, and everything is read.
    fn end(&mut self) -> Result<(), String> {
        while !self.held.is_empty() {
            self.release(0)?;
        }
        self.read(u8::MAX)?;
        self.compare()
    }

    fn compare(&mut self) -> Result<(), String> {
        self.model.check();
        self.scope.compare(&mut self.subject, &mut self.model)
    }

    fn compare_image(&mut self) -> Result<(), String> {
        self.scope.compare_image(&mut self.subject, &self.model)
    }

    fn note(&mut self, call: std::fmt::Arguments<'_>) {
        write!(self.chain, "\n    .{call}").expect("strings take all text");
    }
}

fn read_all<S: Subject>(
    subject: &mut S,
    model: &mut Model,
    cut: Option<u64>,
    reached: &mut Reached,
) -> Result<(), String> {
    let (got, mut expected) = match cut {
        None => (subject.read_all(), model.read_all()),
        Some(cut) => (subject.read_all_below(cut), model.read_all_below(cut)),
    };
    if S::READS_ALL {
        expected.iter_mut().for_each(|packet| packet.slices = vec![packet.slices.concat()]);
    }
    for (i, packet) in expected.iter().enumerate() {
        same(&format!("packet {i}"), &got.get(i), &Some(packet))?;
        reached.count(packet);
    }
    same("packets", &got.len(), &expected.len())?;
    same("read_next after the end", &subject.read_next(), &model.read_next())
}

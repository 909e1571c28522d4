//! Drives a buffer and the model through one history and compares them after every step.

use std::any::Any;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::committed::{Committed, Writer, names_of};
pub use crate::compare::Scope;
use crate::compare::same;
use crate::history::{Change, Contents, History, IdPick, Place, Start, Step, Stretch};
use crate::subject::Subject;
use crate::{Chunk, Identity, Model, Packet, Patch, Policy, flag, loss};

/// Writers of a history: two for each producer.
const WRITERS: u8 = 4;

/// Chunks that a history commits in stretches, at most.
const MOST_IN_STRETCHES: usize = 4000;

/// Committers that are stopped at once, at most.
const MOST_HELD: usize = 3;

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

/// As [`run`], for a part of what can be compared.
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
    epochs: [i32; 3],
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
            epochs: [0; 3],
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
                self.epochs[usize::from(producer_id)] += 1;
                self.note(format_args!("end_producer({producer_id})"));
                self.subject.end_producer(producer_id);
                self.model.end_producer(producer_id);
                Ok(())
            }
            // Who reads ahead gives losses back in another way.
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

    fn commit_new(&mut self, writer: u8, id: IdPick, contents: &Contents) -> Result<(), String> {
        let index = usize::from(writer % WRITERS);
        let chunk = self.new_chunk(index, id, contents);
        self.commit(index, chunk, contents.complete)
    }

    fn new_chunk(&mut self, writer: usize, id: IdPick, contents: &Contents) -> Committed {
        let writer = &self.writers[writer];
        let id = match id {
            IdPick::Next => writer.highest.wrapping_add(1),
            IdPick::Skip(n) => writer.highest.wrapping_add(2 + u32::from(n % 3)),
            IdPick::Back(n) => writer.highest.wrapping_sub(u32::from(n % 8)),
            IdPick::Any(id) => id,
        };
        let mut flags = contents.other_flags & !flag::KNOWN;
        flags |= u8::from(writer.continues != contents.flip_first_continues) * flag::FIRST_CONTINUES;
        flags |= u8::from(contents.last_continues) * flag::LAST_CONTINUES;
        flags |= u8::from(contents.needs_patching) * flag::NEEDS_PATCHING;
        let fragments: Vec<_> = contents.fragments.iter().map(|f| f.bytes(&mut self.serial)).collect();
        let declared = contents.declared.of(fragments.len());
        let slack = vec![contents.slack.byte; usize::from(contents.slack.len)];
        Committed { id, fragments, declared, flags, slack }
    }

    /// The ticket of the next commit.
    fn take_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket - 1
    }

    /// All smaller tickets are queued.
    fn cut(&self) -> u64 {
        self.held.iter().map(|held| held.ticket).fold(self.next_ticket, u64::min)
    }

    fn hold(&mut self, writer: u8, contents: &Contents) -> Result<(), String> {
        if !S::HAS_TICKETS || self.held.len() == MOST_HELD {
            return self.commit_new(writer, IdPick::Next, contents);
        }
        let index = usize::from(writer % WRITERS);
        let chunk = self.new_chunk(index, IdPick::Next, contents);
        let ticket = self.take_ticket();
        let Writer { producer_id, writer_id, .. } = self.writers[index];
        self.note(format_args!("ticket {ticket} is for {producer_id}/{writer_id}, id {}", chunk.id));
        self.subject.announce(ticket);
        self.writers[index].remember(chunk.clone());
        self.held.push(Held { ticket, writer: index, chunk, complete: contents.complete });
        Ok(())
    }

    fn release(&mut self, nth: u8) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let Held { ticket, writer, mut chunk, complete } =
            self.held.remove(usize::from(nth) % self.held.len());
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        if !self.model.has_one_order(producer_id, writer_id, chunk.id) {
            // It must go on all the same, without a word.
            (chunk.fragments, chunk.slack, chunk.declared) = (Vec::new(), Vec::new(), 0);
            chunk.id = self.writers[writer].highest;
        }
        self.note_commit("goes on: ", writer, &chunk, complete);
        let bytes = chunk.bytes();
        let chunk = self.chunk_of(writer, &chunk, complete, &bytes);
        self.model.set_ticket(ticket);
        same("commit", &self.subject.commit_announced(ticket, &chunk), &self.model.commit(&chunk))
    }

    fn recommit(
        &mut self,
        writer: u8,
        nth_newest: u8,
        change: &Change,
        complete: bool,
    ) -> Result<(), String> {
        let index = usize::from(writer % WRITERS);
        let Some(mut chunk) = self.nth_newest(index, nth_newest) else {
            return Ok(());
        };
        match change {
            Change::Same => {}
            Change::Grow(more) => {
                for fragment in more {
                    let bytes = fragment.bytes(&mut self.serial);
                    chunk.slack.truncate(chunk.slack.len().saturating_sub(bytes.len()));
                    chunk.fragments.push(bytes);
                    chunk.declared = chunk.declared.saturating_add(1);
                }
            }
            Change::Shrink(n) => {
                let keep = chunk.fragments.len().saturating_sub(usize::from(*n));
                chunk.fragments.truncate(keep);
                chunk.declared = keep as u16;
            }
            Change::Replace(fragments, declared) => {
                chunk.fragments = fragments.iter().map(|f| f.bytes(&mut self.serial)).collect();
                chunk.declared = declared.of(fragments.len());
            }
            Change::Flags(flags) => chunk.flags = *flags,
            Change::Continue(needs_patching) => {
                chunk.flags |= flag::LAST_CONTINUES | (u8::from(*needs_patching) * flag::NEEDS_PATCHING);
            }
        }
        self.commit(index, chunk, complete)
    }

    fn nth_newest(&self, writer: usize, nth_newest: u8) -> Option<Committed> {
        self.writers[writer].commits.iter().rev().nth(usize::from(nth_newest)).cloned()
    }

    fn commit(&mut self, writer: usize, committed: Committed, complete: bool) -> Result<(), String> {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        if self.model.has_one_order(producer_id, writer_id, committed.id) {
            self.note_commit("", writer, &committed, complete);
        }
        self.commit_silently(writer, committed, complete)
    }

    fn note_commit(&mut self, how: &str, writer: usize, committed: &Committed, complete: bool) {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        let Committed { id, fragments, declared, flags, slack } = committed;
        let bytes = committed.bytes();
        let sizes = fragments.iter().map(Vec::len).collect::<Vec<_>>();
        let raw = bytes.iter().take(24).map(|b| format!("{b:02x}")).collect::<String>();
        self.note(format_args!(
            "{how}commit({producer_id}/{writer_id}, id {id}, {}, {}, {declared} of {sizes:?} + {} = {} bytes {raw}..)",
            if complete { "complete" } else { "scraped" },
            names_of(*flags),
            slack.len(),
            bytes.len(),
        ));
    }

    fn chunk_of<'a>(
        &self,
        writer: usize,
        committed: &Committed,
        complete: bool,
        bytes: &'a [u8],
    ) -> Chunk<'a> {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        let identity = Identity {
            uid: i32::from(producer_id),
            pid: 100 + self.epochs[usize::from(producer_id)],
            machine_id: u32::from(producer_id) - 1,
        };
        let &Committed { id: chunk_id, declared: num_fragments, flags, .. } = committed;
        Chunk { producer_id, writer_id, identity, chunk_id, num_fragments, flags, complete, bytes }
    }

    fn commit_silently(&mut self, writer: usize, committed: Committed, complete: bool) -> Result<(), String> {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        if !self.model.has_one_order(producer_id, writer_id, committed.id) {
            return Ok(());
        }
        let bytes = committed.bytes();
        let chunk = self.chunk_of(writer, &committed, complete, &bytes);
        if S::HAS_TICKETS {
            let ticket = self.take_ticket();
            self.subject.set_ticket(ticket);
            self.model.set_ticket(ticket);
        }
        same("commit", &self.subject.commit(&chunk), &self.model.commit(&chunk))?;
        self.writers[writer].remember(committed);
        Ok(())
    }

    fn stretch(&mut self, stretch: &Stretch) -> Result<(), String> {
        let open: Vec<_> = self.writers.iter().map(|writer| writer.continues).collect();
        let mut next: Vec<_> = self.writers.iter().map(|writer| writer.highest.wrapping_add(1)).collect();
        self.note(format_args!("{stretch:?} from ids {next:?}"));
        let mut chunks = Vec::new();
        let mut continues = open.clone();
        for (nth, page) in stretch.pages(&open).into_iter().enumerate() {
            let writer = usize::from(page.writer);
            let id = next[writer].wrapping_add(u32::from(stretch.skips_before(nth)));
            next[writer] = id.wrapping_add(1);
            let flags = [
                (continues[writer], flag::FIRST_CONTINUES),
                (page.goes_on, flag::LAST_CONTINUES),
                (page.needs_patching, flag::NEEDS_PATCHING),
            ];
            let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
            continues[writer] = page.goes_on;
            let fragments: Vec<_> = page.fragments.iter().map(|f| f.bytes(&mut self.serial)).collect();
            let declared = fragments.len() as u16;
            chunks.push((writer, Committed { id, fragments, declared, flags, slack: Vec::new() }));
        }
        for (nth, complete) in stretch.order(chunks.len()) {
            if self.in_stretches < MOST_IN_STRETCHES {
                self.in_stretches += 1;
                let (writer, chunk) = chunks[nth].clone();
                self.commit_silently(writer, chunk, complete)
                    .map_err(|told| format!("chunk {nth} of the stretch: {told}"))?;
            }
        }
        Ok(())
    }

    fn patch(&mut self, writer: u8, nth_newest: u8, places: &[Place], pending: bool) -> Result<(), String> {
        let index = usize::from(writer % WRITERS);
        let (producer_id, writer_id) = (self.writers[index].producer_id, self.writers[index].writer_id);
        let chunk = self.nth_newest(index, nth_newest);
        let id = chunk.as_ref().map_or(77_777, |chunk| chunk.id);
        let fragments = chunk.map_or(Vec::new(), |chunk| chunk.fragments);
        let total: usize = fragments.iter().map(Vec::len).sum();
        let last = fragments.last().map_or(&[][..], |fragment| fragment);
        let header = last.iter().position(|&byte| byte < 0x80).map_or(0, |i| i + 1);
        let room = last.len().saturating_sub(header + 3).max(1);
        let patches: Vec<_> = places
            .iter()
            .map(|place| {
                self.serial += 1;
                let offset = match *place {
                    Place::LastBody(n) => (total - last.len() + header + usize::from(n) % room) as u32,
                    Place::Offset(n) => u32::from(n),
                    Place::NearEnd(n) => (total as u32).wrapping_add(u32::from(n)).wrapping_sub(6),
                    Place::Far(n) => n,
                };
                Patch { offset, data: self.serial.to_be_bytes() }
            })
            .collect();
        let offsets: Vec<_> = patches.iter().map(|patch| patch.offset).collect();
        self.note(format_args!(
            "patch({producer_id}/{writer_id}, id {id}, at {offsets:?}, pending {pending})"
        ));
        let subject = self.subject.patch(producer_id, writer_id, id, &patches, pending);
        same("patch", &subject, &self.model.patch(producer_id, writer_id, id, &patches, pending))
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

//! Which thread ran on each CPU.

use watershed_wire::DecodeError;
use watershed_wire::packet::Envelope;

use super::canvas::{Row, Shapes, Slice, Window};
use super::names::{Text, Texts};
use crate::inspect::top::{Bundles, Comms, IDLE, What};

#[derive(Debug, Default)]
struct Cpu {
    row: Row,
    /// Who runs, and since when.
    current: Option<(u64, Text)>,
}

impl Cpu {
    fn leave(&mut self, at_ns: u64, window: &Window, shapes: &mut Shapes) {
        // Of who is lost at once nothing is known.
        if let Some((begin_ns, name)) = self.current.take().filter(|&(begin_ns, _)| begin_ns < at_ns) {
            let slice = Slice { begin_ns, end_ns: at_ns, name, is_open: false };
            self.row.add(0, slice, window, shapes);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Cpus {
    bundles: Bundles,
    comms: Comms,
    cpus: Vec<Cpu>,
    last_ns: u64,
}

impl Cpus {
    pub(super) fn take_loss(&mut self, envelope: &Envelope<'_>) {
        self.bundles.take_loss(envelope);
    }

    pub(super) fn take(
        &mut self,
        envelope: &Envelope<'_>,
        bundle: &[u8],
        window: &Window,
        texts: &mut Texts,
        shapes: &mut Shapes,
    ) -> Result<(), DecodeError> {
        let mut events = self.bundles.read(envelope, bundle, &mut self.comms)?;
        // Columns come first, switches and what is lost among them.
        events.sort_by_key(|event| event.at_ns);
        for event in events {
            let cpu = event.cpu as usize;
            if cpu >= self.cpus.len() {
                self.cpus.resize_with(cpu + 1, Cpu::default);
            }
            self.last_ns = self.last_ns.max(event.at_ns);
            let cpu = &mut self.cpus[cpu];
            match event.what {
                What::Switch { next, next_comm, .. } => {
                    cpu.leave(event.at_ns, window, shapes);
                    if next != IDLE {
                        let comm = self.comms.name(next_comm).unwrap_or("thread");
                        cpu.current = Some((event.at_ns, texts.number(&format!("{comm} {next}"))));
                    }
                }
                What::LostFrom => cpu.leave(event.at_ns, window, shapes),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn finish(&mut self, window: &Window, shapes: &mut Shapes) {
        let last_ns = self.last_ns;
        self.cpus.iter_mut().for_each(|cpu| cpu.leave(last_ns, window, shapes));
    }

    /// Rows by number of the CPU; none if its times are of another clock than the trace's.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, &Row)> {
        let rows = self.cpus.iter().enumerate().filter(|_| !self.bundles.has_own_clock);
        rows.map(|(number, cpu)| (number, &cpu.row))
    }

    pub(super) fn has_own_clock(&self) -> bool {
        self.bundles.has_own_clock
    }
}

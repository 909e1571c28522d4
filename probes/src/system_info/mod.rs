//! `linux.system_info`: what the machine is made of, told once, when the source starts.
//!
//! ```text
//!   /proc/cpuinfo                 model, identification and features  --.
//!   /sys/devices/system/cpu/cpuN  capacity, frequencies               ---+--> CpuInfo, by CPU number
//!   /proc/interrupts              with irq_names: true                ------> InterruptInfo
//! ```

mod cpus;
mod interrupts;
#[cfg(test)]
mod tests;

use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{InterruptInfo, SystemInfoConfig, TracePacket};

use crate::file::{read_path, text};
use crate::probe::Probe;
use crate::{Notices, Roots};

/// The name under which configs ask for this source.
pub const SYSTEM_INFO_NAME: &str = "linux.system_info";

/// The probe behind `linux.system_info`.
pub struct SystemInfoProbe {
    roots: Roots,
    notices: Notices,
    irq_names: bool,
    told: bool,
}

impl SystemInfoProbe {
    /// Reads nothing yet. What this machine does not say goes to `notices` when it is read.
    pub fn new(roots: &Roots, config: &SystemInfoConfig, notices: &Notices) -> Self {
        Self { roots: roots.clone(), notices: notices.clone(), irq_names: config.irq_names(), told: false }
    }

    fn say(&self, text: impl Into<String>) {
        self.notices.add(SYSTEM_INFO_NAME, text);
    }

    fn interrupts(&self) -> Option<InterruptInfo> {
        let mut scratch = Vec::new();
        let read = read_path(&self.roots.proc.join("interrupts"), &mut scratch).and_then(text);
        match read.map(interrupts::names) {
            Ok(irq_mapping) if irq_mapping.is_empty() => self.say("irq_names: no interrupt has a name"),
            Ok(irq_mapping) => return Some(InterruptInfo { irq_mapping }),
            Err(error) => self.say(format!("irq_names: cannot read /proc/interrupts ({error})")),
        }
        None
    }
}

impl Probe for SystemInfoProbe {
    fn due_ns(&self) -> Option<u64> {
        (!self.told).then_some(0)
    }

    fn poll(&mut self, now_ns: u64, emit: &mut dyn FnMut(&TracePacket)) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let mut emit = |data| {
            emit(&TracePacket { timestamp: Some(now_ns), data: Some(data), ..TracePacket::default() });
        };
        match cpus::read(&self.roots) {
            Ok(info) => emit(Data::CpuInfo(info)),
            Err(error) => self.say(format!("cannot read /proc/cpuinfo ({error})")),
        }
        if let Some(info) = self.irq_names.then(|| self.interrupts()).flatten() {
            emit(Data::InterruptInfo(info));
        }
    }

    /// Nothing changes: there is no other reading.
    fn hurry(&mut self) {}
}

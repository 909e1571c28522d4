//! Names of interrupts, from /proc/interrupts, which `procfs-core` does not read.
//!
//! ```text
//!              CPU0       CPU1
//!    26:          0         14  IO-APIC   4-edge      ttyS0            x86
//!    13:       7000       8000     GICv3  27 Level     arch_timer      Arm
//!    41:          0          3  cs40l26 IRQ1 Controller  5 Edge  cs40l26 x, y
//!   NMI:          0          0   Non-maskable interrupts               no number: passed over
//! ```

use watershed_wire::protos::interrupt_info::InterruptMapping;

/// What tells the trigger, after which names follow: a word, or the end of one.
const TRIGGERS: [&str; 2] = ["Level", "Edge"];
const TRIGGER_ENDINGS: [&str; 3] = ["-edge", "-level", "-fasteoi"];

/// The interrupts that have a number and a name.
pub(super) fn names(table: &str) -> Vec<InterruptMapping> {
    let mut lines = table.lines();
    let cpus = lines.next().map_or(0, |head| head.split_whitespace().count());
    lines.filter_map(|line| mapping(line, cpus)).collect()
}

fn mapping(line: &str, cpus: usize) -> Option<InterruptMapping> {
    let (number, rest) = line.split_once(':')?;
    let irq_id = number.trim().parse().ok()?;
    // Behind the counts: chip, the chip's number and trigger, names.
    let words: Vec<&str> = rest.split_whitespace().skip(cpus).collect();
    // The first trigger: a handler may have a name like one. Without, chip and number are no name.
    let begin = words.iter().position(|word| is_trigger(word)).map_or(2, |trigger| trigger + 1);
    let name = words.get(begin..)?.join(" ");
    (!name.is_empty()).then_some(InterruptMapping { irq_id: Some(irq_id), name: Some(name) })
}

fn is_trigger(word: &str) -> bool {
    TRIGGERS.contains(&word) || TRIGGER_ENDINGS.iter().any(|ending| word.ends_with(ending))
}

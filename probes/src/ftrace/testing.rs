//! Pages of any origin through the parser and encoder of a session, without a kernel.

use std::sync::Arc;

use super::compact::{SwitchFormat, WakingFormat};
use super::encoder::{Action, Addresses, BundleClock, Choice, Encoder, Role};
use super::format::EventFormat;
use super::page::PageLayout;
use super::plan::{self, GENERIC_FIRST, Generic, Plan};

/// A session that wants all events of some formats.
#[derive(Debug)]
pub struct PageEncoder {
    encoder: Encoder,
    layout: PageLayout,
}

impl PageEncoder {
    /// From the text of `events/header_page`, and of `format` files with their events' groups.
    /// `compact` and `describe_generic` are as in a config. Formats that are not understood are
    /// left out; `None` if the header is not.
    pub fn new(
        header_page: &str,
        formats: &[(&str, &str)],
        compact: bool,
        describe_generic: bool,
    ) -> Option<Self> {
        let layout = PageLayout::parse(header_page)?;
        let mut choice = Choice::default();
        for ((group, text), number) in formats.iter().zip(GENERIC_FIRST..) {
            let Some(format) = EventFormat::parse(text) else { continue };
            choice.common_pid = format.common_field("common_pid").map_or(0, |field| field.offset);
            let how = if describe_generic { Generic::Described(number) } else { Generic::Legacy };
            let compact = compact.then(|| compact_action(group, &format)).flatten();
            let Some(action) = compact.or_else(|| message_action(group, &format, how)) else { continue };
            choice.add(format.id, action, Role::of(group, &format.name));
        }
        Some(Self { encoder: Encoder::new(choice, Addresses::default()), layout })
    }

    /// Encodes pages of one CPU. What is no whole page at the end is passed over.
    pub fn encode(&mut self, cpu: u32, pages: &[u8], emit: &mut dyn FnMut(&[u8])) {
        let pages = pages.chunks_exact(self.layout.page_size_bytes());
        self.encoder.encode(cpu, pages, self.layout, BundleClock::default(), emit);
        self.encoder.end_of_pass();
        self.encoder.pids.take();
    }
}

fn compact_action(group: &str, format: &EventFormat) -> Option<Action> {
    match (group, format.name.as_str()) {
        ("sched", "sched_switch") => SwitchFormat::new(format).map(Action::Switch),
        ("sched", "sched_waking") => WakingFormat::new(format).map(Action::Waking),
        _ => None,
    }
}

fn message_action(group: &str, format: &EventFormat, how: Generic) -> Option<Action> {
    let plan = match plan::is_typed(group, &format.name) {
        true => Plan::typed(format),
        false => Plan::generic(group, format, how),
    };
    plan.map(|plan| Action::Message(Arc::new(plan)))
}

//! Pages of any origin through the parser and encoder of a session, without a kernel.

use super::addresses::Addresses;
use super::compact;
use super::encoder::{Action, BundleClock, Choice, Encoder, Role};
use super::format::EventFormat;
use super::page::PageLayout;
use super::plan::{GENERIC_FIRST, Generic};

/// A session that wants all events of some formats.
#[derive(Debug)]
pub struct PageEncoder {
    encoder: Encoder,
    layout: PageLayout,
}

impl PageEncoder {
    /// From the text of `events/header_page`, and of `format` files with their events' groups.
    /// `compact` and `describe_generic` are as in a config; of several formats of one event that is
    /// written compactly, the last is its own. Formats that are not understood are left out; `None`
    /// if the header is not.
    pub fn new(
        header_page: &str,
        formats: &[(&str, &str)],
        compact: bool,
        describe_generic: bool,
    ) -> Option<Self> {
        let layout = PageLayout::parse(header_page)?;
        let parse = |(group, text): &(_, &str)| Some((*group, EventFormat::parse(text)?));
        let formats: Vec<(&str, EventFormat)> = formats.iter().filter_map(parse).collect();
        let sched = |name: &str| {
            let is_named = |(group, format): &&(&str, EventFormat)| *group == "sched" && format.name == name;
            formats.iter().rev().find(is_named).map(|(_, format)| format)
        };
        let compact = if compact { compact::formats(sched) } else { None };
        let mut choice = Choice::default();
        for ((group, format), number) in formats.iter().zip(GENERIC_FIRST..) {
            choice.common_pid = format.common_field("common_pid").map_or(0, |field| field.offset);
            let how = if describe_generic { Generic::Described(number) } else { Generic::Legacy };
            let Some(action) = Action::of(group, format, compact, || Some(how)) else { continue };
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

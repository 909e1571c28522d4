//! One event: what it is, and what it carries.

use super::args::{ArgValue, ArgWriter};
use super::category::Category;
#[cfg(feature = "tracing")]
use super::encoded::SliceSite;
#[cfg(feature = "tracing")]
use super::heads::FLOW;
use super::heads::{END, EVENT, open_named};
use super::message::Message;
use super::names::{ArgName, EventName, Seen};
#[cfg(feature = "tracing")]
use super::prefix::Prefix;
#[cfg(feature = "tracing")]
use super::stored::StoredArgs;
use super::tracks::{CounterValue, Described, Track};

/// Field of `TracePacket`.
pub(super) const TRACK_EVENT: u32 = 11;

// Fields of TrackEvent.
pub(super) const CATEGORY_IIDS: u32 = 3;
pub(super) const DEBUG_ANNOTATIONS: u32 = 4;
pub(super) const TYPE: u32 = 9;
pub(super) const NAME_IID: u32 = 10;
const TRACK_UUID: u32 = 11;
const NAME: u32 = 23;
const COUNTER_VALUE: u32 = 30;
const DOUBLE_COUNTER_VALUE: u32 = 44;
pub(super) const FLOW_IDS: u32 = 47;
const TERMINATING_FLOW_IDS: u32 = 48;

// Fields of InternedData.
const EVENT_CATEGORIES: u32 = 1;
const EVENT_NAMES: u32 = 2;
const DEBUG_ANNOTATION_NAMES: u32 = 3;

/// Instead of names that a session must not see.
const FILTERED: &str = "FILTERED";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// The name of an event: of the program ([`EventName`]), or of one event only.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    None,
    Static(&'a EventName),
    Dynamic(&'a str),
}

/// What an event is, before its arguments.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) kind: Kind,
    pub(super) name: Name<'a>,
    /// `None`: the thread's.
    pub(super) track: Option<&'a dyn Described>,
    /// Of a counter, which is the track.
    pub(super) value: Option<CounterValue>,
}

/// What a session wants to see of events.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contents {
    pub(super) without_args: bool,
    pub(super) without_dynamic_names: bool,
}

/// An event that is being composed, and what its sequence has explained so far.
#[derive(Debug, Default)]
pub(super) struct Composer {
    contents: Contents,
    /// The packet: first of all its `TrackEvent`.
    pub(super) packet: Message,
    /// The `InternedData` that it needs.
    pub(super) interned: Message,
    names: Seen,
    categories: Seen,
    args: Seen,
    #[cfg(feature = "tracing")]
    sites: Seen,
}

impl Composer {
    pub(super) fn new(contents: Contents) -> Self {
        Self { contents, ..Default::default() }
    }

    /// Nothing is explained any more.
    pub(super) fn forget(&mut self) {
        self.names.clear();
        self.categories.clear();
        self.args.clear();
        #[cfg(feature = "tracing")]
        self.sites.clear();
    }

    #[cfg(feature = "tracing")]
    #[cold]
    fn explain_site(&mut self, site: &SliceSite) {
        let (category, name) = site.numbers();
        if self.categories.is_new(category) {
            explain(&mut self.interned, EVENT_CATEGORIES, category, site.category().name());
        }
        if self.names.is_new(name) {
            explain(&mut self.interned, EVENT_NAMES, name, site.name().text());
        }
        for name in site.args().iter().filter(|_| !self.contents.without_args) {
            let number = name.number();
            if self.args.is_new(number) {
                explain(&mut self.interned, DEBUG_ANNOTATION_NAMES, number, name.text());
            }
        }
    }

    /// Begins the packet of the begin of a slice of the thread whose arguments are kept.
    #[cfg(feature = "tracing")]
    #[inline]
    pub(super) fn compose_begin(&mut self, site: &SliceSite, flow_id: u64, args: StoredArgs<'_>) {
        self.interned.clear();
        let args = if self.contents.without_args { StoredArgs::NONE } else { args };
        let mut tail = self.packet.tail();
        let open = match site.begin().sized(args.size_bytes()) {
            Some(word) => {
                tail.word(word, Prefix::LEN_MAX);
                None
            }
            None => {
                let (category, name) = site.numbers();
                Some(open_named(&mut tail, Kind::SliceBegin, category, name))
            }
        };
        tail.word(FLOW.word, FLOW.len);
        tail.word(flow_id, size_of::<u64>());
        args.put(&mut tail);
        tail.end();
        if let Some(open) = open {
            self.packet.close(open);
        }
        if self.sites.is_new(site.number()) {
            self.explain_site(site);
        }
    }

    /// Begins the packet of an event of the thread, whose name is one of the program.
    #[inline]
    pub(super) fn compose_named(
        &mut self,
        kind: Kind,
        category: &'static Category,
        name: &EventName,
        fill: Fill<'_>,
    ) {
        self.interned.clear();
        let (category_number, name_number) = (category.number(), name.number());
        let mut tail = self.packet.tail();
        let open = open_named(&mut tail, kind, category_number, name_number);
        tail.end();
        if self.categories.is_new(category_number) {
            explain(&mut self.interned, EVENT_CATEGORIES, category_number, category.name());
        }
        if self.names.is_new(name_number) {
            explain(&mut self.interned, EVENT_NAMES, name_number, name.text());
        }
        if let Some(fill) = fill {
            fill(&mut EventWriter(self));
        }
        self.packet.close(open);
    }

    /// Begins the packet of any event with its `TrackEvent`.
    pub(super) fn compose(&mut self, category: &'static Category, event: &Event<'_>, fill: Fill<'_>) {
        self.interned.clear();
        let open = self.packet.open_constant(EVENT.with(TYPE, event.kind as u8));
        if event.kind != Kind::SliceEnd {
            self.category(category);
        }
        match event.name {
            Name::None => {}
            Name::Static(name) => self.name(name),
            Name::Dynamic(name) => self.dynamic_name(name),
        }
        if let Some(track) = event.track {
            self.track(track, event.value);
        }
        if let Some(fill) = fill {
            fill(&mut EventWriter(self));
        }
        self.packet.close(open);
    }

    /// Begins the packet of the end of a slice of the thread.
    #[inline]
    pub(super) fn compose_end(&mut self) {
        self.interned.clear();
        self.packet.constant(END);
    }

    fn dynamic_name(&mut self, name: &str) {
        let name = if self.contents.without_dynamic_names { FILTERED } else { name };
        self.packet.bytes(NAME, name.as_bytes());
    }

    fn track(&mut self, track: &dyn Described, value: Option<CounterValue>) {
        self.packet.varint(TRACK_UUID, track.uuid());
        match value {
            None => {}
            Some(CounterValue::Integer(value)) => self.packet.varint(COUNTER_VALUE, value as u64),
            Some(CounterValue::Double(value)) => self.packet.fixed64(DOUBLE_COUNTER_VALUE, value.to_bits()),
        }
    }

    fn category(&mut self, category: &'static Category) {
        let number = category.number();
        self.packet.varint(CATEGORY_IIDS, number.into());
        if self.categories.is_new(number) {
            explain(&mut self.interned, EVENT_CATEGORIES, number, category.name());
        }
    }

    fn name(&mut self, name: &EventName) {
        let number = name.number();
        self.packet.varint(NAME_IID, number.into());
        if self.names.is_new(number) {
            explain(&mut self.interned, EVENT_NAMES, number, name.text());
        }
    }
}

#[cold]
fn explain(interned: &mut Message, field: u32, number: u32, text: &str) {
    interned.nested(field, |name| {
        name.varint(1, number.into());
        name.bytes(2, text.as_bytes());
    });
}

/// Writes arguments, if there are any.
pub(super) type Fill<'a> = Option<&'a dyn Fn(&mut EventWriter<'_>)>;

/// What an event carries besides its name. It is asked for once for each session that wants the
/// event.
#[derive(Debug)]
pub struct EventWriter<'a>(&'a mut Composer);

impl EventWriter<'_> {
    /// An argument. Its name is a static of the place that writes it; see the macros.
    #[inline]
    pub fn arg(&mut self, name: &ArgName, value: impl ArgValue) {
        let Composer { contents, packet, interned, args, .. } = &mut *self.0;
        if contents.without_args {
            return;
        }
        let number = name.number();
        if args.is_new(number) {
            explain(interned, DEBUG_ANNOTATION_NAMES, number, name.text());
        }
        ArgWriter::put(packet, number, value);
    }

    /// Arguments that were encoded before, as words of which the first `len` bytes have a meaning.
    #[cfg(feature = "tracing")]
    pub(crate) fn encoded_args(&mut self, site: &SliceSite, len: usize, words: impl Iterator<Item = u64>) {
        if self.explains(site) {
            let mut tail = self.0.packet.tail();
            tail.append_words(len, words);
            tail.end();
        }
    }

    /// Arguments that are kept.
    #[cfg(feature = "tracing")]
    pub(crate) fn stored_args(&mut self, site: &SliceSite, args: StoredArgs<'_>) {
        if self.explains(site) {
            let mut tail = self.0.packet.tail();
            args.put(&mut tail);
            tail.end();
        }
    }

    /// Whether there shall be arguments. Then their names are explained.
    #[cfg(feature = "tracing")]
    fn explains(&mut self, site: &SliceSite) -> bool {
        let are_wanted = !self.0.contents.without_args;
        if are_wanted && self.0.sites.is_new(site.number()) {
            self.0.explain_site(site);
        }
        are_wanted
    }

    /// An argument whose name is known only now: it is written in full.
    pub fn dynamic_arg(&mut self, name: &str, value: impl ArgValue) {
        if self.0.contents.without_args {
            return;
        }
        self.0.packet.nested(DEBUG_ANNOTATIONS, |arg| {
            arg.bytes(10, name.as_bytes());
            ArgWriter::put_value(arg, value);
        });
    }

    /// The event is part of a flow: viewers draw an arrow from each event of it to the next one.
    /// Flows of all programs of a trace share their numbers; see
    /// [`flow_id`](crate::track_event::flow_id).
    #[inline]
    pub fn flow(&mut self, flow_id: u64) {
        self.0.packet.fixed64(FLOW_IDS, flow_id);
    }

    /// The event is the last one of a flow.
    pub fn last_of_flow(&mut self, flow_id: u64) {
        self.0.packet.fixed64(TERMINATING_FLOW_IDS, flow_id);
    }

    /// A typed argument: a field of `TrackEvent`, or of an extension of it that the program has in
    /// a schema of its own, with a serialized message or a text.
    pub fn field(&mut self, number: u32, value: &[u8]) {
        self.0.packet.bytes(number, value);
    }
}

impl<'a> Event<'a> {
    pub(super) fn named(kind: Kind, name: Name<'a>, track: Option<&'a Track>) -> Self {
        let track = track.map(|track| track as &dyn Described);
        Self { kind, name, track, value: None }
    }
}

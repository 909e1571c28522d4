//! Places in the program that `tracing` knows, as track events need them.

use std::cell::RefCell;
use std::collections::HashMap;

use tracing_core::callsite::Identifier;
use tracing_core::{Level, Metadata};

use crate::sync::{Mutex, lock};
use crate::track_event::{ArgName, Category, EventName, register_categories};

/// The field of an event that is its text.
pub(super) const MESSAGE: &str = "message";
/// Fields that `tracing-log` gives to the events of the `log` crate: what else is metadata.
pub(super) const LOG_FIELDS: &str = "log.";
/// The one of them that is the target; all these events share one in their metadata.
pub(super) const LOG_TARGET: &str = "log.target";

/// One place: kept for ever, as `tracing` keeps it.
#[derive(Debug)]
pub(super) struct Site {
    category: &'static Category,
    name: EventName,
    /// By the index of the field.
    args: Vec<ArgName>,
    /// It stands for all events of one level of the `log` crate.
    is_log: bool,
}

impl Site {
    pub(super) fn is_enabled(&self) -> bool {
        self.category.is_enabled()
    }

    pub(super) fn category(&self) -> &'static Category {
        self.category
    }

    pub(super) fn is_log(&self) -> bool {
        self.is_log
    }

    pub(super) fn name(&self) -> &EventName {
        &self.name
    }

    pub(super) fn arg(&self, index: usize) -> Option<&ArgName> {
        self.args.get(index)
    }

    /// The place that has this metadata.
    #[inline]
    pub(super) fn of(metadata: &'static Metadata<'static>) -> &'static Site {
        let key = std::ptr::from_ref(metadata).addr();
        let cached = CACHE.try_with(|cache| {
            let mut cache = cache.try_borrow_mut().ok()?;
            let line = &mut cache[key / size_of::<Metadata<'_>>() % CACHE_LINES];
            match line {
                Some((of, site)) if *of == key => Some(*site),
                line => Some(line.insert((key, find(metadata))).1),
            }
        });
        // The thread's locals are gone.
        cached.ok().flatten().unwrap_or_else(|| find(metadata))
    }
}

/// Places that a thread finds without a lock: those that it used last, one for each line.
const CACHE_LINES: usize = 64;

thread_local! {
    static CACHE: RefCell<[Option<(usize, &'static Site)>; CACHE_LINES]> =
        const { RefCell::new([None; CACHE_LINES]) };
}

#[derive(Default)]
struct Known {
    sites: HashMap<Identifier, &'static Site>,
    categories: HashMap<(&'static str, Level), &'static Category>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

impl Known {
    fn category(&mut self, target: &'static str, level: Level) -> &'static Category {
        self.categories.entry((target, level)).or_insert_with(|| {
            let category = Category::new(target).with_tags(tags(level));
            let category: &'static Category = Box::leak(Box::new(category));
            // Services can list it before its first event.
            register_categories(&[category]);
            category
        })
    }
}

/// The category of a target that is known only by its events: one of the `log` crate, which is the
/// name of a module as a rule.
pub(super) fn category_of_log(target: &str, level: Level) -> &'static Category {
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    let found = known.categories.iter().find(|((name, of), _)| *name == target && *of == level);
    match found {
        Some((_, category)) => category,
        None => known.category(String::leak(target.to_owned()), level),
    }
}

#[cold]
fn find(metadata: &'static Metadata<'static>) -> &'static Site {
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    if let Some(site) = known.sites.get(&metadata.callsite()) {
        return site;
    }
    let category = known.category(metadata.target(), *metadata.level());
    let args = metadata.fields().iter().map(|field| ArgName::new(field.name())).collect();
    let is_log = metadata.fields().field(LOG_TARGET).is_some();
    let site = Box::leak(Box::new(Site { category, name: EventName::new(metadata.name()), args, is_log }));
    known.sites.insert(metadata.callsite(), site);
    site
}

fn tags(level: Level) -> &'static [&'static str] {
    match level {
        Level::ERROR => &["error"],
        Level::WARN => &["warn"],
        Level::INFO => &["info"],
        Level::DEBUG => &["debug"],
        Level::TRACE => &["trace", "debug"],
    }
}

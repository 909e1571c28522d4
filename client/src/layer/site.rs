//! Places in the program that `tracing` knows, as track events need them.

use std::cell::Cell;
use std::collections::HashMap;

use tracing_core::{Level, Metadata};

use crate::sync::{Mutex, lock};
use crate::track_event::{ArgName, Category, EventName, SliceSite, register_categories};

/// The field of an event that is its text.
pub(super) const MESSAGE: &str = "message";
/// Fields that `tracing-log` gives to the events of the `log` crate: what else is metadata.
pub(super) const LOG_FIELDS: &str = "log.";
/// The one of them that is the target; all these events share one in their metadata.
pub(super) const LOG_TARGET: &str = "log.target";

/// One place: kept for ever, as `tracing` keeps it.
#[derive(Debug)]
pub(super) struct Site {
    key: usize,
    /// Its arguments are by the index of the field.
    slices: SliceSite,
    /// It stands for all events of one level of the `log` crate.
    is_log: bool,
}

impl Site {
    #[inline]
    pub(super) fn is_enabled(&self) -> bool {
        self.category().is_enabled()
    }

    #[inline]
    pub(super) fn category(&self) -> &'static Category {
        self.slices.category()
    }

    #[inline]
    pub(super) fn is_log(&self) -> bool {
        self.is_log
    }

    #[inline]
    pub(super) fn name(&self) -> &EventName {
        self.slices.name()
    }

    #[inline]
    pub(super) fn args(&self) -> &[ArgName] {
        self.slices.args()
    }

    #[inline]
    pub(super) fn slices(&self) -> &SliceSite {
        &self.slices
    }

    /// Its metadata's address.
    #[inline]
    pub(super) fn key(&self) -> usize {
        self.key
    }

    /// Any place.
    #[cfg(test)]
    pub(super) fn for_tests() -> &'static Site {
        struct Callsite;
        impl tracing_core::Callsite for Callsite {
            fn set_interest(&self, _: tracing_core::Interest) {}
            fn metadata(&self) -> &Metadata<'_> {
                &METADATA
            }
        }
        static METADATA: Metadata<'static> = tracing_core::metadata! {
            name: "test", target: "test", level: Level::INFO, fields: &["number"],
            callsite: &Callsite, kind: tracing_core::Kind::SPAN,
        };
        Self::of(&METADATA)
    }

    /// The place that has this metadata.
    #[inline]
    pub(super) fn of(metadata: &'static Metadata<'static>) -> &'static Site {
        Self::by_key(key_of(metadata)).unwrap_or_else(|| find(metadata))
    }

    /// The place that has this key, if it is among those that the thread used last.
    #[inline]
    pub(super) fn by_key(key: usize) -> Option<&'static Site> {
        CACHE.with(|cache| cache[line(key)].get()).filter(|site| site.key == key)
    }
}

/// Places that a thread finds without a lock: those that it used last, one for each line.
const CACHE_LINES: usize = 64;

fn key_of(metadata: &'static Metadata<'static>) -> usize {
    std::ptr::from_ref(metadata).addr()
}

fn line(key: usize) -> usize {
    key / size_of::<Metadata<'_>>() % CACHE_LINES
}

thread_local! {
    static CACHE: [Cell<Option<&'static Site>>; CACHE_LINES] = const { [const { Cell::new(None) }; CACHE_LINES] };
}

#[derive(Default)]
struct Known {
    /// By the addresses of their metadata.
    sites: HashMap<usize, &'static Site>,
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
    let site = known(metadata);
    CACHE.with(|cache| cache[line(site.key)].set(Some(site)));
    site
}

fn known(metadata: &'static Metadata<'static>) -> &'static Site {
    let mut known = lock(&KNOWN);
    let known = known.get_or_insert_default();
    let key = key_of(metadata);
    if let Some(site) = known.sites.get(&key) {
        return site;
    }
    let site = Box::leak(Box::new(Site {
        key,
        slices: SliceSite::new(
            known.category(metadata.target(), *metadata.level()),
            metadata.name(),
            metadata.fields().iter().map(|field| field.name()),
        ),
        is_log: metadata.fields().field(LOG_TARGET).is_some(),
    }));
    known.sites.insert(key, site);
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

//! The data source `track_event`.

use watershed_wire::protos::{DataSourceDescriptor, TrackEventCategory, TrackEventDescriptor};

use super::category::Category;
use super::registry::{REGISTRY, SESSIONS_MAX};
use crate::data_source::{Context, DataSource, DataSourceFactory, Stop, Wake, WriterSource};

/// Name of the data source.
pub const NAME: &str = "track_event";

/// Makes categories known before their first event, so that services can list them. Call it before
/// [`data_source`] is registered.
pub fn register_categories(categories: &[&'static Category]) {
    for category in categories {
        category.register();
    }
}

/// The data source for all track events of this program, to be registered with a producer. Several
/// producers may have it.
#[must_use]
pub fn data_source() -> Box<dyn DataSourceFactory> {
    Box::new(Factory)
}

struct Factory;

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        let describe = |category: &Category| TrackEventCategory {
            name: Some(category.name().to_owned()),
            description: Some(category.description().to_owned()).filter(|text| !text.is_empty()),
            tags: category.tags().iter().map(|&tag| tag.to_owned()).collect(),
        };
        let available_categories = REGISTRY.categories().into_iter().map(describe).collect();
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_start: Some(true),
            will_notify_on_stop: Some(true),
            handles_incremental_state_clear: Some(true),
            // Threads write for themselves; the service scrapes what they have.
            no_flush: Some(true),
            track_event_descriptor: Some(TrackEventDescriptor { available_categories }),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        Ok(Box::new(Instance { writers: cx.writer_source(), session: None }))
    }
}

struct Instance {
    writers: WriterSource,
    session: Option<u64>,
}

impl DataSource for Instance {
    fn start(&mut self, cx: &mut Context<'_>) -> Wake {
        self.session = REGISTRY.start(cx.config(), self.writers.clone());
        if self.session.is_none() {
            eprintln!("watershed: {SESSIONS_MAX} sessions trace {NAME} already; one more gets nothing");
        }
        Wake::Never
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        self.end();
        Stop::Done
    }

    fn clear_incremental_state(&mut self, _: &mut Context<'_>) {
        self.session.into_iter().for_each(|session| REGISTRY.clear(session));
    }
}

impl Instance {
    fn end(&mut self) {
        self.session.take().into_iter().for_each(|session| REGISTRY.stop(session));
    }
}

/// Also without a stop: the connection may end.
impl Drop for Instance {
    fn drop(&mut self) {
        self.end();
    }
}

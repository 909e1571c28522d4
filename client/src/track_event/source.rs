//! The data source `track_event`.

use watershed_wire::protos::{DataSourceDescriptor, TrackEventCategory, TrackEventDescriptor};

use super::category::Category;
use super::registry::{REGISTRY, SESSIONS_MAX};
use crate::data_source::{Context, DataSource, DataSourceFactory, DescriptorChanged, Stop, Wake};

/// Name of the data source.
pub const NAME: &str = "track_event";

/// Makes categories known before their first event, so that services can list them, and sessions
/// choose them by what they list. The descriptor of the data source has those that are known, and
/// is replaced when there are others.
pub fn register_categories(categories: &[&'static Category]) {
    for category in categories {
        category.register();
    }
}

/// The data source for all track events of this program, to be registered with a producer. Several
/// producers may have it. Eight sessions can have it at the same time; the producer's program is
/// told of one more ([`SetupFailed`](crate::producer::ProducerEvent::SetupFailed)).
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

    fn watch(&mut self, changed: DescriptorChanged) {
        REGISTRY.watch(changed);
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let session = REGISTRY.add_session(cx.config(), cx.writer_source());
        let session = session.ok_or_else(|| format!("{SESSIONS_MAX} sessions have it already"))?;
        Ok(Box::new(Instance { session }))
    }
}

struct Instance {
    session: u64,
}

impl DataSource for Instance {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        REGISTRY.start(self.session);
        Wake::Never
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        REGISTRY.stop(self.session);
        Stop::Done
    }

    fn clear_incremental_state(&mut self, _: &mut Context<'_>) {
        REGISTRY.clear(self.session);
    }
}

/// Also without a stop: the connection may end.
impl Drop for Instance {
    fn drop(&mut self) {
        REGISTRY.stop(self.session);
    }
}

//! Connecting, shared memory, disconnecting.

use std::collections::{BTreeMap, BTreeSet};

use watershed_engine::{ProducerId, WriterId};
use watershed_shards::Batch;
use watershed_smb::{Smb, SmbSize};

use crate::clock::ClockReadings;
use crate::error::ConnectError;
use crate::ids::SessionId;
use crate::limits::{PRODUCER_NAME_BYTES_MAX, PRODUCERS_MAX, is_writer_id};
use crate::output::{ProducerCommand, Warning};
use crate::producer::{
    ChunkSource, ConnectedProducer, HeldCommits, Producer, ProducerHello, ProducerMemory, ProducerWelcome,
    ScrapingMode,
};
use crate::service::Service;

impl Service {
    /// A producer has connected. Whatever it sends before is to be ignored by the shell, and so is
    /// a second hello on one connection.
    ///
    /// # Errors
    ///
    /// [`ConnectError`]; the connection may stay open, but nothing can be done on it.
    pub fn handle_producer_connect(&mut self, hello: ProducerHello) -> Result<ProducerWelcome, ConnectError> {
        if self.locked_down && hello.identity.uid != self.options.uid {
            return Err(ConnectError::LockedDown { uid: hello.identity.uid });
        }
        let producer_id = self.next_producer_id()?;
        let chunks = match hello.memory {
            ProducerMemory::FromService => ChunkSource::None,
            ProducerMemory::Emulated => ChunkSource::Messages,
            ProducerMemory::Provided(memory) => {
                // Requested sizes are adjusted; memory that exists is used as it is or not at all.
                let size = SmbSize::negotiate(hello.page_size_hint_bytes, memory.size_bytes());
                let fits = size.size_bytes() == memory.size_bytes()
                    && (hello.page_size_hint_bytes == 0
                        || size.page_size_bytes() == hello.page_size_hint_bytes);
                fits.then(|| Smb::new(memory, size.page_size_bytes()).ok())
                    .flatten()
                    .map_or(ChunkSource::None, taken_up)
            }
        };
        let welcome = ProducerWelcome {
            producer_id,
            using_provided_memory: matches!(chunks, ChunkSource::Shared(_)),
            emulated: matches!(chunks, ChunkSource::Messages),
        };
        if let ChunkSource::Shared(smb) = &chunks {
            let page_size_bytes = smb.page_size_bytes();
            self.command(producer_id, ProducerCommand::SetupTracing { memory: None, page_size_bytes });
        }
        let producer = Producer {
            name: cut_name(&hello.name).into(),
            client: hello.identity.for_buffer(),
            identity: hello.identity,
            sdk_version: hello.sdk_version,
            page_size_hint_bytes: hello.page_size_hint_bytes,
            shm_size_hint_bytes: hello.shm_size_hint_bytes,
            scraped: match hello.scraping {
                ScrapingMode::Default => self.options.scraping_by_default,
                ScrapingMode::Enabled => true,
                ScrapingMode::Disabled => false,
            },
            chunks,
            warned_of_too_many: false,
            writers: BTreeMap::new(),
            awaited: BTreeMap::new(),
            held: HeldCommits::default(),
            allowed_buffers: BTreeSet::new(),
        };
        self.producers.insert(producer_id, producer);
        self.counters.last_producer_id = producer_id;
        self.counters.producers_seen += 1;
        Ok(welcome)
    }

    /// The producers that are connected, by number.
    pub fn producers(&self) -> impl Iterator<Item = ConnectedProducer<'_>> {
        self.producers.iter().map(|(producer_id, producer)| ConnectedProducer {
            producer_id: *producer_id,
            name: &producer.name,
            sdk_version: &producer.sdk_version,
            identity: &producer.identity,
        })
    }

    /// The next number. It is never used again, whatever comes and goes: it is the key of what the
    /// producer writes, and buffers, sessions and clones may keep that for any time after the
    /// connection has ended.
    fn next_producer_id(&self) -> Result<ProducerId, ConnectError> {
        if self.producers.len() >= PRODUCERS_MAX {
            return Err(ConnectError::TooManyProducers);
        }
        let next = self.counters.last_producer_id.0.checked_add(1);
        next.map(ProducerId).ok_or(ConnectError::NumbersUsedUp)
    }

    /// Makes sure that the producer has memory, and tells it so before anything is set up on it.
    /// The first session that wants something of a producer decides on sizes; they never change
    /// afterwards. False if there is no memory to be had.
    pub(crate) fn ensure_memory(&mut self, producer_id: ProducerId, session_id: SessionId) -> bool {
        let (Some(producer), Some(session)) =
            (self.producers.get_mut(&producer_id), self.sessions.get(&session_id))
        else {
            return false;
        };
        if !matches!(producer.chunks, ChunkSource::None) {
            return true;
        }
        let wish =
            session.config.message().producers.iter().find(|wish| wish.producer_name() == &*producer.name);
        let bytes = |kb: Option<u32>| kb.map_or(0, |kb| kb as usize * 1024);
        let of_config_or = |configured: usize, hint: usize| if configured > 0 { configured } else { hint };
        let size = SmbSize::negotiate(
            of_config_or(bytes(wish.and_then(|wish| wish.page_size_kb)), producer.page_size_hint_bytes),
            of_config_or(bytes(wish.and_then(|wish| wish.shm_size_kb)), producer.shm_size_hint_bytes),
        );
        let made =
            (self.options.memory)(size.size_bytes()).map_err(|error| error.to_string()).and_then(|memory| {
                let smb =
                    Smb::new(memory.clone(), size.page_size_bytes()).map_err(|error| error.to_string())?;
                Ok((memory, smb))
            });
        match made {
            Ok((memory, smb)) => {
                producer.chunks = taken_up(smb);
                let page_size_bytes = size.page_size_bytes();
                self.command(
                    producer_id,
                    ProducerCommand::SetupTracing { memory: Some(memory), page_size_bytes },
                );
                true
            }
            Err(reason) => {
                let producer_name = producer.name.to_string();
                self.warn(Warning::NoSharedMemory { producer_name, size_bytes: size.size_bytes(), reason });
                false
            }
        }
    }

    /// A connection has ended. What the producer has committed stays readable, what it was writing
    /// is scraped if it allowed that, its instances count as stopped, and flushes no longer wait
    /// for it.
    ///
    /// Frames that arrived together with the end of the connection have to be handed over before.
    pub fn handle_producer_disconnect(&mut self, producer_id: ProducerId, now: &ClockReadings) {
        if !self.producers.contains_key(&producer_id) {
            return;
        }
        self.commit_held(producer_id);
        for session_id in self.session_ids() {
            self.scrape(session_id, producer_id);
        }
        self.unregister_all(producer_id, now);
        self.acknowledge_all_flushes(producer_id);
        // Nothing more can come: its sequences go with their data.
        self.sessions.values_mut().for_each(|session| {
            session.producers.remove(&producer_id);
        });
        self.direct.remove_producer(producer_id);
        if let Some(producer) = self.producers.remove(&producer_id) {
            for buffer_id in producer.allowed_buffers {
                let mut end = Batch { ended_producers: vec![producer_id], ..Batch::default() };
                self.buffers.commit(buffer_id, producer_id, &mut end);
            }
        }
    }

    /// A writer of the producer writes to this buffer from now on. Both numbers are cut to 16 bits.
    /// Ignored: ids above [`WRITER_ID_MAX`](crate::limits::WRITER_ID_MAX), and 0.
    pub fn handle_register_trace_writer(
        &mut self,
        producer_id: ProducerId,
        writer_id: u32,
        target_buffer: u32,
    ) {
        let writer_id = writer_id as u16;
        if let Some(producer) = self.producers.get_mut(&producer_id)
            && is_writer_id(writer_id.into())
        {
            producer.writers.insert(writer_id, target_buffer as u16);
        }
    }

    /// A writer of the producer has ended. Its number may come back, with chunks that count from 0.
    pub fn handle_unregister_trace_writer(&mut self, producer_id: ProducerId, writer_id: u32) {
        let writer_id = writer_id as u16;
        // The end of a writer comes behind its chunks. Those of others stay one batch.
        self.commit_held_of_writer(producer_id, writer_id);
        let Some(producer) = self.producers.get_mut(&producer_id) else { return };
        producer.writers.remove(&writer_id);
        // What it has committed itself comes before its end.
        self.direct.remove_writer(producer_id, WriterId(writer_id));
        // A writer may have committed before it was registered, or without being so: every buffer
        // that it could reach is told.
        for buffer_id in &producer.allowed_buffers {
            let ended_writers = vec![(producer_id, WriterId(writer_id))];
            let mut end = Batch { ended_writers, ..Batch::default() };
            self.buffers.commit(*buffer_id, producer_id, &mut end);
        }
    }
}

/// As much of a name as is kept: whole characters.
fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(PRODUCER_NAME_BYTES_MAX)]
}

/// Memory whose chunks this service frees, and counts as it does.
fn taken_up(smb: Smb) -> ChunkSource {
    smb.publish_free_epoch();
    ChunkSource::Shared(smb)
}

//! A small world around the service: a clock that moves when told, producers that write into real
//! shared memory, files in memory. Nothing in it looks at the machine, so a test is its own replay.
#![expect(unreachable_pub, reason = "public to the tests, which are one program")]

pub mod config;
pub mod producer;
pub mod trace;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::{Arc, LazyLock};

use watershed_service::{
    ClockReadings, ConnectError, ConsumerEvent, ConsumerId, EnableError, FileAction, HugePages, Output,
    OutputFile, PacketBatch, PeerIdentity, ProducerCommand, ProducerHello, ProducerId, ReadBegun,
    ReadProgress, Service, ServiceOptions, SessionId, Shards, SystemInfo, Warning, limits::READ_STEP_BYTES,
};
use watershed_smb::SharedMemory;
use watershed_wire::protos;

use self::producer::FakeProducer;
use self::trace::Trace;

pub const SERVICE_UID: i32 = 4242;
pub const MS: u64 = 1_000_000;

/// The file of a session, and what happened to it.
#[derive(Debug, Default)]
pub struct FakeFile {
    pub bytes: Vec<u8>,
    /// Calls of `write_file`.
    pub writes: usize,
    pub syncs: usize,
    pub closed: bool,
    /// Writes fail once the file has this many bytes.
    pub full_at_bytes: Option<usize>,
}

impl FakeFile {
    fn write(&mut self, slices: &[IoSlice<'_>]) -> Result<(), String> {
        let size_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if self.full_at_bytes.is_some_and(|full| self.bytes.len() + size_bytes > full) {
            return Err("no space left on device".to_owned());
        }
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        Ok(())
    }
}

/// Threads for large reads: more than there is to do for them.
static POOL: LazyLock<Arc<rayon::ThreadPool>> =
    LazyLock::new(|| Arc::new(rayon::ThreadPoolBuilder::new().num_threads(3).build().expect("threads")));

/// Between its readings on one thread lie 1, 3, 5, 7 ns and so on: what is timed takes 2 ns more
/// than reading it.
fn filter_clock() -> u64 {
    thread_local!(static READINGS: Cell<u64> = const { Cell::new(0) });
    let readings = READINGS.get();
    READINGS.set(readings + 1);
    readings * readings
}

pub struct World {
    pub service: Service,
    pub now: ClockReadings,
    pub producers: BTreeMap<ProducerId, FakeProducer>,
    pub events: Vec<(ConsumerId, ConsumerEvent)>,
    pub warnings: Vec<Warning>,
    pub files: BTreeMap<SessionId, FakeFile>,
    /// Whether files are written as soon as there is something to write.
    pub writes_files: bool,
}

impl World {
    pub fn new() -> World {
        World::with_seed(1)
    }

    pub fn with_seed(seed: u64) -> World {
        World::with(seed, 1, HugePages::Advise, false)
    }

    /// Buffers of so many shards, where they are large enough.
    pub fn with_shards(num_shards: usize) -> World {
        World::with(1, num_shards, HugePages::Advise, false)
    }

    /// Buffers of the system's pool of huge pages, if it has enough.
    pub fn with_huge_pages() -> World {
        World::with(1, 1, HugePages::Explicit, false)
    }

    /// What may wait is done by the test.
    pub fn that_never_waits() -> World {
        World::with(1, 1, HugePages::Advise, true)
    }

    fn with(seed: u64, num_shards: usize, huge_pages: HugePages, never_waits: bool) -> World {
        let memory = |size_bytes: usize| SharedMemory::anonymous(size_bytes).map(Arc::new);
        let system = SystemInfo {
            sysname: "Linux".to_owned(),
            release: "6.1".to_owned(),
            machine: "x86_64".to_owned(),
            page_size_bytes: Some(4096),
            num_cpus: Some(2),
            ..Default::default()
        };
        let service = Service::new(ServiceOptions {
            seed,
            uid: SERVICE_UID,
            version: "Perfetto v58.0-test".to_owned(),
            system,
            scraping_by_default: false,
            huge_pages,
            shards: Shards::Wanted(num_shards),
            workers: None,
            memory: Box::new(memory),
            read_pool: Box::new(|| Some(Arc::clone(&POOL))),
            never_waits,
            filter_clock: Some(filter_clock),
        });
        // Clocks that differ, so that a mix-up shows.
        let now = ClockReadings {
            boottime_ns: 7_000 * MS,
            realtime_coarse_ns: 1_700_000_000_000 * MS,
            monotonic_coarse_ns: 5_000 * MS,
            realtime_ns: 1_700_000_000_000 * MS,
            monotonic_ns: 5_000 * MS,
            monotonic_raw_ns: 4_000 * MS,
            tsc_cycles: Some(123),
        };
        World {
            service,
            now,
            producers: BTreeMap::new(),
            events: Vec::new(),
            warnings: Vec::new(),
            files: BTreeMap::new(),
            writes_files: true,
        }
    }

    /// Delivers everything that the service has to say, and does the writing of files.
    pub fn pump(&mut self) -> &mut World {
        loop {
            while let Some(output) = self.service.poll_output() {
                match output {
                    Output::Producer(producer_id, command) => {
                        if let Some(producer) = self.producers.get_mut(&producer_id) {
                            producer.receive(command);
                        }
                    }
                    Output::Consumer(consumer_id, event) => self.events.push((consumer_id, event)),
                    Output::Warning(warning) => self.warnings.push(warning),
                }
            }
            if !(self.writes_files && self.write_file_once()) {
                return self;
            }
        }
    }

    /// One step of one file. False if there is nothing to do.
    pub fn write_file_once(&mut self) -> bool {
        let Some(action) = self.service.poll_file() else { return false };
        let session_id = match action {
            FileAction::Write(session_id) => {
                let file = self.files.entry(session_id).or_default();
                assert!(!file.closed, "written after close");
                file.writes += 1;
                let mut out = |slices: &[IoSlice<'_>]| file.write(slices);
                self.service.write_file(session_id, &mut out, &self.now);
                return true;
            }
            FileAction::Copy { from, to, offset_bytes, size_bytes } => {
                let begin = offset_bytes as usize;
                let part = self.files[&from].bytes[begin..begin + size_bytes as usize].to_vec();
                let file = self.files.entry(to).or_default();
                let slices = [IoSlice::new(&part)];
                let copied = file.write(&slices);
                self.service.handle_file_done(to, copied, &self.now);
                return true;
            }
            FileAction::Sync(session_id) => {
                self.files.entry(session_id).or_default().syncs += 1;
                session_id
            }
            FileAction::Close(session_id) => {
                let file = self.files.entry(session_id).or_default();
                assert!(!std::mem::replace(&mut file.closed, true), "closed twice");
                session_id
            }
        };
        self.service.handle_file_done(session_id, Ok(()), &self.now);
        true
    }

    /// Moves all clocks by the same amount, stopping at each deadline on the way.
    pub fn advance_ms(&mut self, ms: u64) -> &mut World {
        let end_ns = self.now.monotonic_ns + ms * MS;
        loop {
            self.run_due();
            match self.service.poll_timeout().wait_ns(&self.now) {
                Some(wait_ns) if self.now.monotonic_ns + wait_ns <= end_ns => self.move_clocks(wait_ns),
                _ => break,
            }
        }
        self.move_clocks(end_ns - self.now.monotonic_ns);
        self.run_due();
        self
    }

    /// Everything that is due, without time passing.
    pub fn run_due(&mut self) -> &mut World {
        self.pump();
        while self.service.poll_timeout().wait_ns(&self.now) == Some(0) {
            self.service.handle_timeout(&self.now);
            self.pump();
        }
        self
    }

    pub fn move_clocks(&mut self, ns: u64) {
        let now = &mut self.now;
        for clock in [
            &mut now.boottime_ns,
            &mut now.realtime_coarse_ns,
            &mut now.monotonic_coarse_ns,
            &mut now.realtime_ns,
            &mut now.monotonic_ns,
            &mut now.monotonic_raw_ns,
        ] {
            *clock += ns;
        }
        now.tsc_cycles = now.tsc_cycles.map(|cycles| cycles + 3 * ns);
    }

    /// The machine sleeps: the clocks that count sleep go on.
    pub fn suspend_ms(&mut self, ms: u64) {
        self.now.boottime_ns += ms * MS;
        self.now.realtime_ns += ms * MS;
        self.now.realtime_coarse_ns += ms * MS;
    }

    pub fn connect(&mut self, name: &str) -> ProducerId {
        self.connect_as(ProducerHello { name: name.to_owned(), ..hello() })
    }

    pub fn connect_as(&mut self, hello: ProducerHello) -> ProducerId {
        let welcome = self.service.handle_producer_connect(hello).expect("producer is let in");
        self.producers.insert(welcome.producer_id, FakeProducer::new());
        self.pump();
        welcome.producer_id
    }

    pub fn disconnect(&mut self, producer_id: ProducerId) -> &mut World {
        self.service.handle_producer_disconnect(producer_id, &self.now);
        self.pump();
        self.producers.remove(&producer_id);
        self
    }

    pub fn register(&mut self, producer_id: ProducerId, name: &str) -> &mut World {
        self.register_as(
            producer_id,
            protos::DataSourceDescriptor { name: Some(name.to_owned()), ..Default::default() },
        )
    }

    pub fn register_as(
        &mut self,
        producer_id: ProducerId,
        descriptor: protos::DataSourceDescriptor,
    ) -> &mut World {
        let bytes = prost::Message::encode_to_vec(&descriptor);
        self.service.handle_register_data_source(producer_id, &bytes, &self.now);
        self.pump()
    }

    pub fn consumer(&mut self) -> ConsumerId {
        self.consumer_of(1000)
    }

    pub fn consumer_of(&mut self, uid: i32) -> ConsumerId {
        self.try_consumer(uid).expect("a consumer is let in")
    }

    pub fn try_consumer(&mut self, uid: i32) -> Result<ConsumerId, ConnectError> {
        self.service.handle_consumer_connect(PeerIdentity { uid, ..Default::default() })
    }

    pub fn try_enable(
        &mut self,
        consumer_id: ConsumerId,
        config: &protos::TraceConfig,
    ) -> Result<SessionId, EnableError> {
        let file = if config.write_into_file() { OutputFile::Provided } else { OutputFile::None };
        self.try_enable_with(consumer_id, config, file)
    }

    pub fn try_enable_with(
        &mut self,
        consumer_id: ConsumerId,
        config: &protos::TraceConfig,
        file: OutputFile<'_>,
    ) -> Result<SessionId, EnableError> {
        let bytes = prost::Message::encode_to_vec(config);
        let result = self.service.handle_enable_tracing(consumer_id, &bytes, file, &self.now);
        self.pump();
        result
    }

    /// A new consumer with a session.
    pub fn enable(&mut self, config: &protos::TraceConfig) -> (ConsumerId, SessionId) {
        let consumer_id = self.consumer();
        let session_id = self.try_enable(consumer_id, config).expect("the config is accepted");
        (consumer_id, session_id)
    }

    pub fn disable(&mut self, consumer_id: ConsumerId) -> &mut World {
        self.service.handle_disable_tracing(consumer_id, &self.now);
        self.run_due()
    }

    pub fn free(&mut self, consumer_id: ConsumerId) -> &mut World {
        self.service.handle_free_buffers(consumer_id, &self.now);
        self.run_due()
    }

    /// Everything that can be read now, as it is written to a file: in steps, of which large ones
    /// are read by a pool.
    pub fn write_trace(&mut self, consumer_id: ConsumerId) -> Vec<u8> {
        let mut file = FakeFile::default();
        let mut out = |slices: &[IoSlice<'_>]| file.write(slices);
        while self.service.write_trace(consumer_id, &mut out, &self.now) == Ok(ReadProgress::More) {}
        file.bytes
    }

    /// Everything that can be read now, as a trace file.
    pub fn read(&mut self, consumer_id: ConsumerId) -> Trace {
        Trace::parse(&self.read_bytes(consumer_id))
    }

    pub fn read_bytes(&mut self, consumer_id: ConsumerId) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.service.read_framed(consumer_id, &mut bytes, &self.now) == ReadProgress::More {}
        bytes
    }

    /// The same in steps. Each but the last two is full.
    pub fn read_batches(&mut self, consumer_id: ConsumerId) -> Vec<Vec<u8>> {
        let (mut packets, mut batch, mut is_drained) = (Vec::new(), PacketBatch::new(), false);
        self.service.handle_read_buffers(consumer_id);
        loop {
            let begun = self.service.begin_read(consumer_id, &self.now);
            let ReadBegun::Step(step) = begun else { return packets };
            let (read, progress) = self.service.handle_read(step.run(batch), &self.now);
            packets.extend(read.packets().map(<[u8]>::to_vec));
            if progress != ReadProgress::More {
                return packets;
            }
            assert!(!is_drained, "a step that is not full is the last but one");
            is_drained = read.packets().map(<[u8]>::len).sum::<usize>() < READ_STEP_BYTES;
            batch = read;
        }
    }

    /// One commit of one chunk with whole packets.
    pub fn write(
        &mut self,
        producer_id: ProducerId,
        writer_id: u16,
        target_buffer: u32,
        packets: &[Vec<u8>],
    ) -> &mut World {
        let producer = self.producers.get_mut(&producer_id).expect("connected");
        let request = producer.chunk(writer_id).packets(packets).move_to(target_buffer);
        self.commit(producer_id, request)
    }

    pub fn commit(&mut self, producer_id: ProducerId, request: protos::CommitDataRequest) -> &mut World {
        assert!(self.service.handle_commit_data(producer_id, &request), "the request was ignored");
        self.pump()
    }

    /// Takes what the producer was told since the last time.
    pub fn commands(&mut self, producer_id: ProducerId) -> Vec<ProducerCommand> {
        self.pump();
        std::mem::take(&mut self.producers.get_mut(&producer_id).expect("connected").commands)
    }

    /// Takes what the consumer was told since the last time.
    pub fn events_of(&mut self, consumer_id: ConsumerId) -> Vec<ConsumerEvent> {
        self.pump();
        let (of_consumer, others) =
            std::mem::take(&mut self.events).into_iter().partition(|(id, _)| *id == consumer_id);
        self.events = others;
        of_consumer.into_iter().map(|(_, event)| event).collect::<Vec<_>>()
    }

    /// The producer answers the last flush that it was asked for.
    pub fn acknowledge_flush(&mut self, producer_id: ProducerId) -> &mut World {
        self.pump();
        let request_id = self.producers[&producer_id].last_flush.expect("a flush was asked for");
        let request =
            protos::CommitDataRequest { flush_request_id: Some(request_id.0), ..Default::default() };
        self.commit(producer_id, request).run_due()
    }
}

pub fn hello() -> ProducerHello {
    ProducerHello {
        identity: PeerIdentity { uid: 77, pid: Some(1234), ..Default::default() },
        name: "producer".to_owned(),
        ..Default::default()
    }
}

//! The tracing service as a state machine: no sockets, no clock, no threads.
//!
//! A shell (the daemon, or the in-process backend of the client crate) feeds it with `handle_*` calls and takes what
//! comes out with `poll_*` calls. Time is a parameter ([`ClockReadings`]), randomness a seed, memory comes from a function that
//! the shell passes in. One seed and one list of calls give the same outputs, byte for byte.
//!
//! ```text
//! impl Service {
//!     fn new(options: ServiceOptions) -> Service;
//!         // ServiceOptions { seed: u64, uid: i32 (ours), version: String ("Perfetto v58.0-watershed..."), system: SystemInfo,
//!         //                  scraping_by_default: bool, memory: MemoryFactory = Box<dyn FnMut(usize) -> io::Result<SharedMemory> + Send> }
//!
//!     // --- producers: one call per method of the producer port
//!     fn handle_producer_connect(&mut self, hello: ProducerHello) -> Result<ProducerWelcome, ConnectError>;
//!         // ProducerHello { identity: PeerIdentity, name, sdk_version, page_size_hint_bytes: u32, shm_size_hint_bytes: u32,
//!         //                 scraping: ScrapingMode::{Default, Enabled, Disabled}, memory: ProducerMemory::{FromService, Provided(SharedMemory), Emulated} }
//!         // ProducerWelcome { producer_id, using_provided_memory: bool, emulated: bool }  (direct patching: always)
//!     fn handle_producer_disconnect(&mut self, ProducerId, now: &ClockReadings);
//!     fn handle_register_data_source(&mut self, ProducerId, descriptor: &[u8] /* DataSourceDescriptor, kept as it is */, now);
//!     fn handle_update_data_source(&mut self, ProducerId, descriptor: &[u8]);
//!     fn handle_unregister_data_source(&mut self, ProducerId, name: &str, now);
//!     fn handle_register_trace_writer(&mut self, ProducerId, writer_id: u32, target_buffer: u32);
//!     fn handle_unregister_trace_writer(&mut self, ProducerId, writer_id: u32);
//!     fn handle_commit_data(&mut self, ProducerId, &protos::CommitDataRequest);      // no time: what it completes is due at once
//!     fn handle_data_source_started(&mut self, ProducerId, InstanceId, now);
//!     fn handle_data_source_stopped(&mut self, ProducerId, InstanceId, now);
//!
//!     // --- consumers
//!     fn handle_consumer_connect(&mut self, identity: PeerIdentity) -> ConsumerId;
//!     fn handle_consumer_disconnect(&mut self, ConsumerId, now);
//!     fn handle_enable_tracing(&mut self, ConsumerId, EnableTracing<'_>, now) -> Result<SessionId, EnableError>;
//!         // EnableTracing { config: &[u8] (binary TraceConfig, echoed byte for byte), file: OutputFile }
//!         // OutputFile::{ None, Provided (the shell holds an open file), Create(&mut dyn FnMut(&str) -> Result<(), String>) }
//!     fn handle_start_tracing(&mut self, ConsumerId, now);
//!     fn handle_disable_tracing(&mut self, ConsumerId, now);
//!     fn handle_flush(&mut self, ConsumerId, timeout_ms: u32, FlushFlags, now) -> Result<FlushId, FlushRefused>;   // answer: ConsumerEvent::FlushDone
//!     fn handle_free_buffers(&mut self, ConsumerId, now);
//!     fn read_packets(&mut self, ConsumerId, &mut PacketBatch, now) -> ReadProgress;   // ReadBuffers: slices without Trace preamble, 32 KiB
//!     fn read_framed(&mut self, ConsumerId, &mut Vec<u8>, now) -> ReadProgress;        // as in a trace file, appended, about 1 MiB a call
//!         // ReadProgress::{More, Done, Refused(reason)}: call until Done
//!     fn trace_stats(&self, ConsumerId) -> Option<protos::TraceStats>;
//!     fn data_sources(&self) -> impl Iterator<Item = RegisteredDataSource<'_>>;        // names that a config may ask for
//!     fn session_state(&self, SessionId) -> Option<SessionState>;
//!
//!     // --- time
//!     fn poll_timeout(&self) -> Deadlines;             // Deadlines { monotonic_ns, boottime_ns: Option<u64> }; .wait_ns(&now)
//!     fn handle_timeout(&mut self, now);
//!
//!     // --- what comes out, in order; drain until None after every handle_* call
//!     fn poll_output(&mut self) -> Option<Output>;
//!         // Output::Producer(ProducerId, ProducerCommand) | Output::Consumer(ConsumerId, ConsumerEvent) | Output::Warning(Warning)
//!         // ProducerCommand::{ SetupTracing { memory: Option<SharedMemory> (None: adopted), page_size_bytes },
//!         //      SetupDataSource { instance_id, config: Arc<[u8]> (binary DataSourceConfig) }, StartDataSource { same },
//!         //      StopDataSource { instance_id }, Flush { request_id: u64, instance_ids, flags }, ClearIncrementalState { instance_ids } }
//!         // ConsumerEvent::{ TracingDisabled { session_id, error: Option<String> }, FlushDone { flush_id, success },
//!         //      InstanceStates.., AllDataSourcesStarted }
//!
//!     // --- sessions that write into a file: the shell owns the file
//!     fn poll_file(&mut self, block: &mut Vec<u8>, now) -> Option<FileAction>;
//!         // fills `block` (cleared first). FileAction::{ Write(SessionId), Sync(SessionId), Close(SessionId) };
//!         // after each, before the next poll_file: handle_file_done(SessionId, Result<(), String>, now)
//!     fn handle_file_done(&mut self, SessionId, Result<(), String>, now);
//! }
//! ```
#![forbid(unsafe_code)]

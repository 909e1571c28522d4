//! A producer that keeps to the rules, but for its pace: it writes, is late, forgets to answer, and
//! dies at any point.

use std::collections::BTreeMap;

use watershed_service::{FlushId, InstanceId, ProducerCommand, ProducerId, SessionId};
use watershed_smb::{CHUNK_HEADER_BYTES, ChunkFlags, ChunkHeader, PageLayout, Smb, WriteChunk};
use watershed_wire::protos;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove, chunk_to_patch::Patch};

use crate::check::commands::Commands;
use crate::choices::Choices;
use crate::packet::{WriterKey, Written};

/// What a connection carries to the service, with what the books have to note of it.
#[derive(Debug)]
pub(crate) enum ProducerMessage {
    Register(protos::DataSourceDescriptor),
    Update(Vec<u8>),
    Unregister(String),
    RegisterWriter(u32, u32),
    UnregisterWriter(u32),
    Commit(protos::CommitDataRequest, Vec<Note>),
    Started(InstanceId),
    Stopped(InstanceId),
    Triggers(Vec<String>),
    Gone,
}

/// What becomes readable with a commit.
#[derive(Debug)]
pub(crate) enum Note {
    Chunk { session: SessionId, writer: WriterKey, ordinal: u64, serials: Vec<u64>, is_unpatched: bool },
    Patched { session: SessionId, writer: WriterKey, ordinal: u64 },
}

/// An instance of a data source, as its producer knows it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) session: SessionId,
    pub(crate) target_buffer: u32,
    pub(crate) says_stopped: bool,
    pub(crate) says_started: bool,
}

/// Where the bytes of an open chunk are.
#[derive(Debug)]
enum Place {
    Shared(WriteChunk),
    Message(Vec<u8>),
}

#[derive(Debug)]
struct OpenChunk {
    place: Place,
    capacity_bytes: usize,
    used_bytes: usize,
    header: ChunkHeader,
    ordinal: u64,
    serials: Vec<u64>,
    patches: Vec<Patch>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) id: u16,
    /// How many have had this number before.
    life: u16,
    next_serial: u64,
    session: SessionId,
    target_buffer: u32,
    next_chunk_id: u32,
    open: Option<OpenChunk>,
    /// What is left of a packet of which a part is in an earlier chunk.
    rest: Vec<u8>,
    rest_serial: u64,
    /// Of chunks that were committed.
    unpatched: Vec<(u32, u64, Vec<Patch>)>,
}

#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) key: u32,
    pub(crate) id: ProducerId,
    pub(crate) name: String,
    pub(crate) is_liar: bool,
    pub(crate) is_emulated: bool,
    /// Answers only some of what it is asked.
    pub(crate) is_lazy: bool,
    pub(crate) smb: Option<Smb>,
    pub(crate) commands: Commands,
    pub(crate) instances: BTreeMap<InstanceId, Instance>,
    pub(crate) sources: BTreeMap<String, protos::DataSourceDescriptor>,
    writers: Vec<Writer>,
    /// Numbers of writers of whose ends the service knows. Before that it would scrape what the
    /// next writer of the number writes as the old one's.
    free_writer_ids: Vec<u16>,
    last_writer_id: u16,
    lives: BTreeMap<u16, u16>,
    next_ordinal: u64,
    moves: Vec<ChunksToMove>,
    patches: Vec<ChunkToPatch>,
    notes: Vec<Note>,
}

impl Producer {
    pub(crate) fn new(key: u32, id: ProducerId, name: String, is_liar: bool, is_emulated: bool) -> Producer {
        Producer {
            key,
            id,
            name,
            is_liar,
            is_emulated,
            is_lazy: false,
            smb: None,
            commands: Commands::new(is_emulated),
            instances: BTreeMap::new(),
            sources: BTreeMap::new(),
            writers: Vec::new(),
            free_writer_ids: Vec::new(),
            last_writer_id: 0,
            lives: BTreeMap::new(),
            next_ordinal: 0,
            moves: Vec::new(),
            patches: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// What it answers to a command, in this order.
    pub(crate) fn receive(
        &mut self,
        command: ProducerCommand,
        choices: &mut Choices,
    ) -> Vec<ProducerMessage> {
        let is_silent = self.is_lazy && choices.one_in(3);
        match command {
            ProducerCommand::SetupTracing { memory: Some(memory), page_size_bytes } => {
                self.smb = Some(Smb::new(memory, page_size_bytes).expect("sizes fit"));
            }
            ProducerCommand::SetupDataSource { instance_id, config } => {
                let config: protos::DataSourceConfig = prost::Message::decode(&config[..]).expect("a config");
                let source = self.sources.get(config.name());
                let says = |which: fn(&protos::DataSourceDescriptor) -> bool| source.is_some_and(which);
                let instance = Instance {
                    session: SessionId(config.tracing_session_id()),
                    target_buffer: config.target_buffer(),
                    says_started: says(|source| source.will_notify_on_start()),
                    says_stopped: says(|source| source.will_notify_on_stop()),
                };
                self.instances.insert(instance_id, instance);
            }
            ProducerCommand::StartDataSource { instance_id, .. } => {
                let says = self.instances.get(&instance_id).is_some_and(|instance| instance.says_started);
                if says && !is_silent {
                    return vec![ProducerMessage::Started(instance_id)];
                }
            }
            ProducerCommand::StopDataSource { instance_id } => {
                let Some(instance) = self.instances.remove(&instance_id) else { return Vec::new() };
                let mut messages = self.end_writers(instance.session, instance.target_buffer, choices);
                if instance.says_stopped && !is_silent {
                    messages.push(ProducerMessage::Stopped(instance_id));
                }
                return messages;
            }
            ProducerCommand::Flush { request_id, .. } if !is_silent => {
                self.close_all();
                return vec![self.commit(Some(request_id))];
            }
            _ => {}
        }
        Vec::new()
    }

    /// Ends the writers of a buffer that nothing writes into any more.
    fn end_writers(
        &mut self,
        session: SessionId,
        target_buffer: u32,
        choices: &mut Choices,
    ) -> Vec<ProducerMessage> {
        let is_used = self.instances.values().any(|instance| instance.target_buffer == target_buffer);
        let mut messages = Vec::new();
        if is_used {
            return messages;
        }
        let is_its = |writer: &Writer| writer.target_buffer == target_buffer && writer.session == session;
        let ended: Vec<Writer> = self.writers.extract_if(.., |writer| is_its(writer)).collect();
        for mut writer in ended {
            self.close(&mut writer);
            self.patch(&mut writer);
            messages.push(self.commit(None));
            if writer.rest.is_empty() && choices.one_in(2) {
                messages.push(ProducerMessage::UnregisterWriter(writer.id.into()));
            }
        }
        messages
    }

    /// The service knows of the end of a writer: its number may be used again.
    pub(crate) fn free_writer_id(&mut self, writer_id: u32) {
        self.free_writer_ids.extend(u16::try_from(writer_id));
    }

    /// A writer for the instance: one that is there, or a new one with its registration.
    pub(crate) fn writer_for(
        &mut self,
        instance_id: InstanceId,
        choices: &mut Choices,
    ) -> (usize, Option<ProducerMessage>) {
        let Instance { session, target_buffer, .. } = self.instances[&instance_id];
        let its = (0..self.writers.len()).filter(|index| {
            let writer = &self.writers[*index];
            writer.target_buffer == target_buffer && writer.session == session
        });
        let its: Vec<usize> = its.collect();
        if let Some(index) = choices.any(&its).filter(|_| its.len() >= 3 || !choices.one_in(4)) {
            return (index, None);
        }
        let id = self.free_writer_ids.pop().unwrap_or(self.last_writer_id + 1);
        self.last_writer_id = self.last_writer_id.max(id);
        let lives = self.lives.entry(id).or_default();
        *lives += 1;
        self.writers.push(Writer {
            id,
            life: *lives - 1,
            next_serial: 0,
            session,
            target_buffer,
            next_chunk_id: 0,
            open: None,
            rest: Vec::new(),
            rest_serial: 0,
            unpatched: Vec::new(),
        });
        let message = ProducerMessage::RegisterWriter(id.into(), target_buffer);
        // Some clients write before they are registered, or without.
        (self.writers.len() - 1, choices.one_in(8).then_some(()).map_or(Some(message), |()| None))
    }

    /// The next packet of a writer, unless it is in the middle of one: its session, and who writes
    /// how manieth.
    pub(crate) fn next_packet(&mut self, index: usize) -> Option<(SessionId, WriterKey, u64)> {
        let has_memory = self.has_memory();
        let (key, writer) = (self.key, &mut self.writers[index]);
        if !writer.rest.is_empty() || !has_memory {
            return None;
        }
        writer.next_serial += 1;
        Some((writer.session, writer.key(key), writer.next_serial - 1))
    }

    pub(crate) fn has_memory(&self) -> bool {
        self.smb.is_some() || self.is_emulated
    }

    /// Writes the packet, or as much of it as there is room for. Returns where the writer is now.
    pub(crate) fn write(
        &mut self,
        index: usize,
        serial: u64,
        packet: Written,
        choices: &mut Choices,
    ) -> usize {
        let mut writer = self.writers.swap_remove(index);
        writer.rest = packet.bytes;
        writer.rest_serial = serial;
        let begins = |writer: &Writer| writer.open.as_ref().is_some_and(|open| open.room_bytes() < 24);
        // The place of a patch is in the packet's first chunk.
        if begins(&writer) {
            self.close(&mut writer);
        }
        self.go_on_with(&mut writer, packet.patch, true, choices);
        self.writers.push(writer);
        self.writers.len() - 1
    }

    /// Goes on with packets for which there was no room.
    pub(crate) fn write_rests(&mut self, choices: &mut Choices) {
        for mut writer in std::mem::take(&mut self.writers) {
            if !writer.rest.is_empty() {
                self.go_on_with(&mut writer, None, false, choices);
            }
            self.writers.push(writer);
        }
    }

    fn go_on_with(
        &mut self,
        writer: &mut Writer,
        mut patch: Option<(usize, [u8; 4])>,
        mut is_first: bool,
        choices: &mut Choices,
    ) {
        while !writer.rest.is_empty() {
            if writer.open.is_none() && !self.open(writer, !is_first, choices) {
                if is_first {
                    // No room at all: the packet is not written.
                    writer.rest.clear();
                }
                return;
            }
            let Some(open) = &mut writer.open else { return };
            let count = open.room_bytes().saturating_sub(2).min(writer.rest.len());
            let mut part: Vec<u8> = writer.rest.drain(..count).collect();
            let continues = !writer.rest.is_empty();
            match patch.take() {
                Some((offset, data)) if continues => {
                    let size = prost::encoding::encoded_len_varint(count as u64);
                    let offset = Some((open.used_bytes + size + offset) as u32);
                    open.patches.push(Patch { offset, data: Some(data.to_vec()) });
                    open.header.flags = open.header.flags.with(ChunkFlags::NEEDS_PATCHING);
                }
                // A size is known at the end of its packet: in its first chunk nobody patches it.
                Some((offset, data)) => part[offset..][..data.len()].copy_from_slice(&data),
                None => {}
            }
            open.fragment(&part, continues, self.smb.as_ref());
            if !continues {
                open.serials.push(writer.rest_serial);
            }
            is_first = false;
            if continues || open.room_bytes() < 8 {
                self.close(writer);
            }
        }
    }

    fn open(&mut self, writer: &mut Writer, continues: bool, choices: &mut Choices) -> bool {
        let (place, capacity_bytes) = match &self.smb {
            Some(smb) => {
                let layout = choices.of(&[PageLayout::Div1, PageLayout::Div4, PageLayout::Div14]);
                let Ok(chunk) = smb.try_acquire(0, layout) else { return false };
                let capacity_bytes = chunk.payload_size_bytes();
                (Place::Shared(chunk), capacity_bytes)
            }
            None => (Place::Message(vec![0; CHUNK_HEADER_BYTES]), choices.of(&[100, 1000, 4080])),
        };
        let flags = if continues { ChunkFlags::FIRST_CONTINUES } else { ChunkFlags::NONE };
        let header =
            ChunkHeader { chunk_id: writer.next_chunk_id, writer_id: writer.id, fragments: 0, flags };
        if let (Place::Shared(chunk), Some(smb)) = (&place, &self.smb) {
            smb.write_header(chunk, header);
        }
        writer.next_chunk_id += 1;
        self.next_ordinal += 1;
        writer.open = Some(OpenChunk {
            place,
            capacity_bytes,
            used_bytes: 0,
            header,
            ordinal: self.next_ordinal,
            serials: Vec::new(),
            patches: Vec::new(),
        });
        true
    }

    /// The chunk is complete, and goes with the next commit.
    fn close(&mut self, writer: &mut Writer) {
        let Some(open) = writer.open.take() else { return };
        let OpenChunk { place, header, ordinal, serials, patches, .. } = open;
        let target_buffer = Some(writer.target_buffer);
        let entry = match place {
            Place::Shared(chunk) => {
                let place = (chunk.page() as u32, chunk.index() as u32);
                let smb = self.smb.as_ref().expect("it has a chunk of it");
                smb.complete(chunk).expect("the chunk is ours");
                ChunksToMove {
                    page: Some(place.0),
                    chunk: Some(place.1),
                    target_buffer,
                    ..Default::default()
                }
            }
            Place::Message(mut bytes) => {
                bytes[..4].copy_from_slice(&header.chunk_id.to_le_bytes());
                bytes[4..6].copy_from_slice(&header.writer_id.to_le_bytes());
                let word = header.fragments | u16::from(header.flags.bits()) << 10;
                bytes[6..8].copy_from_slice(&word.to_le_bytes());
                ChunksToMove { data: Some(bytes), target_buffer, ..Default::default() }
            }
        };
        self.moves.push(entry);
        let (session, key) = (writer.session, writer.key(self.key));
        let is_unpatched = !patches.is_empty();
        self.notes.push(Note::Chunk { session, writer: key, ordinal, serials, is_unpatched });
        if is_unpatched {
            writer.unpatched.push((header.chunk_id, ordinal, patches));
        }
    }

    /// Patches what was committed, from now on or with it.
    fn patch(&mut self, writer: &mut Writer) {
        for (chunk_id, ordinal, patches) in writer.unpatched.drain(..) {
            self.patches.push(ChunkToPatch {
                target_buffer: Some(writer.target_buffer),
                writer_id: Some(writer.id.into()),
                chunk_id: Some(chunk_id),
                patches,
                has_more_patches: Some(false),
            });
            let key = (self.key, writer.id, writer.life);
            self.notes.push(Note::Patched { session: writer.session, writer: key, ordinal });
        }
    }

    /// Everything that was begun is complete and patched.
    pub(crate) fn close_all(&mut self) {
        for mut writer in std::mem::take(&mut self.writers) {
            self.close(&mut writer);
            self.patch(&mut writer);
            self.writers.push(writer);
        }
    }

    /// Some of what was committed is patched, in any order of writers.
    pub(crate) fn patch_some(&mut self, choices: &mut Choices) {
        for mut writer in std::mem::take(&mut self.writers) {
            if choices.one_in(2) {
                self.patch(&mut writer);
            }
            self.writers.push(writer);
        }
    }

    /// A request with all that waits for one.
    pub(crate) fn commit(&mut self, flush: Option<FlushId>) -> ProducerMessage {
        let request = protos::CommitDataRequest {
            chunks_to_move: std::mem::take(&mut self.moves),
            chunks_to_patch: std::mem::take(&mut self.patches),
            flush_request_id: flush.map(|id| id.0),
        };
        ProducerMessage::Commit(request, std::mem::take(&mut self.notes))
    }

    pub(crate) fn has_to_commit(&self) -> bool {
        !self.moves.is_empty() || !self.patches.is_empty()
    }
}

impl Writer {
    fn key(&self, producer: u32) -> WriterKey {
        (producer, self.id, self.life)
    }
}

impl OpenChunk {
    fn room_bytes(&self) -> usize {
        self.capacity_bytes - self.used_bytes
    }

    /// Appends a fragment, and tells readers of the memory that it is there.
    fn fragment(&mut self, part: &[u8], continues: bool, smb: Option<&Smb>) {
        let mut bytes = Vec::with_capacity(part.len() + 2);
        prost::encoding::encode_varint(part.len() as u64, &mut bytes);
        bytes.extend_from_slice(part);
        self.header.fragments += 1;
        if continues {
            self.header.flags = self.header.flags.with(ChunkFlags::LAST_CONTINUES);
        }
        match (&mut self.place, smb) {
            (Place::Shared(chunk), Some(smb)) => {
                smb.write_payload(chunk, self.used_bytes, &bytes);
                smb.set_fragments(chunk, self.header.fragments, self.header.flags);
            }
            (Place::Message(message), _) => message.extend_from_slice(&bytes),
            (Place::Shared(_), None) => unreachable!("its chunk is in it"),
        }
        self.used_bytes += bytes.len();
    }
}

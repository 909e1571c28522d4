//! A producer that writes chunks into real shared memory, well or badly as the test wants it.

use std::collections::BTreeMap;

use prost::Message;
use watershed_service::{FlushId, InstanceId, ProducerCommand};
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, Smb, WriteChunk};
use watershed_wire::protos;
use watershed_wire::protos::commit_data_request::ChunksToMove;

pub struct FakeProducer {
    pub smb: Option<Smb>,
    pub commands: Vec<ProducerCommand>,
    pub last_flush: Option<FlushId>,
    pub instances: Vec<(InstanceId, protos::DataSourceConfig)>,
    next_chunk_id: BTreeMap<u16, u32>,
}

/// A chunk that is being written.
pub struct FakeChunk {
    smb: Smb,
    chunk: WriteChunk,
    header: ChunkHeader,
    used_bytes: usize,
    packets: u16,
}

impl FakeProducer {
    pub fn new() -> FakeProducer {
        FakeProducer {
            smb: None,
            commands: Vec::new(),
            last_flush: None,
            instances: Vec::new(),
            next_chunk_id: BTreeMap::new(),
        }
    }

    pub fn receive(&mut self, command: ProducerCommand) {
        match &command {
            ProducerCommand::SetupTracing { memory: Some(memory), page_size_bytes } => {
                assert!(self.smb.is_none(), "memory is set up once");
                self.smb = Some(Smb::new(memory.clone(), *page_size_bytes).expect("sizes fit"));
            }
            ProducerCommand::SetupDataSource { instance_id, config } => {
                let config = protos::DataSourceConfig::decode(&config[..]).expect("a config");
                self.instances.push((*instance_id, config));
            }
            ProducerCommand::Flush { request_id, .. } => self.last_flush = Some(*request_id),
            _ => {}
        }
        self.commands.push(command);
    }

    /// Where the instance with this index was told to write.
    pub fn target_buffer(&self, instance_index: usize) -> u32 {
        self.instances[instance_index].1.target_buffer()
    }

    /// The next chunk of a writer.
    pub fn chunk(&mut self, writer_id: u16) -> FakeChunk {
        let next = self.next_chunk_id.entry(writer_id).or_default();
        let chunk_id = *next;
        *next = next.wrapping_add(1);
        self.chunk_with_id(writer_id, chunk_id)
    }

    pub fn chunk_with_id(&mut self, writer_id: u16, chunk_id: u32) -> FakeChunk {
        self.try_chunk_with_id(writer_id, chunk_id).expect("a free chunk")
    }

    /// `None` if no chunk is free.
    pub fn try_chunk_with_id(&self, writer_id: u16, chunk_id: u32) -> Option<FakeChunk> {
        let smb = self.smb.clone().expect("memory was set up");
        let chunk = smb.try_acquire(0, PageLayout::Div1).ok()?;
        let header = ChunkHeader { chunk_id, writer_id, fragments: 0, flags: ChunkFlags::NONE };
        smb.write_header(&chunk, header);
        Some(FakeChunk { smb, chunk, header, used_bytes: 0, packets: 0 })
    }
}

impl FakeChunk {
    pub fn packets(self, packets: &[Vec<u8>]) -> FakeChunk {
        packets.iter().fold(self, |chunk, packet| chunk.packet(packet))
    }

    pub fn packet(mut self, packet: &[u8]) -> FakeChunk {
        let mut fragment = Vec::new();
        prost::encoding::encode_varint(packet.len() as u64, &mut fragment);
        fragment.extend_from_slice(packet);
        self.smb.write_payload(&self.chunk, self.used_bytes, &fragment);
        self.used_bytes += fragment.len();
        self.packets += 1;
        self.header.fragments = self.packets;
        self.smb.set_fragments(&self.chunk, self.header.fragments, self.header.flags);
        self
    }

    /// A fragment has been begun: the one before it is finished.
    pub fn begun(mut self) -> FakeChunk {
        self.header.fragments += 1;
        self.smb.set_fragments(&self.chunk, self.header.fragments, self.header.flags);
        self
    }

    /// Whatever was begun and not written is taken back: the count is that of the packets.
    pub fn settled(mut self) -> FakeChunk {
        self.header.fragments = self.packets;
        self.smb.set_fragments(&self.chunk, self.header.fragments, self.header.flags);
        self
    }

    pub fn flags(mut self, flags: ChunkFlags) -> FakeChunk {
        self.header.flags = self.header.flags.with(flags);
        self.smb.set_fragments(&self.chunk, self.header.fragments, self.header.flags);
        self
    }

    pub fn chunk_id(&self) -> u32 {
        self.header.chunk_id
    }

    pub fn place(&self) -> (u32, u32) {
        (self.chunk.page() as u32, self.chunk.index() as u32)
    }

    /// Complete, and in a request.
    pub fn move_to(self, target_buffer: u32) -> protos::CommitDataRequest {
        let (page, chunk) = self.place();
        self.smb.complete(self.chunk).expect("the chunk is ours");
        moves(vec![entry(page, chunk, target_buffer)])
    }

    /// Complete, and not committed.
    pub fn complete(self) {
        self.smb.complete(self.chunk).expect("the chunk is ours");
    }
}

pub fn entry(page: u32, chunk: u32, target_buffer: u32) -> ChunksToMove {
    ChunksToMove {
        page: Some(page),
        chunk: Some(chunk),
        target_buffer: Some(target_buffer),
        ..Default::default()
    }
}

pub fn moves(chunks_to_move: Vec<ChunksToMove>) -> protos::CommitDataRequest {
    protos::CommitDataRequest { chunks_to_move, ..Default::default() }
}

/// A packet that says `text`.
pub fn packet(text: &str) -> Vec<u8> {
    let event = protos::TestEvent { str: Some(text.to_owned()), ..Default::default() };
    let data = protos::trace_packet::Data::ForTesting(event);
    protos::TracePacket { data: Some(data), ..Default::default() }.encode_to_vec()
}

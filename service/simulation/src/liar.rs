//! A producer that lies: about ids, writers, chunks, pages, patches and flushes, in memory and in
//! messages. What it writes is never what an honest producer would say.

use std::os::unix::fs::FileExt as _;

use prost::Message as _;
use watershed_service::InstanceId;
use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout};
use watershed_wire::protos;
use watershed_wire::protos::commit_data_request::{ChunkToPatch, ChunksToMove, chunk_to_patch::Patch};

use crate::choices::Choices;
use crate::producer::{Producer, ProducerMessage};

impl Producer {
    /// One lie.
    pub(crate) fn lie(&mut self, choices: &mut Choices) -> ProducerMessage {
        match choices.below(12) {
            0 => ProducerMessage::Started(InstanceId(choices.below(40))),
            1 => ProducerMessage::Stopped(InstanceId(choices.below(40))),
            2 => ProducerMessage::RegisterWriter(id(choices), id(choices)),
            3 => ProducerMessage::UnregisterWriter(id(choices)),
            4 => {
                let len = choices.below(40);
                ProducerMessage::Update(choices.bytes(len))
            }
            5 => {
                let count = choices.of(&[1, 3, 300]);
                let names = ["t0", "t1", "t2", "nobody's"];
                ProducerMessage::Triggers((0..count).map(|_| choices.of(&names).to_owned()).collect())
            }
            6 => ProducerMessage::Register(descriptor(choices)),
            _ => {
                self.forge_pages(choices);
                ProducerMessage::Commit(self.forged_request(choices), Vec::new())
            }
        }
    }

    /// Any bytes anywhere in the memory, and chunks with any header.
    fn forge_pages(&self, choices: &mut Choices) {
        let Some(smb) = &self.smb else { return };
        if let Some(fd) = smb.memory().fd().filter(|_| choices.one_in(2)) {
            // The liar's own mapping, as far as the service can tell.
            let file = std::fs::File::from(fd.try_clone_to_owned().expect("a descriptor"));
            let page = choices.below(smb.num_pages() as u64) * smb.page_size_bytes() as u64;
            let word = choices.below(1 << 32) as u32;
            let word = if choices.one_in(2) { word & 0x7aaa_aaaa } else { word };
            file.write_all_at(&word.to_le_bytes(), page).expect("memory can be written");
            let (len, offset) = (choices.below(64), choices.below(smb.size_bytes() as u64 - 64));
            let bytes = choices.bytes(len);
            file.write_all_at(&bytes, offset).expect("memory can be written");
        }
        if let Ok(chunk) = smb.try_acquire(choices.below(8) as usize, PageLayout::Div4) {
            let mut payload = forged_packet(choices);
            payload.truncate(chunk.payload_size_bytes());
            smb.write_payload(&chunk, 0, &payload);
            let header = ChunkHeader {
                chunk_id: choices.small(4),
                writer_id: id(choices) as u16,
                fragments: choices.below(1024) as u16,
                flags: ChunkFlags::from_bits(choices.below(8) as u8),
            };
            smb.write_header(&chunk, header);
            match choices.one_in(4) {
                true => drop(chunk),
                // Refused if its page was just overwritten.
                false => drop(smb.complete(chunk)),
            }
        }
    }

    fn forged_request(&self, choices: &mut Choices) -> protos::CommitDataRequest {
        let buffers: Vec<u32> = self.instances.values().map(|instance| instance.target_buffer).collect();
        let target = |choices: &mut Choices| match choices.any(&buffers) {
            Some(own) if !choices.one_in(3) => own,
            _ => choices.small(8),
        };
        let moves = (0..choices.below(6)).map(|_| ChunksToMove {
            page: Some(choices.small(66)),
            chunk: Some(choices.small(15)),
            target_buffer: Some(target(choices)),
            data: choices.one_in(3).then(|| {
                let len = choices.below(12);
                let mut bytes = choices.bytes(len);
                bytes.extend(forged_packet(choices));
                bytes
            }),
            chunk_incomplete: choices.one_in(3).then_some(true),
        });
        let moves = moves.collect();
        let patches = (0..choices.below(3)).map(|_| ChunkToPatch {
            target_buffer: Some(target(choices)),
            writer_id: Some(id(choices)),
            chunk_id: Some(choices.small(4)),
            patches: (0..choices.of(&[0, 1, 3, 1100]))
                .map(|_| Patch {
                    offset: Some(id(choices)),
                    data: Some(vec![0xff; choices.below(6) as usize]),
                })
                .collect(),
            has_more_patches: Some(choices.one_in(2)),
        });
        protos::CommitDataRequest {
            chunks_to_patch: patches.collect(),
            chunks_to_move: moves,
            flush_request_id: choices.one_in(2).then(|| choices.below(30)),
        }
    }
}

fn id(choices: &mut Choices) -> u32 {
    match choices.below(4) {
        0 => choices.small(4),
        1 => choices.of(&[0, 32_767, 32_768, 65_535, 65_536, u32::MAX]),
        _ => 1 + choices.small(2),
    }
}

/// A fragment with a packet that claims another's identity, or garbage.
fn forged_packet(choices: &mut Choices) -> Vec<u8> {
    use protos::trace_packet::{Data, OptionalTrustedPacketSequenceId, OptionalTrustedUid};
    if choices.one_in(3) {
        let len = choices.below(80);
        return choices.bytes(len);
    }
    let event = protos::TestEvent { str: Some("mine".to_owned()), ..Default::default() };
    let mut packet = protos::TracePacket { data: Some(Data::ForTesting(event)), ..Default::default() };
    if choices.one_in(2) {
        packet.optional_trusted_uid = Some(OptionalTrustedUid::TrustedUid(0));
    }
    if choices.one_in(2) {
        let id = OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(1);
        packet.optional_trusted_packet_sequence_id = Some(id);
    }
    packet.encode_length_delimited_to_vec()
}

fn descriptor(choices: &mut Choices) -> protos::DataSourceDescriptor {
    let name = match choices.below(4) {
        0 => "x".repeat(choices.of(&[0, 1023, 1025])),
        _ => choices.of(&["a", "b", "c"]).to_owned(),
    };
    protos::DataSourceDescriptor {
        name: Some(name),
        id: Some(choices.below(3)),
        will_notify_on_start: Some(choices.one_in(2)),
        will_notify_on_stop: Some(choices.one_in(2)),
        ..Default::default()
    }
}

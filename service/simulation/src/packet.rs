//! What honest producers write: packets that say who wrote them, which one of the writer's it is,
//! and whose every byte follows from that.

use prost::Message as _;
use watershed_wire::protos;

/// Which writer: a producer of the run, the writer's number, and which of those that have had this
/// number.
pub(crate) type WriterKey = (u32, u16, u16);

/// Field `TracePacket.for_testing`, in whose size patches are.
const FOR_TESTING: u32 = 900;

/// The `serial`th packet of a writer says this.
pub(crate) fn text_of((producer, writer, life): WriterKey, serial: u64) -> String {
    let mut mixed = (u64::from(producer) << 44 ^ u64::from(writer) << 32 ^ u64::from(life) << 24 ^ serial)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let length = match mixed >> 60 {
        0 => 9000,
        1..=3 => 1500,
        4..=8 => 300,
        _ => 20,
    };
    let mut text = format!("k{producer} w{writer} l{life} s{serial} ");
    for _ in 0..length / 10 {
        mixed = mixed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        text.push_str(&format!("{:010}", mixed >> 31));
    }
    text
}

/// Who wrote a packet of this text. An honest one says nothing else than [`text_of`].
pub(crate) fn writer_of(text: &str) -> Option<(WriterKey, u64)> {
    let mut words = text.split(' ');
    let mut number = |prefix: char| words.next()?.strip_prefix(prefix)?.parse::<u64>().ok();
    let (producer, writer) = (number('k')?, number('w')?);
    let (life, serial) = (number('l')?, number('s')?);
    Some(((producer as u32, writer as u16, life as u16), serial))
}

/// A packet as it is written; if it is to be patched, with the place and the bytes of the patch.
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    pub(crate) patch: Option<(usize, [u8; 4])>,
}

pub(crate) fn packet(writer: WriterKey, serial: u64, is_patched: bool) -> Written {
    let event = protos::TestEvent {
        str: Some(text_of(writer, serial)),
        // Filters do not let it through.
        seq_value: Some(serial as u32),
        ..Default::default()
    };
    let event = event.encode_to_vec();
    let mut bytes = Vec::with_capacity(event.len() + 10);
    prost::encoding::encode_key(FOR_TESTING, prost::encoding::WireType::LengthDelimited, &mut bytes);
    let mut patch = None;
    if is_patched {
        let length = event.len() as u32;
        let part = |shift: u32| (length >> shift & 0x7f) as u8;
        patch = Some((bytes.len(), [part(0) | 0x80, part(7) | 0x80, part(14) | 0x80, part(21)]));
        bytes.extend_from_slice(&[0; 4]);
    } else {
        prost::encoding::encode_varint(event.len() as u64, &mut bytes);
    }
    bytes.extend_from_slice(&event);
    Written { bytes, patch }
}

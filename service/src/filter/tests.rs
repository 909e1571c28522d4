//! Programs, and what they leave of packets.

use prost::Message;
use watershed_wire::protos;
use watershed_wire::protos::trace_config::TraceFilter as Config;
use watershed_wire::protos::trace_config::trace_filter::{
    StringFilterChain, StringFilterPolicy, StringFilterRule,
};

use super::program::checksum;
use super::{DEPTH_MAX, FilterError, Kept, STAMPED, TraceFilter, Unreadable};

pub(super) fn simple(field: u32) -> Vec<u32> {
    vec![field << 3 | 1]
}

pub(super) fn range(first: u32, len: u32) -> Vec<u32> {
    vec![first << 3 | 2, len]
}

pub(super) fn nested(field: u32, message: u32) -> Vec<u32> {
    vec![field << 3 | 3, message]
}

pub(super) fn string(field: u32) -> Vec<u32> {
    vec![field << 3 | 4]
}

fn typed(field: u32, semantic_type: u32) -> Vec<u32> {
    vec![field << 3 | 5, semantic_type]
}

const END: [u32; 1] = [0];

fn bytes(words: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words.iter().chain([&checksum(words)]) {
        prost::encoding::encode_varint(u64::from(*word), &mut bytes);
    }
    bytes
}

/// A program whose message 0 has packets as message 1, which and all behind it are given.
fn bytecode(messages: &[Vec<Vec<u32>>]) -> Vec<u8> {
    let mut words = [nested(1, 1), END.to_vec()].concat();
    for message in messages {
        words.extend(message.concat());
        words.extend(END);
    }
    bytes(&words)
}

fn load(bytecode: Vec<u8>) -> Result<TraceFilter, FilterError> {
    TraceFilter::load(&Config { bytecode: Some(bytecode), ..Default::default() })
}

pub(super) fn filter(messages: &[Vec<Vec<u32>>]) -> TraceFilter {
    load(bytecode(messages)).expect("a good program")
}

fn filtered(filter: &TraceFilter, packet: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut out = vec![0xee];
    let result = filter.packet(&[packet], &[], &mut out);
    assert_eq!(out[0], 0xee, "what was there stays");
    if result.is_err() {
        assert_eq!(out.len(), 1, "nothing is left of a packet that cannot be read");
    }
    // In pieces it is the same.
    let expected = left(filter, &[packet], &[]);
    let (one, two) = packet.split_at(packet.len() / 2);
    assert_eq!(left(filter, &[one, two], &[]), expected);
    expected
}

/// What may be told of a packet in pieces, and of what is appended to it.
pub(super) fn left(filter: &TraceFilter, slices: &[&[u8]], appended: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut out = Vec::new();
    let kept = filter.packet(slices, appended, &mut out)?;
    if kept == Kept::Whole {
        assert!(out.is_empty(), "nothing is copied of a packet that stays as it is");
        out = [&slices.concat(), appended].concat();
    }
    Ok(out)
}

/// Field 1 varint 300, field 2 "ab", field 3 fixed32, field 4 fixed64, field 200 varint 1.
fn flat() -> Vec<u8> {
    let mut packet = vec![0x08, 0xac, 0x02, 0x12, 2, b'a', b'b', 0x1d, 1, 2, 3, 4];
    packet.extend([0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0xc0, 0x0c, 1]);
    packet
}

#[test]
fn fields_that_are_allowed_stay_as_they_are() {
    let all = filter(&[vec![range(1, 4), simple(200)]]);
    assert_eq!(filtered(&all, &flat()), Ok(flat()));
    let parts: [(&[u32], std::ops::Range<usize>); 5] =
        [(&[1], 0..3), (&[2], 3..7), (&[3], 7..12), (&[4], 12..21), (&[200], 21..24)];
    for (fields, kept) in parts {
        let only = filter(&[fields.iter().map(|field| simple(*field)).collect()]);
        assert_eq!(filtered(&only, &flat()), Ok(flat()[kept].to_vec()), "{fields:?}");
    }
    let nothing = filter(&[vec![simple(9)]]);
    assert_eq!(filtered(&nothing, &flat()), Ok(Vec::new()));
    assert_eq!(filtered(&all, &[]), Ok(Vec::new()));
}

#[test]
fn numbers_are_written_in_their_shortest_form() {
    let all = filter(&[vec![range(1, 4)]]);
    assert_eq!(filtered(&all, &[0x88, 0x00, 0x87, 0x80, 0x00]), Ok(vec![0x08, 7]));
}

#[test]
fn messages_are_looked_into() {
    // 5: message { 1: varint, 2: varint }, of which 2 is allowed.
    let inner = filter(&[vec![nested(5, 2)], vec![simple(2)]]);
    assert_eq!(filtered(&inner, &[0x2a, 4, 0x08, 1, 0x10, 2]), Ok(vec![0x2a, 2, 0x10, 2]));
    // An empty one that is allowed stays, and one of which nothing is left.
    assert_eq!(filtered(&inner, &[0x2a, 0]), Ok(vec![0x2a, 0]));
    assert_eq!(filtered(&inner, &[0x2a, 2, 0x08, 1]), Ok(vec![0x2a, 0]));
    // The size has the place that the original's needs.
    let mut long = vec![0x2a, 0x80 | 104, 1, 0x0a, 0x80 | 99, 1];
    long.extend(vec![0; 99 + 128]);
    long.extend([0x10, 7]);
    long[1] = ((long.len() - 3) & 0x7f) as u8 | 0x80;
    long[2] = ((long.len() - 3) >> 7) as u8;
    assert_eq!(filtered(&inner, &long), Ok(vec![0x2a, 0x82, 0x00, 0x10, 7]));
    // A number where a message is expected is none.
    assert_eq!(filtered(&inner, &[0x28, 1]), Ok(Vec::new()));
}

#[test]
fn what_cannot_be_read_becomes_an_empty_packet() {
    let inner = filter(&[vec![nested(5, 2), simple(1)], vec![simple(2)]]);
    let broken: [&[u8]; 6] = [
        &[0x08, 1, 0x2a, 9, 0x10, 2],
        &[0x08, 1, 0x2a, 2, 0x10, 0x80],
        &[0x08, 1, 0x2b],
        &[0x08, 0x80],
        &[0x08, 1, 0x2a, 3, 0x15, 1, 2],
        &[0x00, 1],
    ];
    for packet in broken {
        assert_eq!(filtered(&inner, packet), Err(Unreadable), "{packet:x?}");
    }
    // What is not allowed is not looked into.
    assert_eq!(filtered(&inner, &[0x32, 1, 0xff, 0x08, 1]), Ok(vec![0x08, 1]));
}

#[test]
fn messages_in_messages_have_an_end() {
    let deep = filter(&[vec![nested(1, 1), simple(2)]]);
    let nest = |depth: usize| {
        let mut packet = vec![0x10, 1];
        for _ in 0..depth {
            let mut outer = Vec::new();
            prost::encoding::bytes::encode(1, &packet, &mut outer);
            packet = outer;
        }
        packet
    };
    assert_eq!(filtered(&deep, &nest(DEPTH_MAX)), Ok(nest(DEPTH_MAX)));
    assert_eq!(filtered(&deep, &nest(DEPTH_MAX + 1)), Err(Unreadable));
}

#[test]
fn appended_fields_are_filtered_as_the_packet_is() {
    let filter = filter(&[vec![simple(1), simple(3)]]);
    let left = |packet: &[u8], appended: &[u8]| left(&filter, &[packet], appended).expect("readable");
    assert_eq!(left(&[0x08, 1, 0x10, 2], &[0x18, 3, 0x20, 4]), [0x08, 1, 0x18, 3]);
    assert_eq!(left(&[0x08, 1, 0x10, 2], &[0x18, 3]), [0x08, 1, 0x18, 3]);
    assert_eq!(left(&[0x08, 1], &[0x18, 3, 0x20, 4]), [0x08, 1, 0x18, 3]);
    assert_eq!(left(&[0x08, 1], &[0x18, 3]), [0x08, 1, 0x18, 3]);
    assert_eq!(left(&[0x10, 1], &[0x20, 3]), []);
}

#[test]
fn what_is_always_appended_stays_behind_what_is_left() {
    let stamped = STAMPED.map(simple).to_vec();
    let filter = filter(&[[stamped, vec![simple(1)]].concat()]);
    assert!(filter.keeps_stamps);
    let left = |packet: &[u8]| left(&filter, &[packet], &[0x18, 3]).expect("readable");
    assert_eq!(left(&[0x08, 1]), [0x08, 1, 0x18, 3]);
    assert_eq!(left(&[0x10, 1, 0x08, 1]), [0x08, 1, 0x18, 3]);
    assert_eq!(left(&[0x10, 1]), [0x18, 3]);
    assert_eq!(left(&[]), [0x18, 3]);
}

#[test]
fn bad_programs_are_refused() {
    let refusal = |words: &[u32]| load(bytes(words)).expect_err("refused").to_string();
    let trace = [nested(1, 1), END.to_vec()].concat();
    let with = |words: &[u32]| [&trace[..], words].concat();
    assert_eq!(load(Vec::new()).expect_err("refused").to_string(), "it has no bytecode");
    assert_eq!(refusal(&with(&[0, 1])), "word 4: field number 0");
    assert_eq!(refusal(&with(&[5 << 3 | 6])), "word 3: unknown operation 6");
    assert_eq!(refusal(&with(&[5 << 3 | 7])), "word 3: unknown operation 7");
    for opcode in [2, 3, 5] {
        assert_eq!(refusal(&with(&[5 << 3 | opcode])), "word 3: the operation has no operand");
    }
    assert_eq!(refusal(&with(&[&range(5, 0)[..], &END].concat())), "word 3: a range of 0 fields from 5");
    let endless = [&range(5, u32::MAX)[..], &END].concat();
    assert_eq!(refusal(&with(&endless)), "word 3: a range of 4294967295 fields from 5");
    let twice = [range(130, 10), simple(139), END.to_vec()].concat();
    assert_eq!(refusal(&with(&twice)), "message 1: field 139 is listed twice");
    let missing = [nested(5, 2), END.to_vec()].concat();
    assert_eq!(refusal(&with(&missing)), "message 1: field 5 has message 2, there are 2");
    assert_eq!(refusal(&with(&simple(5))), "the last message has no end");
    assert_eq!(refusal(&[]), "the last message has no end");
    assert_eq!(refusal(&END), "message 0, the trace, does not allow field 1, its packets");
    assert_eq!(
        refusal(&[simple(1), END.to_vec()].concat()),
        "message 0, the trace, does not allow field 1, its packets"
    );
    let mut wrong = bytecode(&[vec![simple(1)]]);
    wrong[0] ^= 1 << 3;
    assert!(matches!(load(wrong), Err(FilterError::Checksum { .. })));
    assert_eq!(
        load(vec![0x80]).expect_err("refused").to_string(),
        "the bytecode is not a list of varints of 32 bits"
    );
    assert!(load(vec![0xff, 0xff, 0xff, 0xff, 0xff, 1, 0]).is_err());
}

#[test]
fn newer_bytecode_and_overlays_count() {
    let base = bytecode(&[vec![simple(1), string(200)]]);
    let newer = bytecode(&[vec![simple(2)]]);
    let v2 = Config { bytecode: Some(base.clone()), bytecode_v2: Some(newer), ..Default::default() };
    let v2 = TraceFilter::load(&v2).expect("a good program");
    assert_eq!(filtered(&v2, &flat()), Ok(flat()[3..7].to_vec()));
    let overlaid = |triples: &[u32]| {
        let overlay = Some(bytes(triples));
        TraceFilter::load(&Config {
            bytecode: Some(base.clone()),
            bytecode_overlay_v54: overlay,
            ..Default::default()
        })
    };
    let more = overlaid(&[1, 3 << 3 | 1, 0, 1, 200 << 3 | 1, 0]).expect("a good overlay");
    assert_eq!(filtered(&more, &flat()), Ok([&flat()[..3], &flat()[7..12], &flat()[21..]].concat()));
    let refusal = |triples: &[u32]| overlaid(triples).expect_err("refused").to_string();
    assert_eq!(refusal(&[1, 9]), "the overlay is not a list of message, field and argument");
    assert_eq!(refusal(&[7, 3 << 3 | 1, 0]), "the overlay is for message 7, there are 2");
    assert_eq!(refusal(&[1, 3 << 3 | 3, 1]), "word 1: unknown operation 3");
    assert_eq!(
        refusal(&[1, 3 << 3 | 1, 0, 1, 3 << 3 | 1, 0]),
        "the overlay is not sorted at message 1, field 3"
    );
}

fn rule(policy: StringFilterPolicy, pattern: &str) -> StringFilterRule {
    StringFilterRule {
        policy: Some(policy.into()),
        regex_pattern: Some(pattern.to_owned()),
        ..Default::default()
    }
}

/// What rules make of a string whose field has this semantic type.
fn redacted(rules: Vec<StringFilterRule>, newer: Vec<StringFilterRule>, of: u32, string: &[u8]) -> Vec<u8> {
    let config = Config {
        bytecode: Some(bytecode(&[vec![typed(1, of)]])),
        string_filter_chain: Some(StringFilterChain { rules }),
        string_filter_chain_v54: Some(StringFilterChain { rules: newer }),
        ..Default::default()
    };
    let filter = TraceFilter::load(&config).expect("a good filter");
    let mut packet = Vec::new();
    prost::encoding::bytes::encode(1, &string.to_vec(), &mut packet);
    let out = filtered(&filter, &packet).expect("readable");
    assert_eq!(out.len(), packet.len(), "the length stays");
    out[packet.len() - string.len()..].to_vec()
}

#[test]
fn strings_are_redacted_by_the_first_rule_that_matches() {
    use StringFilterPolicy as Policy;
    let one = |rule: StringFilterRule, text: &str| {
        String::from_utf8(redacted(vec![rule], Vec::new(), 0, text.as_bytes())).expect("text")
    };
    let redact = |pattern: &str| rule(Policy::SfpMatchRedactGroups, pattern);
    assert_eq!(one(redact("name=(.*);id=(\\d+)"), "name=somebody else;id=42"), "name=P60REDACTED--;id=P6");
    assert_eq!(one(redact("name=(.*)"), "my name=x"), "my name=x", "all of it has to match");
    assert_eq!(one(redact("a(b)?c(d)"), "acd"), "acP", "groups that found nothing are left");
    let atrace = |policy: Policy, pattern: &str, prefix: &str| StringFilterRule {
        atrace_payload_starts_with: Some(prefix.to_owned()),
        ..rule(policy, pattern)
    };
    let match_atrace = || atrace(Policy::SfpAtraceMatchRedactGroups, "B\\|\\d+\\|pay(.*)", "pay");
    assert_eq!(one(match_atrace(), "B|1024|payload"), "B|1024|payP60R");
    assert_eq!(one(match_atrace(), "B|1024"), "B|1024");
    let each = || atrace(Policy::SfpAtraceRepeatedSearchRedactGroups, "id=(\\d)", "p");
    assert_eq!(one(each(), "B|1|p id=1 id=2 id=x"), "B|1|p id=P id=P id=x");
    assert_eq!(one(each(), "B|1|q id=1"), "B|1|q id=1");
    assert_eq!(one(each(), "E|1|p id=1"), "E|1|p id=1", "an end has no payload");
    let empty = atrace(Policy::SfpAtraceRepeatedSearchRedactGroups, "(x*)", "");
    assert_eq!(one(empty, "B|1|axb"), "B|1|aPb", "empty matches are passed over");

    let chain = |rules: Vec<StringFilterRule>| redacted(rules, Vec::new(), 0, b"secret=1");
    let keep = || rule(Policy::SfpMatchBreak, "secret=1");
    assert_eq!(chain(vec![keep(), redact("secret=(.*)")]), b"secret=1");
    assert_eq!(chain(vec![redact("secret=(.*)"), keep()]), b"secret=P");
    assert_eq!(chain(vec![redact("nothing"), redact("(.*)=1")]), b"P60RED=1");
}

#[test]
fn patterns_see_bytes() {
    let redact = |pattern: &str| vec![rule(StringFilterPolicy::SfpMatchRedactGroups, pattern)];
    assert_eq!(redacted(redact("a(.)b(.)"), Vec::new(), 0, b"a\xffb\xfe"), b"aPbP");
    // Two bytes each, in pattern and string.
    assert_eq!(redacted(redact("é(..)x"), Vec::new(), 0, "éüx".as_bytes()), "éP6x".as_bytes());
}

#[test]
fn rules_are_for_semantic_types_and_newer_ones_replace_older() {
    use StringFilterPolicy::SfpMatchRedactGroups as Redact;
    let of_job = |name: &str, pattern: &str| StringFilterRule {
        name: Some(name.to_owned()),
        semantic_type: vec![2],
        ..rule(Redact, pattern)
    };
    let rules = || vec![of_job("job", "a(.)")];
    assert_eq!(redacted(rules(), Vec::new(), 2, b"ab"), b"aP");
    assert_eq!(redacted(rules(), Vec::new(), 1, b"ab"), b"ab");
    assert_eq!(redacted(rules(), Vec::new(), 0, b"ab"), b"ab");
    assert_eq!(redacted(rules(), vec![of_job("job", "(.)b")], 2, b"ab"), b"Pb");
    assert_eq!(redacted(rules(), vec![of_job("", "(.)b")], 2, b"ab"), b"aP", "appended");
    assert_eq!(redacted(vec![rule(Redact, "a(.)")], Vec::new(), 2, b"ab"), b"ab", "only of no type");
}

#[test]
fn bad_string_filters_are_refused() {
    let refusal = |rules: Vec<StringFilterRule>| {
        let config = Config {
            bytecode: Some(bytecode(&[vec![string(1)]])),
            string_filter_chain: Some(StringFilterChain { rules }),
            ..Default::default()
        };
        TraceFilter::load(&config).expect_err("refused").to_string()
    };
    let pattern = refusal(vec![rule(StringFilterPolicy::SfpMatchBreak, "(")]);
    assert!(pattern.starts_with("string filter 0: \"(\" is not a pattern"), "{pattern}");
    let unknown = StringFilterRule { policy: Some(9), ..Default::default() };
    assert_eq!(refusal(vec![unknown]), "string filter 0: unknown policy 9");
    assert_eq!(refusal(vec![StringFilterRule::default()]), "string filter 0: unknown policy 0");
    let many = refusal(vec![rule(StringFilterPolicy::SfpMatchBreak, "a"); 1025]);
    assert_eq!(many, "it has 1025 string filters, at most 1024 are allowed");
}

#[test]
fn a_real_packet_loses_what_is_not_allowed() {
    let event = protos::TestEvent { str: Some("text".to_owned()), seq_value: Some(7), ..Default::default() };
    let packet = protos::TracePacket {
        timestamp: Some(5),
        data: Some(protos::trace_packet::Data::ForTesting(event)),
        ..Default::default()
    };
    // for_testing is field 900 of TracePacket, str field 1 of TestEvent.
    let filter = filter(&[vec![nested(900, 2)], vec![simple(1)]]);
    let out = filtered(&filter, &packet.encode_to_vec()).expect("readable");
    let left = protos::TracePacket::decode(&out[..]).expect("a packet");
    assert_eq!(left.timestamp, None);
    let event = protos::TestEvent { str: Some("text".to_owned()), ..Default::default() };
    assert_eq!(left.data, Some(protos::trace_packet::Data::ForTesting(event)));
}

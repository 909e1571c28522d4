//! How histories are drawn at random for property tests.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::history::{
    Change, Contents, Declared, Fragment, History, IdPick, Oddity, Place, Setup, Slack, Start, Step, Stretch,
};

/// Histories of up to `steps` steps. For four that go chunk by chunk `of_stretches` consist of
/// stretches and of reads in their middle, in larger buffers and of fewer steps.
pub fn histories(steps: usize, of_stretches: u32) -> impl Strategy<Value = History> {
    prop_oneof![
        4 => (setups(4), vec(any_step(), 1..=steps)),
        of_stretches => (setups(1), vec(step_of_stretches(), 1..=steps.div_ceil(2))),
    ]
    .prop_map(|(setup, steps)| History { setup, steps })
}

/// Setups, of which so many for each of another size have the smallest.
fn setups(smallest: u32) -> impl Strategy<Value = Setup> {
    let start =
        prop_oneof![4 => Just(Start::Zero), 1 => Just(Start::BeforeWrap), 1 => Just(Start::BeforeSign)];
    (
        prop_oneof![2 * smallest => Just(0u8), 2 => Just(1), 2 => Just(2), 1 => Just(3), 1 => Just(4)],
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.2),
        start,
    )
        .prop_map(|(pages, discard, sink, start)| Setup { pages, discard, sink, start })
}

fn writers() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0u8), 2 => Just(1), 1 => Just(2), 1 => Just(3)]
}

/// Chunk by chunk.
fn any_step() -> impl Strategy<Value = Step> {
    let nth = || prop_oneof![4 => Just(0u8), 2 => Just(1), 1 => 0..12u8];
    let limits = prop_oneof![2 => Just(u8::MAX), 3 => 0..12u8];
    prop_oneof![
        40 => commits(),
        2 => stretches(30).prop_map(Step::Stretch),
        16 => recommits(nth()),
        10 => patches(nth()),
        2 => (writers(), prop::bool::weighted(0.8)).prop_map(|(writer, restart)| Step::EndWriter { writer, restart }),
        1 => writers().prop_map(|writer| Step::EndProducer { writer }),
        1 => (writers(), contents()).prop_map(|(writer, contents)| Step::Hold { writer, contents }),
        1 => any::<u8>().prop_map(Step::Release),
        9 => limits.prop_map(|limit| Step::Read { limit }),
        2 => (0..12u8).prop_map(|limit| Step::ReadOn { limit }),
        1 => (writers(), any::<u16>()).prop_map(|(writer, bits)| Step::ReturnLoss { writer, bits }),
        2 => Just(Step::Clone),
    ]
}

/// Many chunks at once, what comes back to any of them, and reads that end in their middle.
fn step_of_stretches() -> impl Strategy<Value = Step> {
    let nth = || prop_oneof![1 => Just(0u8), 3 => 0..70u8];
    let limits = prop_oneof![3 => Just(u8::MAX), 3 => 0..12u8, 3 => 0..200u8];
    prop_oneof![
        24 => stretches(200).prop_map(Step::Stretch),
        6 => commits(),
        6 => recommits(nth()),
        9 => patches(nth()),
        1 => (writers(), prop::bool::weighted(0.8)).prop_map(|(writer, restart)| Step::EndWriter { writer, restart }),
        1 => writers().prop_map(|writer| Step::EndProducer { writer }),
        6 => (writers(), contents()).prop_map(|(writer, contents)| Step::Hold { writer, contents }),
        3 => any::<u8>().prop_map(Step::Release),
        24 => limits.prop_map(|limit| Step::Read { limit }),
        6 => prop_oneof![Just(u8::MAX), 0..50u8].prop_map(|limit| Step::ReadOn { limit }),
        1 => (writers(), any::<u16>()).prop_map(|(writer, bits)| Step::ReturnLoss { writer, bits }),
        1 => Just(Step::Clone),
    ]
}

fn commits() -> impl Strategy<Value = Step> {
    (writers(), ids(), contents()).prop_map(|(writer, id, contents)| Step::Commit { writer, id, contents })
}

fn recommits(nth: impl Strategy<Value = u8>) -> impl Strategy<Value = Step> {
    (writers(), nth, changes(), prop::bool::weighted(0.7)).prop_map(
        |(writer, nth_newest, change, complete)| Step::Recommit { writer, nth_newest, change, complete },
    )
}

fn patches(nth: impl Strategy<Value = u8>) -> impl Strategy<Value = Step> {
    (writers(), nth, vec(places(), 0..3), prop::bool::weighted(0.3))
        .prop_map(|(writer, nth_newest, places, pending)| Step::Patch { writer, nth_newest, places, pending })
}

fn stretches(most_chunks: u8) -> impl Strategy<Value = Stretch> {
    let turns = prop_oneof![3 => vec(writers(), 1), 2 => vec(writers(), 2..4)];
    let in_a_row = prop_oneof![3 => Just(0u8), 2 => 0..40u8];
    let parts = prop_oneof![3 => Just(0u8), 3 => 1..6u8, 3 => 13..20u8, 2 => 0..64u8];
    let len = prop_oneof![1 => 0..4u16, 16 => 33..90u16, 4 => 90..400u16, 1 => 400..4200u16];
    let header_len = prop_oneof![4 => Just(1u8), 2 => Just(4), 1 => 1..11u8];
    let patch_every = prop_oneof![6 => Just(0u8), 1 => 1..24u8];
    let at = || 0..most_chunks;
    let oddity = prop_oneof![
        8 => Just(Oddity::None),
        1 => at().prop_map(Oddity::Gap),
        1 => at().prop_map(Oddity::Late),
        1 => at().prop_map(Oddity::Twice),
        1 => at().prop_map(Oddity::Scraped),
        1 => at().prop_map(Oddity::Unfinished),
    ];
    let pattern = (turns, in_a_row, 0..most_chunks, parts, 0..4u8);
    (pattern, vec(len, 1..5), header_len, patch_every, oddity).prop_map(
        |((turns, in_a_row, chunks, parts, whole), lens, header_len, patch_every, oddity)| Stretch {
            turns,
            in_a_row,
            chunks,
            parts,
            whole,
            lens,
            header_len,
            patch_every,
            oddity,
        },
    )
}

fn ids() -> impl Strategy<Value = IdPick> {
    prop_oneof![
        60 => Just(IdPick::Next),
        8 => (0..3u8).prop_map(IdPick::Skip),
        10 => (0..8u8).prop_map(IdPick::Back),
        1 => any::<u32>().prop_map(IdPick::Any),
    ]
}

fn contents() -> impl Strategy<Value = Contents> {
    let slack = prop_oneof![
        10 => Just((true, 0)),
        2 => (0..2000u16).prop_map(|len| (true, len)),
        8 => (0..500u16).prop_map(|len| (false, len)),
    ];
    let flags = (
        prop::bool::weighted(0.06),
        prop_oneof![10 => Just((false, false)), 6 => Just((true, false)), 5 => Just((true, true)), 1 => Just((false, true))],
        prop_oneof![15 => Just(0u8), 1 => any::<u8>()],
    );
    (fragments(0, 6), declared(), flags, slack, prop_oneof![Just(0u8), any::<u8>()]).prop_map(
        |(fragments, declared, flags, (complete, len), byte)| {
            let (flip_first_continues, (last_continues, needs_patching), other_flags) = flags;
            let slack = Slack { len, byte };
            Contents {
                fragments,
                declared,
                flip_first_continues,
                last_continues,
                needs_patching,
                other_flags,
                complete,
                slack,
            }
        },
    )
}

fn declared() -> impl Strategy<Value = Declared> {
    prop_oneof![
        40 => Just(Declared::Exact),
        2 => any::<u8>().prop_map(Declared::Fewer),
        4 => any::<u8>().prop_map(Declared::More),
        1 => any::<u16>().prop_map(Declared::Count),
    ]
}

fn fragments(min: usize, max: usize) -> impl Strategy<Value = Vec<Fragment>> {
    let len = prop_oneof![
        2 => Just(0u16),
        16 => 1..12u16,
        8 => 12..300u16,
        4 => 300..1500u16,
        1 => 1500..6000u16,
    ];
    let header_len = prop_oneof![4 => Just(1u8), 4 => Just(4), 1 => 1..11u8];
    let fragment = prop_oneof![
        80 => (len, header_len).prop_map(|(len, header_len)| Fragment::Body { len, header_len }),
        2 => Just(Fragment::Sentinel),
        3 => vec(any::<u8>(), 0..13).prop_map(Fragment::Raw),
    ];
    vec(fragment, min..=max)
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        5 => Just(Change::Same),
        6 => fragments(1, 3).prop_map(Change::Grow),
        1 => (1..3u8).prop_map(Change::Shrink),
        2 => (fragments(0, 5), declared()).prop_map(|(fragments, declared)| Change::Replace(fragments, declared)),
        1 => any::<u8>().prop_map(Change::Flags),
        3 => any::<bool>().prop_map(Change::Continue),
    ]
}

fn places() -> impl Strategy<Value = Place> {
    prop_oneof![
        12 => any::<u8>().prop_map(Place::LastBody),
        1 => (0..300u16).prop_map(Place::Offset),
        1 => (0..9u8).prop_map(Place::NearEnd),
        1 => any::<u32>().prop_map(Place::Far),
    ]
}

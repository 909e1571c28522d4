//! Bytes of chunks: whatever is in them, the engine finds the fragments that the model finds.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use watershed_model::drive::run;
use watershed_model::engine::Engine;
use watershed_model::history::{
    Change, Contents, Declared, Fragment, History, IdPick, Place, Setup, Slack, Start, Step,
};

/// A chunk whose payload is any bytes, and what follows it.
#[derive(Arbitrary, Debug)]
struct Raw {
    count: u16,
    flags: u8,
    complete: bool,
    payload: Vec<u8>,
    then: Then,
}

#[derive(Arbitrary, Debug)]
enum Then {
    Nothing,
    Read(u8),
    Again { count: u16, complete: bool, payload: Vec<u8> },
    Patch(u16),
}

fuzz_target!(|chunks: Vec<Raw>| {
    let steps =
        chunks.into_iter().flat_map(steps_of).chain([Step::Clone, Step::Read { limit: u8::MAX }]).collect();
    let setup = Setup { pages: 0, discard: false, sink: false, start: Start::Zero };
    if let Err(difference) = run::<Engine>(&History { setup, steps }) {
        panic!("{difference}");
    }
});

fn steps_of(raw: Raw) -> Vec<Step> {
    let contents = Contents {
        fragments: vec![Fragment::Raw(raw.payload)],
        declared: Declared::Count(raw.count % 64),
        flip_first_continues: raw.flags & 1 != 0,
        last_continues: raw.flags & 2 != 0,
        needs_patching: raw.flags & 4 != 0,
        other_flags: raw.flags,
        complete: raw.complete,
        slack: Slack { len: 0, byte: 0 },
    };
    let commit = Step::Commit { writer: 0, id: IdPick::Next, contents };
    let then = match raw.then {
        Then::Nothing => None,
        Then::Read(limit) => Some(Step::Read { limit }),
        Then::Again { count, complete, payload } => {
            let change = Change::Replace(vec![Fragment::Raw(payload)], Declared::Count(count % 64));
            Some(Step::Recommit { writer: 0, nth_newest: 0, change, complete })
        }
        Then::Patch(at) => {
            let places = vec![Place::Offset(at % 512)];
            Some(Step::Patch { writer: 0, nth_newest: 0, places, pending: false })
        }
    };
    std::iter::once(commit).chain(then).collect()
}

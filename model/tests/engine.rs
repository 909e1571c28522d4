//! The engine behaves like the model, and serves writers as they expect.
//!
//! `WATERSHED_STEPS` and `WATERSHED_SEED` make the property test longer, or draw other histories.

use watershed_model::drive::Scope;
use watershed_model::engine::Engine;
use watershed_model::property::{check, check_in};
use watershed_model::subject::Subject;
use watershed_model::writers::{Dice, Writers};
use watershed_model::{Chunk, Identity, Model, Policy};

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn the_engine_is_like_the_model_in_every_history() {
    let seed = number_from("WATERSHED_SEED", 1);
    let (steps, last_seed) = check::<Engine>(number_from("WATERSHED_STEPS", 25_000), seed);
    println!("{steps} steps, seeds {seed} to {last_seed}");
}

#[test]
fn a_large_engine_reads_like_a_large_model() {
    check_in::<Engine>(Scope::Packets { size_bytes: 1 << 20 }, 4_000, number_from("WATERSHED_SEED", 1));
}

#[test]
fn writers_lose_nothing_where_nothing_is_evicted() {
    for seed in 0..60 {
        let engine = Engine::create(1 << 20, Policy::Ring, None);
        let result = Writers::new(engine, 3, 60 + 17 * (seed as usize % 13), false, seed).run(250);
        result.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    }
}

#[test]
fn writers_are_told_what_is_lost() {
    let mut lost = 0;
    for seed in 0..100 {
        let engine = Engine::create(4096, Policy::Ring, None);
        let result = Writers::new(engine, 3, 60 + 17 * (seed as usize % 13), true, seed).run(250);
        lost += result.unwrap_or_else(|difference| panic!("seed {seed}: {difference}")).1;
    }
    assert!(lost > 300, "{lost} packets lost");
}

/// Fragments of these bodies, with the shortest headers but for one in `long`, which takes four
/// bytes; 0 is none.
fn fragments(bodies: &[usize], long: usize, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    for body in bodies {
        let least = if *body < 128 { 1 } else { 2 };
        let header = if long != 0 && dice.one_in(long) { 4 } else { least };
        let more = |i: usize| if i + 1 < header { 0x80 } else { 0 };
        bytes.extend((0..header).map(|i| (body >> (7 * i)) as u8 & 0x7f | more(i)));
        bytes.extend((0..*body).map(|_| dice.below(256) as u8));
    }
    bytes
}

/// Chunks of up to 32 KiB and of up to 1,100 fragments, of which the histories above draw few. Some
/// are damaged, or declare other numbers of fragments.
#[test]
fn dense_and_large_chunks_are_those_of_the_model() {
    let mut whole = 0;
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let size_bytes = [16 << 10, 64 << 10, 256 << 10][seed as usize % 3];
        let (mut engine, mut model) =
            (Engine::create(size_bytes, Policy::Ring, None), Model::create(size_bytes, Policy::Ring, None));
        for step in 0..80 {
            let longest = [0, 1, 9, 60, 127, 300, 4090][dice.below(7)];
            let most_bytes = [300, 4080, 32_752][dice.below(3)];
            let chunk_bytes = 1 + dice.below(most_bytes);
            let mut bodies = Vec::new();
            while bodies.iter().map(|body| body + 2).sum::<usize>() < chunk_bytes && bodies.len() < 1100 {
                bodies.push(dice.below(longest + 1));
            }
            let mut bytes = fragments(&bodies, [0, 0, 25, 2][dice.below(4)], &mut dice);
            let (mut num_fragments, is_damaged) = (bodies.len() as u16, dice.one_in(4));
            if is_damaged {
                let at = dice.below(bytes.len());
                match dice.below(4) {
                    0 => bytes[at] = dice.below(256) as u8,
                    1 => bytes.truncate(at),
                    2 => num_fragments += 1,
                    _ => num_fragments -= 1,
                }
            } else if dice.one_in(3) {
                bytes.resize(bytes.len() + dice.below(500), 0x81);
            }
            whole += u32::from(!is_damaged);
            let chunk = Chunk {
                producer_id: 1,
                writer_id: 1 + (step % 3) as u16,
                identity: Identity { uid: 1, pid: 2, machine_id: 0 },
                chunk_id: step / 3,
                num_fragments,
                flags: if dice.one_in(2) { dice.below(4) as u8 } else { 0 },
                complete: !dice.one_in(20),
                bytes: &bytes,
            };
            assert_eq!(engine.commit(&chunk), model.commit(&chunk), "seed {seed}, step {step}");
            if dice.one_in(12) {
                assert!(engine.read_all() == model.read_all(), "seed {seed}, step {step}: packets");
            }
            assert_eq!(engine.stats(), model.stats(), "seed {seed}, step {step}");
            assert_eq!(engine.ledger(), model.ledger(), "seed {seed}, step {step}");
            assert_eq!(engine.write_offset(), Subject::write_offset(&model), "seed {seed}, step {step}");
        }
        assert!(engine.read_all() == model.read_all(), "seed {seed}: packets");
        engine.check().expect("its invariants");
    }
    assert!(whole > 3000, "{whole} are whole");
}

//! The model serves well-behaved writers as they expect.

use watershed_model::writers::Writers;
use watershed_model::{Model, Policy};

#[test]
fn nothing_is_lost_where_nothing_is_evicted() {
    let mut read = 0;
    for seed in 0..60 {
        let model = Model::new(1 << 20, Policy::Ring);
        let result = Writers::new(model, 3, 60 + 17 * (seed as usize % 13), false, seed).run(250);
        read += result.unwrap_or_else(|difference| panic!("seed {seed}: {difference}")).0;
    }
    println!("{read} packets");
    assert!(read > 8000);
}

#[test]
fn what_is_lost_is_said() {
    let (mut read, mut lost) = (0, 0);
    for seed in 0..100 {
        let model = Model::new(4096, Policy::Ring);
        let result = Writers::new(model, 3, 60 + 17 * (seed as usize % 13), true, seed).run(250);
        let (r, l) = result.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
        read += r;
        lost += l;
    }
    println!("{read} packets, {lost} lost");
    assert!(read > 8000 && lost > 300);
}

//! Loom models of the bits by which shards ask for a worker.

use crate::models::model;
use crate::sync::ready::ReadyShards;
use loom::{sync::Arc, thread};

/// Each time that a bit is set one worker gets the shard, or the bit is still set.
#[test]
fn a_bit_is_claimed_once_for_each_time_that_it_is_set() {
    model(|| {
        let ready = Arc::new(ReadyShards::new(2));
        let setter = {
            let ready = Arc::clone(&ready);
            thread::spawn(move || usize::from(ready.set(0)) + usize::from(ready.set(1)))
        };
        let worker = {
            let ready = Arc::clone(&ready);
            thread::spawn(move || usize::from(ready.claim().is_some()))
        };
        let set = usize::from(ready.set(0));
        let claimed = usize::from(ready.claim().is_some()) + worker.join().unwrap();
        let set = set + setter.join().unwrap();
        let left = std::iter::from_fn(|| ready.claim()).count();
        assert_eq!(set, claimed + left);
        assert!(!ready.any());
    });
}

//! Pages of rings are made ready by another thread, if there is one that may wait.

use std::time::Duration;

use watershed_service::{ConsumerId, ProducerId, SLOW_PAGE, Warning};
use watershed_wire::protos::TraceConfig;

use crate::support::World;
use crate::support::config::{buffer, one_source};
use crate::support::producer::packet;

/// A session of one producer with a ring of this size.
fn world_with_ring(size_kb: u32) -> (World, ProducerId, ConsumerId) {
    let mut world = World::that_never_waits();
    let producer = world.connect("p");
    world.register(producer, "src");
    if let Some(trial) = world.service.poll_prefault() {
        assert!(world.service.poll_prefault().is_none(), "one is under way");
        world.service.handle_prefaulted(trial.run(|| Duration::ZERO));
    }
    assert!(world.service.poll_prefault().is_none(), "there is no ring");
    let config = TraceConfig { buffers: vec![buffer(size_kb)], ..one_source("src") };
    let (consumer, _) = world.enable(&config);
    world.commands(producer);
    (world, producer, consumer)
}

#[test]
fn pages_are_asked_for_once_until_they_are_there() {
    let (mut world, producer, consumer) = world_with_ring(32 << 10);
    assert!(!world.service.handle_idle(), "another thread does it");
    // None where the system has no huge pages.
    let Some(work) = world.service.poll_prefault() else { return };
    assert!(world.service.poll_prefault().is_none(), "one is under way");
    // Commits and reads go on meanwhile.
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("meanwhile")]);
    assert_eq!(world.read(consumer).texts(), ["meanwhile"]);
    world.service.handle_prefaulted(work.run(|| Duration::ZERO));
    world.pump();
    assert_eq!(world.warnings, []);
    // Before the first commit one page is wanted, then more.
    while let Some(work) = world.service.poll_prefault() {
        world.service.handle_prefaulted(work.run(|| Duration::ZERO));
    }
    write_mib(&mut world, producer, 4);
    assert!(world.service.poll_prefault().is_some(), "less is ready than is to be");
}

/// Of a ring of 64 MiB 8 are ready ahead of what is written, of one of 32 MiB 4.
#[test]
fn more_of_a_large_ring_is_ready_ahead() {
    let pages_ready = |size_kb| {
        let (mut world, producer, _) = world_with_ring(size_kb);
        write_mib(&mut world, producer, 1);
        let mut num_pages = 0;
        while let Some(work) = world.service.poll_prefault() {
            let mut num_looks = 0;
            world.service.handle_prefaulted(work.run(|| {
                num_looks += 1;
                Duration::ZERO
            }));
            // The clock is read before the first page, and behind each.
            num_pages += num_looks - 1;
        }
        num_pages
    };
    let (small, large) = (pages_ready(32 << 10), pages_ready(64 << 10));
    // None where the system has no huge pages; else two more of 2 MiB.
    assert!(small == 0 && large == 0 || large == small + 2, "{small} and {large}");
}

/// A clock by which each page takes as long as a slow one.
fn slow_clock() -> impl FnMut() -> Duration {
    let mut clock = Duration::ZERO;
    move || {
        clock += SLOW_PAGE;
        clock
    }
}

#[test]
fn a_ring_whose_huge_pages_are_slow_has_plain_ones() {
    let (mut world, producer, consumer) = world_with_ring(32 << 10);
    let mut num_slow = 0;
    let mut prefault = |world: &mut World| {
        while let Some(work) = world.service.poll_prefault() {
            world.service.handle_prefaulted(work.run(slow_clock()));
            num_slow += 1;
        }
        world.pump();
        let expected = [Warning::SlowHugePages];
        assert_eq!(world.warnings, &expected[..num_slow.min(1)], "it is said once");
    };
    prefault(&mut world);
    let written = write_mib(&mut world, producer, 8);
    prefault(&mut world);
    // Plain pages are made ready, too; none where the system has no huge pages.
    assert!(num_slow == 0 || num_slow > 1, "{num_slow}");
    assert_eq!(world.read(consumer).texts().len(), written);
}

/// Slow pages are found before there is a ring.
#[test]
fn a_trial_comes_before_the_rings() {
    let mut world = World::that_never_waits();
    let trial = world.service.poll_prefault().expect("a trial comes first");
    assert!(world.service.poll_prefault().is_none(), "it is under way");
    world.service.handle_prefaulted(trial.run(slow_clock()));
    world.pump();
    // None where the system has no huge pages.
    assert!(world.warnings.iter().all(|warning| *warning == Warning::SlowHugePages));
    assert!(world.warnings.len() <= 1 && world.service.poll_prefault().is_none());
    let producer = world.connect("p");
    world.register(producer, "src");
    let config = TraceConfig { buffers: vec![buffer(32 << 10)], ..one_source("src") };
    let (consumer, _) = world.enable(&config);
    world.commands(producer);
    let written = write_mib(&mut world, producer, 4);
    while let Some(work) = world.service.poll_prefault() {
        world.service.handle_prefaulted(work.run(slow_clock()));
    }
    assert_eq!(world.read(consumer).texts().len(), written);
    world.pump();
    assert!(world.warnings.len() <= 1, "it is said once: {:?}", world.warnings);
}

/// What the system notes of the mapping of a ring: `hg` if it is to have huge pages, `nh` if none.
/// No other test has rings of that size.
#[cfg(target_os = "linux")]
fn has_flag(size_kb: u32, flag: &str) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the system's list of mappings");
    let size = format!("{size_kb} kB");
    let is_ring = |line: &&str| line.strip_prefix("Size:").is_some_and(|rest| rest.trim() == size);
    let mut behind = maps.lines().skip_while(|line| !is_ring(line));
    let flags = behind.find_map(|line| line.strip_prefix("VmFlags:")).unwrap_or_default();
    flags.split_whitespace().any(|word| word == flag)
}

/// Also a ring that is made while the trial is under way.
#[cfg(target_os = "linux")]
#[test]
fn rings_have_plain_pages_once_a_trial_was_slow() {
    for (size_kb, is_slow, is_late) in
        [(34 << 10, false, false), (38 << 10, true, false), (42 << 10, true, true)]
    {
        let mut world = World::that_never_waits();
        let producer = world.connect("p");
        world.register(producer, "src");
        let config = TraceConfig { buffers: vec![buffer(size_kb)], ..one_source("src") };
        let trial = world.service.poll_prefault().expect("a trial comes first");
        let done = if is_slow { trial.run(slow_clock()) } else { trial.run(|| Duration::ZERO) };
        if is_late {
            world.enable(&config);
            world.service.handle_prefaulted(done);
        } else {
            world.service.handle_prefaulted(done);
            world.enable(&config);
        }
        // The system has none of them.
        if !is_slow && !has_flag(size_kb, "hg") {
            return;
        }
        assert_eq!(has_flag(size_kb, "nh"), is_slow, "{size_kb}");
    }
}

/// Packets of 1 KiB; returns how many.
fn write_mib(world: &mut World, producer: ProducerId, mib: usize) -> usize {
    let target = world.producers[&producer].target_buffer(0);
    let text = "x".repeat(1000);
    for _ in 0..mib << 10 {
        world.write(producer, 1, target, &[packet(&text)]);
    }
    mib << 10
}

#[test]
fn a_ring_may_go_while_its_pages_are_made_ready() {
    let (mut world, _, consumer) = world_with_ring(32 << 10);
    let Some(work) = world.service.poll_prefault() else { return };
    let now = world.now;
    world.service.handle_consumer_disconnect(consumer, &now);
    world.pump();
    while world.service.poll_dropped().is_some() {}
    world.service.handle_prefaulted(work.run(|| Duration::ZERO));
    assert!(world.service.poll_prefault().is_none(), "there is no ring any more");
}

#[test]
fn small_rings_want_none() {
    let (mut world, ..) = world_with_ring(64);
    assert!(world.service.poll_prefault().is_none());
}

//! A hostile producer process: it writes garbage over the whole memory, bitmaps first, while the
//! other side works on it.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};

const PAGES: usize = 4;
const PAGE_BYTES: usize = 4096;
const MEMORY: &str = "WATERSHED_TEST_MEMORY";
/// Names the program that runs this one, where one is needed: see ci/aarch64.
const EMULATOR: &str = "WATERSHED_TEST_EMULATOR";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The hostile process, run by the test below.
#[test]
#[ignore = "run by a_hostile_process_harms_only_itself in a process of its own"]
fn child_that_scribbles() {
    let memory = File::options().read(true).write(true).open(std::env::var(MEMORY).unwrap()).unwrap();
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        for _ in 0..100 {
            let word = random.next();
            let place = match word % 4 {
                // A bitmap, often of a real layout with all kinds of states.
                0 | 1 => random.next() as usize % PAGES * PAGE_BYTES,
                // A chunk header of some layout, or anything.
                2 => {
                    random.next() as usize % PAGES * PAGE_BYTES
                        + [8, 300, 592, 1028, 2052][word as usize / 8 % 5]
                }
                _ => random.next() as usize % (PAGES * PAGE_BYTES - 4),
            };
            memory.write_all_at(&(random.next() as u32).to_le_bytes(), place as u64).unwrap();
        }
    }
}

const OURS: ChunkHeader = ChunkHeader { chunk_id: 1, writer_id: 1, fragments: 2, flags: ChunkFlags::NONE };

/// All steps of a service and a writer, on any bytes. Returns how often garbage was scraped and
/// taken, and how often a step on a chunk that we owned was refused. `patience` leaves the child
/// time between two steps on a chunk; without a processor of its own it would hardly ever run
/// there.
fn work(smb: &Smb, bytes: &mut [u8], patience: bool) -> [u64; 3] {
    let wait = || {
        if patience {
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    let [mut scraped, mut taken, mut refused] = [0; 3];
    for chunk in smb.scrape() {
        let payload = chunk.payload();
        payload.copy_range(0, &mut bytes[..payload.size_bytes()]);
        assert!(chunk.header().fragments <= 1023);
        scraped += u64::from(chunk.header() != OURS);
    }
    for page in 0..=PAGES {
        for index in 0..=14 {
            let Ok(chunk) = smb.try_begin_read(page, index) else { continue };
            let payload = chunk.payload();
            payload.copy_range(0, &mut bytes[..payload.size_bytes()]);
            taken += u64::from(chunk.header() != OURS);
            wait();
            refused += u64::from(chunk.release().is_err());
        }
    }
    if let Ok(chunk) = smb.try_acquire(1, PageLayout::Div4) {
        smb.write_header(&chunk, OURS);
        smb.write_payload(&chunk, 0, &bytes[..chunk.payload_size_bytes()]);
        wait();
        refused += u64::from(smb.complete(chunk).is_err());
    }
    [scraped, taken, refused]
}

#[test]
fn a_hostile_process_harms_only_itself() {
    let memory = SharedMemory::create(PAGES * PAGE_BYTES).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.fd().unwrap().as_raw_fd());
    let reset = File::options().write(true).open(&path).unwrap();
    let smb = Smb::new(Arc::new(memory), PAGE_BYTES).unwrap();
    // Under emulation a program of the other architecture cannot be started by itself.
    let program = std::env::current_exe().unwrap();
    let command = |emulator| {
        let mut command = Command::new(emulator);
        command.arg(&program);
        command
    };
    let mut child = std::env::var_os(EMULATOR)
        .map_or_else(|| Command::new(&program), command)
        .args(["--exact", "child_that_scribbles", "--ignored"])
        .env(MEMORY, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut bytes = vec![0; PAGE_BYTES];
    let mut worked = [0_u64; 3];
    let end = Instant::now() + Duration::from_secs(45);
    // Until each has happened a hundred times. First a second without patience, which is enough
    // with two processors.
    let patient_from = Instant::now() + Duration::from_secs(1);
    while worked.iter().any(|times| *times < 100) && Instant::now() < end {
        let patience = Instant::now() > patient_from;
        for (sum, times) in worked.iter_mut().zip(work(&smb, &mut bytes, patience)) {
            *sum += times;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(worked.iter().all(|times| *times >= 100), "the child was at work: {worked:?}");

    // No state is kept outside of the memory: with clean pages everything works again.
    reset.write_all_at(&vec![0; PAGES * PAGE_BYTES], 0).unwrap();
    let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
    smb.complete(chunk).unwrap();
    smb.try_begin_read(0, 0).unwrap().release().unwrap();
    assert!(smb.snapshot(0).unwrap().is_free());
}

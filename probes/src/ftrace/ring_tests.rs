//! Rings of a made-up tracefs. Its files are plain ones: what is written to one lies over what it
//! had.

use super::*;
use crate::ftrace::tracefs::TraceFs;

/// Files of a tracefs of one CPU that nobody uses.
struct MadeUp(tempfile::TempDir);

impl MadeUp {
    fn new(clocks: &str) -> Self {
        let made_up = Self(tempfile::tempdir().unwrap());
        for (file, content) in [
            ("trace_clock", clocks),
            ("tracing_on", "1\n"),
            ("current_tracer", "nop\n"),
            ("set_event", ""),
            ("events/header_page", include_str!("../../tests/pages/6.18-x86_64/whole/header_page")),
            ("per_cpu/cpu0/trace_pipe_raw", ""),
        ] {
            made_up.write(file, content);
        }
        fs::create_dir(made_up.root().join("instances")).unwrap();
        made_up
    }

    fn root(&self) -> PathBuf {
        self.0.path().join("sys/kernel/tracing")
    }

    fn write(&self, file: &str, content: &str) {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(file)).unwrap()
    }

    fn roots(&self) -> Roots {
        Roots { proc: PathBuf::from("/proc"), sys: self.0.path().join("sys") }
    }

    fn take_top(&self, mono_raw: bool) -> Result<Ring, String> {
        let tracefs = TraceFs::find(&self.roots()).unwrap();
        Ring::take_top(&tracefs, &self.roots(), mono_raw)
    }

    fn instances(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root().join("instances")).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

#[test]
fn clocks_in_the_order_of_their_use() {
    for (offered, mono_raw, number, written) in [
        ("[local] global boot mono_raw", false, 0, Some("boot")),
        ("[local] global boot mono_raw", true, 4, Some("mono_raw")),
        ("[local] global boot", true, 0, Some("boot")),
        ("[local] global", false, 2, Some("global")),
        ("local [x86-tsc]", false, 3, Some("local")),
        ("local global [boot]", false, 0, None),
    ] {
        let made_up = MadeUp::new(offered);
        let ring = made_up.take_top(mono_raw).unwrap();
        assert_eq!(ring.clock, number, "{offered}");
        assert!(made_up.read("trace_clock").starts_with(written.unwrap_or(offered)), "{offered}");
        let needs_snapshot = matches!(number, 2 | 3);
        made_up.write("per_cpu/cpu0/stats", "entries: 0\nnow ts: 12.5\n");
        let clock = ring.bundle_clock();
        assert_eq!((clock.number, clock.snapshot_ns.is_some()), (number, needs_snapshot), "{offered}");
        if let Some((ring_ns, _)) = clock.snapshot_ns {
            assert_eq!(ring_ns, 12_500_000_000);
        }
    }
    let made_up = MadeUp::new("[uptime] perf");
    assert_eq!(made_up.take_top(true).unwrap_err(), "no usable clock, the kernel offers [uptime] perf");
}

#[test]
fn the_buffer_of_everybody_is_put_back() {
    let made_up = MadeUp::new("[local] boot");
    let ring = made_up.take_top(false).unwrap();
    let [marker] = &made_up.instances()[..] else { panic!("no marker") };
    assert!(marker.ends_with("-top-local-1"), "{marker}");
    let error = made_up.take_top(false).unwrap_err();
    assert!(error.contains("another recording"), "one at a time: {error}");
    assert_eq!(made_up.instances(), [marker.as_str()], "who was refused leaves nothing");
    ring.set_on(true).unwrap();
    // As a kernel shows what was written.
    made_up.write("trace_clock", "local [boot]");
    drop(ring);
    assert!(made_up.read("trace_clock").starts_with("local"));
    assert_eq!((made_up.read("tracing_on").as_str(), made_up.instances()), ("1\n", vec![]));
}

#[test]
fn a_buffer_that_somebody_uses_is_left_alone() {
    for (file, content, words) in [
        ("current_tracer", "function\n", "current_tracer is function"),
        ("set_event", "oom:mark_victim\nirq:irq_handler_entry\n", "it records oom:mark_victim"),
    ] {
        let made_up = MadeUp::new("[local] boot");
        made_up.write(file, content);
        let error = made_up.take_top(false).unwrap_err();
        assert!(error.contains("in use by somebody else") && error.contains(words), "{error}");
        assert_eq!(
            (made_up.read(file).as_str(), made_up.read("trace_clock").as_str()),
            (content, "[local] boot")
        );
        assert_eq!(made_up.instances(), [""; 0]);
    }
}

#[test]
fn what_cannot_be_opened_is_not_marked() {
    let made_up = MadeUp::new("[local] boot");
    made_up.write("events/header_page", "nonsense");
    assert_eq!(made_up.take_top(false).unwrap_err(), "events/header_page is not understood");
    assert_eq!(made_up.instances(), [""; 0]);
}

#[test]
fn recorders_that_start_together_do_not_both_have_it() {
    let made_up = MadeUp::new("local global [boot]");
    for _ in 0..50 {
        let start = std::sync::Barrier::new(2);
        let take = || {
            start.wait();
            made_up.take_top(false)
        };
        let rings = std::thread::scope(|scope| {
            let threads = [scope.spawn(take), scope.spawn(take)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(rings.iter().filter(|ring| ring.is_ok()).count() < 2);
    }
    drop(made_up.take_top(false).unwrap());
    assert_eq!(made_up.instances(), [""; 0]);
}

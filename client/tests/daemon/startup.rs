//! What is traced before there is a daemon.

use watershed_client::producer::{ProducerEvent, StartupError};

use super::*;

fn config(source: &str) -> DataSourceConfig {
    DataSourceConfig { name: Some(source.to_owned()), ..Default::default() }
}

fn write(writer: &mut TraceWriter, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| writer.write_packet(&packet(number, number % 10 == 0)));
    writer.flush();
}

#[test]
fn what_was_written_before_the_daemon_is_in_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, true);
    program.producer.trace_startup(config(NAME), WATCHDOG).unwrap();
    let mut early = program.writer();
    write(&mut early, 0..50);
    let other = program.producer.trace_startup(config("test.other"), WATCHDOG);
    assert_eq!(other, Err(StartupError::NoSuchDataSource("test.other".to_owned())));

    let daemon = Running::start(folder);
    program.wait_connected();
    write(&mut early, 50..70);
    let session = daemon.session();
    write(&mut early, 70..100);
    assert_eq!(finish(session), (0..100).collect::<Vec<_>>());
    assert!(program.writers.try_recv().is_err(), "the session had no instance of its own");
    // It was taken over once.
    let session = daemon.session();
    let mut writer = program.writer();
    write(&mut writer, 0..10);
    assert_eq!(finish(session), (0..10).collect::<Vec<_>>());
    drop(program);
    daemon.stop();
}

/// What waits for its session keeps nobody else waiting.
#[test]
fn other_sessions_go_on_beside_what_waits() {
    const OTHER: &str = "test.other";
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, true);
    program.producer.trace_startup(config(NAME), WATCHDOG).unwrap();
    let (to_test, writers) = mpsc::channel();
    program.producer.register(Box::new(Factory(OTHER, to_test)));
    let mut early = program.writer();
    write(&mut early, 0..20);
    let daemon = Running::start(folder);
    program.wait_connected();
    for _ in 0..2 {
        let session = daemon.session_of(OTHER);
        let mut writer = writers.recv_timeout(WATCHDOG).expect("an instance");
        write(&mut writer, 100..150);
        drop(writer);
        assert_eq!(finish(session), (100..150).collect::<Vec<_>>());
    }
    assert_eq!(finish(daemon.session()), (0..20).collect::<Vec<_>>());
    drop(program);
    daemon.stop();
}

#[test]
fn nobody_comes_and_the_memory_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, true);
    program.producer.trace_startup(config(NAME), Duration::ZERO).unwrap();
    // Three times what there is room for: 1 MiB.
    let mut early = program.writer();
    (0..300).for_each(|number| early.write_packet(&packet(number, true)));
    assert!(early.packets_dropped() >= 150, "{}", early.packets_dropped());
    let is_lost = |event: &RemoteEvent| matches!(event, RemoteEvent::Producer(ProducerEvent::StartupLost { name, .. }) if name == NAME);
    while !is_lost(&program.events.recv_timeout(WATCHDOG).expect("it is told")) {}
    let daemon = Running::start(folder);
    program.wait_connected();
    let session = daemon.session();
    let mut writer = program.writer();
    // As much as fits into the memory, if it is all there again but for a chunk of the old writer.
    (0..80).for_each(|number| writer.write_packet(&packet(number, true)));
    writer.flush();
    assert_eq!(writer.packets_dropped(), 0);
    assert_eq!(finish(session), (0..80).collect::<Vec<_>>());
    drop((program, early));
    daemon.stop();
}

/// What fills the memory has it until its session comes; then the others have room again.
#[test]
fn a_full_memory_is_free_again_when_its_session_comes() {
    const OTHER: &str = "test.other";
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, true);
    program.producer.trace_startup(config(NAME), WATCHDOG).unwrap();
    let (to_test, writers) = mpsc::channel();
    program.producer.register(Box::new(Factory(OTHER, to_test)));
    let mut early = program.writer();
    (0..300).for_each(|number| early.write_packet(&packet(number, true)));
    let taken = 300 - early.packets_dropped();
    let daemon = Running::start(folder);
    program.wait_connected();
    let of_early = daemon.session();
    let other = daemon.session_of(OTHER);
    let mut writer = writers.recv_timeout(WATCHDOG).expect("an instance");
    // Its start has been answered, so the commits of the early one have been sent. The daemon frees
    // their chunks a little later.
    assert!(program.producer.sync(WATCHDOG));
    let started = Instant::now();
    loop {
        let dropped = writer.packets_dropped();
        writer.write_packet(&packet(0, true));
        if writer.packets_dropped() == dropped {
            break;
        }
        assert!(started.elapsed() < WATCHDOG, "there is room");
        std::thread::sleep(Duration::from_millis(1));
    }
    write(&mut writer, 1..50);
    assert_eq!(finish(other), (0..50).collect::<Vec<_>>());
    let found = finish(of_early);
    assert_eq!(found, (0..taken).collect::<Vec<_>>());
    drop((program, early));
    daemon.stop();
}

/// Also right after the last connection, and while there is none.
#[test]
fn there_is_memory_between_two_connections() {
    let daemon = Running::start(tempfile::tempdir().unwrap());
    let mut options = RemoteOptions::for_sockets(vec![socket(&daemon.folder, "producer")]);
    (options.own_memory, options.reconnect) = (true, Reconnect::Never);
    let program = Program::start_as(options);
    program.wait_connected();
    let folder = daemon.stop();
    let is_over = |event: &RemoteEvent| matches!(event, RemoteEvent::Disconnected { .. });
    while !is_over(&program.events.recv_timeout(WATCHDOG).expect("it is told")) {}
    program.producer.trace_startup(config(NAME), WATCHDOG).unwrap();
    // Who waits for a flush learns that nobody will take it.
    let mut early = program.writer();
    early.write_packet(&packet(1, false));
    let (tell, told) = mpsc::channel::<()>();
    early.flush_with(Box::new(move || tell.send(()).unwrap()));
    let Program { producer, events, .. } = program;
    drop(producer);
    assert_eq!(told.recv_timeout(WATCHDOG), Err(mpsc::RecvTimeoutError::Disconnected));
    let lost = |event| matches!(event, RemoteEvent::Producer(ProducerEvent::StartupLost { .. }));
    assert!(events.iter().any(lost), "and that the startup is lost");
    early.write_packet(&packet(2, false));
    drop(folder);
}

#[test]
fn each_connection_has_memory_of_its_own() {
    let mut folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, true);
    for _ in 0..3 {
        let daemon = Running::start(folder);
        program.wait_connected();
        program.producer.trace_startup(config(NAME), WATCHDOG).unwrap();
        let mut early = program.writer();
        write(&mut early, 0..30);
        assert_eq!(finish(daemon.session()), (0..30).collect::<Vec<_>>());
        folder = daemon.stop();
        let is_over = |event: &RemoteEvent| matches!(event, RemoteEvent::Disconnected { .. });
        while !is_over(&program.events.recv_timeout(WATCHDOG).expect("it is told")) {}
    }
}

#[test]
fn who_cannot_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start_with(&folder, false);
    let start = |program: &Program, source: &str| program.producer.trace_startup(config(source), WATCHDOG);
    assert_eq!(start(&program, NAME), Err(StartupError::NoMemory));
    let program = Program::start_with(&folder, true);
    assert_eq!(start(&program, "x"), Err(StartupError::NoSuchDataSource("x".to_owned())));
    // Nobody takes its writers any more.
    drop(program.writers);
    let reason = "nobody wants it".to_owned();
    let failed = program.producer.trace_startup(config(NAME), WATCHDOG);
    assert_eq!(failed, Err(StartupError::SetupFailed { name: NAME.to_owned(), reason }));
}

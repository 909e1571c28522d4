//! A session that the official consumer asks to write into a file by its path.

use crate::consumer::Session;
use crate::service::Service;
use crate::trace::Trace;
use crate::{config, producer};

const PACKETS: u32 = 2_000;

pub(crate) fn run() {
    // The folder of the sockets, which goes when the scenario has ended.
    let socket = std::env::var_os("PERFETTO_CONSUMER_SOCK_NAME").expect("the test names one");
    let folder = std::path::Path::new(&socket).parent().expect("it is in a folder").to_owned();
    let path = folder.join("session.trace");
    let service = Service::start_with(Some(folder));
    producer::start(0);
    let mut config = config::ring(16 << 10);
    config.write_into_file = Some(true);
    config.file_write_period_ms = Some(100);
    config.output_path = Some(path.display().to_string());
    let mut session = Session::record(&config);
    producer::in_threads(2, |thread| {
        for number in 0..PACKETS {
            producer::numbered(thread, number);
        }
    });
    session.stop();
    let trace = Trace::decode(&std::fs::read(path).expect("the daemon made the file"));
    Trace::assert_complete(&trace.numbered, 2, PACKETS);
    trace.assert_lossless();
    drop(session);
    service.stop();
}

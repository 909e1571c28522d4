//! Sessions of a tracing service that is running: triggers for them, clones of them, and sessions
//! that go on without their consumer.

pub(crate) mod clone;
pub(crate) mod detached;
mod file;
pub(crate) mod flight;
pub(crate) mod trigger;

use std::path::Path;
use std::time::Duration;

use watershed_client::consumer::Consumer;
use watershed_shell::address::Address;
use watershed_wire::framing::Preamble;

use crate::connect;
use crate::exit::Failure;
use file::NewFile;

/// A config that the service refuses is answered at once.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(200);

/// Which service.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Service {
    /// Where the service listens for consumers: a path, or @NAME for an abstract socket [default:
    /// $PERFETTO_CONSUMER_SOCK_NAME, or the place where Perfetto's programs look]
    #[arg(long, value_name = "C", value_parser = Address::parse)]
    pub(crate) socket: Option<Address>,
}

impl Service {
    pub(crate) fn connect(&self) -> Result<Consumer, Failure> {
        connect::connect(&connect::socket(self.socket.as_ref())?)
    }
}

/// Reads what the session has, into a file that is there only when it is whole.
fn read_into(consumer: &mut Consumer, path: &Path) -> Result<(), Failure> {
    let mut file = NewFile::create(path)?;
    fill(consumer, &mut file)?;
    say_written(path, file.finish()?);
    Ok(())
}

/// As `read_into`, the file not finished yet.
fn fill(consumer: &mut Consumer, file: &mut NewFile) -> Result<(), Failure> {
    let out = file.writer();
    let write = |packet: &[u8]| {
        use std::io::Write as _;
        out.write_all(Preamble::new(packet.len()).as_bytes())?;
        out.write_all(packet)
    };
    consumer.read_packets(write).map_err(|error| Failure::failed(format_args!("reading the trace: {error}")))
}

fn say_written(path: &Path, size_bytes: u64) {
    say(format_args!("{}: {size_bytes} bytes", path.display()));
}

/// One line for a person, on standard error.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    // When standard error is gone nobody is left to tell.
    let _ = writeln!(std::io::stderr(), "watershed: {line}");
}

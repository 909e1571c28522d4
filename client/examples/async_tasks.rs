//! Tasks of an async program, with nothing but `tracing` in its code: each poll of a task is a
//! slice of the thread that polls it, and arrows join the polls of a task.
//!
//! ```sh
//! WATERSHED_TRACE=tasks.pftrace cargo run --release -p watershed-client --example async_tasks
//! watershed inspect tasks.pftrace
//! ```

use std::time::Duration;

use tracing::{Instrument as _, info, info_span};

async fn request(number: u64) -> u64 {
    info!(number, "begins");
    tokio::time::sleep(Duration::from_millis(number % 5)).await;
    let rows = async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        number * 3
    };
    let rows = rows.instrument(info_span!("query", number)).await;
    info!(rows, "is answered");
    rows
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _tracing = watershed_client::init()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let rows = runtime.block_on(async {
        let spawn = |number| tokio::spawn(request(number).instrument(info_span!("request", number)));
        let tasks: Vec<_> = (0..20).map(spawn).collect();
        let mut rows = 0;
        for task in tasks {
            rows += task.await?;
        }
        Ok::<u64, tokio::task::JoinError>(rows)
    })?;
    println!("{rows} rows");
    Ok(())
}

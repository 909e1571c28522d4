//! A pool of workers: slices of each thread, a queue as a counter, and an arrow from where a job is
//! put into the queue to where it runs.
//!
//! ```sh
//! WATERSHED_TRACE=pool.pftrace cargo run --release -p watershed-client --example worker_pool
//! watershed inspect pool.pftrace
//! ```

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use watershed_client::track_event::{Category, Counter, Unit, flow_id};
use watershed_client::{counter, instant, slice};

static POOL: Category = Category::new("pool").with_description("Jobs and who does them");
static WAITING: Counter = Counter::new("jobs waiting").with_unit(Unit::Count);

const WORKERS: usize = 3;
const JOBS: u64 = 60;

struct Job {
    number: u64,
    took: Duration,
}

fn work(jobs: &Mutex<Receiver<Job>>, waiting: &Mutex<u64>) {
    loop {
        let next = {
            let _waits = slice!(POOL, "wait for a job");
            jobs.lock().expect("no worker panics").recv()
        };
        let Ok(Job { number, took }) = next else { return };
        count(waiting, |waiting| waiting - 1);
        let _runs = slice!(POOL, "run", job = number; flow = flow_id(number));
        std::thread::sleep(took);
        if number.is_multiple_of(10) {
            instant!(POOL, "a tenth is done", job = number);
        }
    }
}

fn count(waiting: &Mutex<u64>, change: impl Fn(u64) -> u64) {
    let mut waiting = waiting.lock().expect("no worker panics");
    *waiting = change(*waiting);
    counter!(POOL, WAITING, *waiting);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _tracing = watershed_client::init()?;
    let (submit, jobs) = mpsc::channel();
    let (jobs, waiting) = (Mutex::new(jobs), Mutex::new(0));
    std::thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        for worker in 0..WORKERS {
            let builder = std::thread::Builder::new().name(format!("worker {worker}"));
            builder.spawn_scoped(scope, || work(&jobs, &waiting))?;
        }
        for number in 0..JOBS {
            let _slice = slice!(POOL, "submit", job = number; flow = flow_id(number));
            count(&waiting, |waiting| waiting + 1);
            submit.send(Job { number, took: Duration::from_millis(1 + number % 7) })?;
        }
        drop(submit);
        Ok(())
    })
}

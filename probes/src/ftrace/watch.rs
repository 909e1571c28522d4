//! A thread that waits until a CPU's memory is half full, so that a burst is read before the next
//! period. While nothing is that full it sleeps, for hours if need be.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use watershed_client::data_source::PollRequest;

use super::ring::Ring;

/// First kernel whose pipes wake those who wait for a fill level, and nobody else.
const KERNEL_MIN: (u32, u32) = (6, 9);

/// Whom to wake.
pub(super) type Target = Arc<Mutex<Option<PollRequest>>>;

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    /// Has room for one: who was not waiting needs no more.
    drained: SyncSender<()>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts it, where the kernel can wait for a fill level.
    pub(super) fn start(ring: &Ring, target: Target) -> Option<Self> {
        if kernel_version()? < KERNEL_MIN {
            return None;
        }
        let pipes: Vec<File> =
            ring.pipes.iter().map(|pipe| pipe.file.try_clone()).collect::<Result<_, _>>().ok()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).ok()?);
        let (drained, until_drained) = mpsc::sync_channel(1);
        let stopped = Arc::clone(&stop);
        let body = move || {
            while wait(&pipes, &stopped) {
                // What was drained before this wake-up says nothing of it.
                while until_drained.try_recv().is_ok() {}
                let target = target.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if let Some(target) = target {
                    target.raise();
                }
                if until_drained.recv().is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ftrace-watch".into()).spawn(body).ok()?;
        Some(Self { drained, stop, thread: Some(thread) })
    }

    /// The pipes have been read.
    pub(super) fn drained(&self) {
        let _ = self.drained.try_send(());
    }
}

/// Until a CPU is full enough. False if it is time to end.
fn wait(pipes: &[File], stop: &OwnedFd) -> bool {
    let mut fds: Vec<PollFd<'_>> = pipes.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
    fds.push(PollFd::new(stop, PollFlags::IN));
    loop {
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return false,
            Ok(_) => {}
        }
        let (stop, pipes) = fds.split_last().expect("it was pushed above");
        // A kernel that cannot wait says so with an error: then periods have to do.
        let has_error = pipes.iter().any(|fd| fd.revents().contains(PollFlags::ERR));
        return stop.revents().is_empty() && !has_error;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // Its pipes are closed when it has ended.
            self.drained = mpsc::sync_channel(1).0;
            let _ = thread.join();
        }
    }
}

fn kernel_version() -> Option<(u32, u32)> {
    let uname = rustix::system::uname();
    let mut parts = uname.release().to_str().ok()?.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

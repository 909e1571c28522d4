//! Counters of one process, and which of them have changed.

use super::reader::Reader;
use super::settings::Settings;
use procfs_core::process::{Stat, Status};
use std::collections::HashMap;
use watershed_wire::protos::process_stats::Process as Counters;

/// Sets each field of `news` that is in `now` with another value than in `told`, and updates
/// `told`.
fn take_news(now: &Counters, told: &mut Counters) -> Option<Counters> {
    let mut news = Counters::default();
    let mut any = false;
    macro_rules! each {
        ($($field:ident),* $(,)?) => {
            $(if now.$field.is_some() && now.$field != told.$field {
                news.$field = now.$field;
                told.$field = now.$field;
                any = true;
            })*
        };
    }
    each!(
        vm_size_kb,
        vm_rss_kb,
        rss_anon_kb,
        rss_file_kb,
        rss_shmem_kb,
        vm_swap_kb,
        vm_locked_kb,
        vm_hwm_kb,
        oom_score_adj,
        smr_rss_kb,
        smr_pss_kb,
        smr_pss_anon_kb,
        smr_pss_file_kb,
        smr_pss_shmem_kb,
        smr_swap_pss_kb,
        runtime_user_mode,
        runtime_kernel_mode,
        dmabuf_rss_kb,
    );
    any.then_some(news)
}

/// Whether `memory` says anything, that is, whether the process has memory of its own.
fn has_memory(status: &Status) -> bool {
    status.vmsize.is_some()
}

fn memory(status: &Status, into: &mut Counters) {
    into.vm_size_kb = status.vmsize;
    into.vm_rss_kb = status.vmrss;
    into.rss_anon_kb = status.rssanon;
    into.rss_file_kb = status.rssfile;
    into.rss_shmem_kb = status.rssshmem;
    into.vm_swap_kb = status.vmswap;
    into.vm_locked_kb = status.vmlck;
    into.vm_hwm_kb = status.vmhwm;
}

fn rollup(sums: &HashMap<String, u64>, into: &mut Counters) {
    let kb = |key: &str| sums.get(key).map(|bytes| bytes / 1024);
    into.smr_rss_kb = kb("Rss");
    into.smr_pss_kb = kb("Pss");
    into.smr_pss_anon_kb = kb("Pss_Anon");
    into.smr_pss_file_kb = kb("Pss_File");
    into.smr_pss_shmem_kb = kb("Pss_Shmem");
    into.smr_swap_pss_kb = kb("SwapPss");
}

/// Reads what `settings` ask for about process `pid` and returns what differs from `told`.
pub(super) fn read_news(
    reader: &mut Reader,
    settings: &Settings,
    ns_per_tick: u64,
    pid: i32,
    stat: &Stat,
    told: &mut Counters,
) -> Option<Counters> {
    let mut now = Counters::default();
    if settings.runtime {
        now.runtime_user_mode = Some(stat.utime.saturating_mul(ns_per_tick));
        now.runtime_kernel_mode = Some(stat.stime.saturating_mul(ns_per_tick));
    }
    if let Some(status) = reader.status(pid).filter(has_memory) {
        memory(&status, &mut now);
        now.oom_score_adj = reader.oom_score_adj(pid);
        if settings.smaps_rollup
            && let Some(sums) = reader.smaps_rollup(pid)
        {
            rollup(&sums, &mut now);
        }
        if settings.dmabuf {
            now.dmabuf_rss_kb = reader.dmabuf_rss_bytes(pid).map(|bytes| bytes / 1024);
        }
    }
    take_news(&now, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_news() {
        let mut told = Counters::default();
        let mut now = Counters { vm_rss_kb: Some(10), vm_swap_kb: Some(0), ..Counters::default() };
        assert_eq!(take_news(&now, &mut told), Some(now.clone()), "a zero is news at first");
        assert_eq!(take_news(&now, &mut told), None);
        now.vm_rss_kb = Some(11);
        let news = take_news(&now, &mut told).unwrap();
        assert_eq!((news.vm_rss_kb, news.vm_swap_kb), (Some(11), None));
        now.vm_rss_kb = None;
        assert_eq!(take_news(&now, &mut told), None, "what could not be read is not news");
    }
}

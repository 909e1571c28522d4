//! The counters of /proc/meminfo by the names of the trace format.

use procfs_core::Meminfo;
use watershed_wire::protos::MeminfoCounters as Key;

type Field = fn(&Meminfo) -> Option<u64>;

/// Each counter that the kernel proper has, and where the crate keeps it (in bytes).
pub(super) const MEMINFO_KEYS: [(Key, Field); 33] = [
    (Key::MeminfoMemTotal, |m| Some(m.mem_total)),
    (Key::MeminfoMemFree, |m| Some(m.mem_free)),
    (Key::MeminfoMemAvailable, |m| m.mem_available),
    (Key::MeminfoBuffers, |m| Some(m.buffers)),
    (Key::MeminfoCached, |m| Some(m.cached)),
    (Key::MeminfoSwapCached, |m| Some(m.swap_cached)),
    (Key::MeminfoActive, |m| Some(m.active)),
    (Key::MeminfoInactive, |m| Some(m.inactive)),
    (Key::MeminfoActiveAnon, |m| m.active_anon),
    (Key::MeminfoInactiveAnon, |m| m.inactive_anon),
    (Key::MeminfoActiveFile, |m| m.active_file),
    (Key::MeminfoInactiveFile, |m| m.inactive_file),
    (Key::MeminfoUnevictable, |m| m.unevictable),
    (Key::MeminfoMlocked, |m| m.mlocked),
    (Key::MeminfoSwapTotal, |m| Some(m.swap_total)),
    (Key::MeminfoSwapFree, |m| Some(m.swap_free)),
    (Key::MeminfoDirty, |m| Some(m.dirty)),
    (Key::MeminfoWriteback, |m| Some(m.writeback)),
    (Key::MeminfoAnonPages, |m| m.anon_pages),
    (Key::MeminfoMapped, |m| Some(m.mapped)),
    (Key::MeminfoShmem, |m| m.shmem),
    (Key::MeminfoSlab, |m| Some(m.slab)),
    (Key::MeminfoSlabReclaimable, |m| m.s_reclaimable),
    (Key::MeminfoSlabUnreclaimable, |m| m.s_unreclaim),
    (Key::MeminfoKernelStack, |m| m.kernel_stack),
    (Key::MeminfoPageTables, |m| m.page_tables),
    (Key::MeminfoCommitLimit, |m| m.commit_limit),
    (Key::MeminfoCommitedAs, |m| Some(m.committed_as)),
    (Key::MeminfoVmallocTotal, |m| Some(m.vmalloc_total)),
    (Key::MeminfoVmallocUsed, |m| Some(m.vmalloc_used)),
    (Key::MeminfoVmallocChunk, |m| Some(m.vmalloc_chunk)),
    (Key::MeminfoCmaTotal, |m| m.cma_total),
    (Key::MeminfoCmaFree, |m| m.cma_free),
];

//! A sandbox that is set up late and refuses `membarrier`, when a word is kept. In a process of its own: no other test may be beside it.
#![cfg(target_os = "linux")] // Elsewhere no word is kept.

mod common;

use common::{info, payload, read_all};
use watershed_shards::{Committer, ShardedBuffer, ShardedConfig};

/// More takes in a row than it needs until a word is kept.
const MANY: u32 = 3000;

/// Lets the system refuse `membarrier` to this process from now on. False if there is no such filter here, as under emulation.
fn refuse_membarrier() -> bool {
    let op = |code: u32, k: u32, jt: u8| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut filter = [
        // The number of the call is the first thing that a filter sees.
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 1),
        op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the calls read the program, which outlives them; of this process's memory they write nothing.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_TSYNC,
                &raw const program,
            ) == 0
    }
}

fn write(committer: &mut Committer, writer_id: u16, ids: std::ops::Range<u32>) {
    for id in ids {
        let body = payload(&[id.to_le_bytes().to_vec()]);
        committer.commit_chunk(&info(1, writer_id, id, 1, 0), &body).unwrap();
    }
}

#[test]
fn a_word_that_is_kept_is_had_all_the_same_and_no_other_is_kept() {
    let config = ShardedConfig { num_shards: Some(1), ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    let (mut writer, mut other) = (buffer.committer().unwrap(), buffer.committer().unwrap());
    write(&mut writer, 1, 0..MANY);
    assert_eq!(buffer.num_kept(), 1, "does this system have membarrier?");
    if !refuse_membarrier() {
        println!("not tested: no filter for system calls here");
        return;
    }
    write(&mut other, 2, 0..1);
    assert_eq!(buffer.num_kept(), 0);
    write(&mut writer, 1, MANY..2 * MANY);
    assert_eq!(buffer.num_kept(), 0, "it could not be revoked");
    assert_eq!(read_all(&buffer).len(), 2 * MANY as usize + 1);
    buffer.check().unwrap();
}

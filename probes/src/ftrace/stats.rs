//! `per_cpu/cpuN/stats`: what the kernel counts of a CPU's ring.

use watershed_wire::protos::FtraceCpuStats;

/// Reads the lines that the format has fields for.
pub(super) fn parse(cpu: u32, text: &str) -> FtraceCpuStats {
    let mut stats = FtraceCpuStats { cpu: Some(u64::from(cpu)), ..Default::default() };
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let number = value.parse().ok();
        match name {
            "entries" => stats.entries = number,
            "overrun" => stats.overrun = number,
            "commit overrun" => stats.commit_overrun = number,
            "bytes" => stats.bytes_read = number,
            "oldest event ts" => stats.oldest_event_ts = value.parse().ok(),
            "now ts" => stats.now_ts = value.parse().ok(),
            "dropped events" => stats.dropped_events = number,
            "read events" => stats.read_events = number,
            _ => {}
        }
    }
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_kernel() {
        let text = "entries: 1\noverrun: 2\ncommit overrun: 3\nbytes: 4\noldest event ts:  1847.610039\n\
                    now ts:  1900.000001\ndropped events: 5\nread events: 6\nnews: 7\nbroken\n";
        let expected = FtraceCpuStats {
            cpu: Some(3),
            entries: Some(1),
            overrun: Some(2),
            commit_overrun: Some(3),
            bytes_read: Some(4),
            oldest_event_ts: Some(1847.610039),
            now_ts: Some(1900.000001),
            dropped_events: Some(5),
            read_events: Some(6),
        };
        assert_eq!(parse(3, text), expected);
    }
}

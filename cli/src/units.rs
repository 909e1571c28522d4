//! Times and sizes on the command line: a number with a unit, within a range that the error names.

use std::time::Duration;

use jiff::SignedDuration;
use watershed_client::in_process::MAX_SHARDS;

/// Shortest recording.
pub(crate) const TIME_MIN: Duration = Duration::from_millis(1);
/// Longest recording: the service's own limit for `duration_ms`.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Smallest buffer on the command line: less cannot hold one reading of a larger machine.
pub(crate) const BUFFER_KB_MIN: u32 = 64;
/// Largest file that one can ask for, 1 PB.
const FILE_KB_MAX: f64 = (1_u64 << 40) as f64;
/// Largest buffer: its size in bytes must stay below 2^32.
pub(crate) const BUFFER_KB_MAX: u32 = (1 << 22) - 1;

const TIME_RANGE: &str =
    "a time needs a unit (ms, s, m, h; 10s, 500ms, 1.5h) and must be from 1ms to 168h (7 days)";
const SIZE_RANGE: &str = "a size needs a unit (KB, MB, GB, powers of 1024; 64MB, 1.5GB) and must be from 64KB to 4194303KB (4GB less 1KB)";

const FILE_RANGE: &str =
    "a size needs a unit (KB, MB, GB, powers of 1024; 32MB, 1.5GB) and must be at least 64KB";

/// Reads `10s`, `500ms`, `1h30m`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time: SignedDuration = text.parse().map_err(|_| TIME_RANGE)?;
    Duration::try_from(time)
        .ok()
        .filter(|time| (TIME_MIN..=TIME_MAX).contains(time))
        .ok_or_else(|| TIME_RANGE.to_owned())
}

/// Reads `0s`, `300us`, `1.5s`: a moment of a trace.
pub(crate) fn parse_moment(text: &str) -> Result<Duration, String> {
    let time: Option<SignedDuration> = text.parse().ok();
    let time = time.and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| {
        "a time since the trace's first needs a unit (ns, us, ms, s, m, h; 0s, 300us, 1.5s)".to_owned()
    })
}

/// Reads `64MB`; KiB. Units are powers of 1024, as in Perfetto's command line, with or without an i
/// in the middle.
pub(crate) fn parse_size_kb(text: &str) -> Result<u32, String> {
    let range = f64::from(BUFFER_KB_MIN)..=f64::from(BUFFER_KB_MAX);
    // Also false for what is not a number.
    let kb = size_kb(text).filter(|kb| range.contains(kb));
    kb.map(|kb| kb as u32).ok_or_else(|| SIZE_RANGE.to_owned())
}

/// As `parse_size_kb`, of a file.
pub(crate) fn parse_file_kb(text: &str) -> Result<u64, String> {
    let range = f64::from(BUFFER_KB_MIN)..=FILE_KB_MAX;
    size_kb(text).filter(|kb| range.contains(kb)).map(|kb| kb as u64).ok_or_else(|| FILE_RANGE.to_owned())
}

fn size_kb(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let kb_per_unit: f64 = match unit.to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => 1.0,
        "m" | "mb" | "mib" => 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0,
        _ => return None,
    };
    number.trim().parse::<f64>().ok().map(|number| (number * kb_per_unit).round())
}

/// Reads a number of shards.
pub(crate) fn parse_shards(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_SHARDS).contains(number));
    number.ok_or_else(|| format!("the number of shards must be from 1 to {MAX_SHARDS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards() {
        for (text, number) in [("1", 1), ("8", 8), ("1024", 1024)] {
            assert_eq!(parse_shards(text), Ok(number));
        }
        for text in ["", "0", "-1", "1025", "99999999999999999999", "2.5", "two", "4 "] {
            let error = parse_shards(text).unwrap_err();
            assert!(error.contains("from 1 to 1024"), "{text}: {error}");
        }
    }

    #[test]
    fn times() {
        for (text, ms) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1ms", 1),
            ("168h", 604_800_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "",
            "10",
            "s",
            "0s",
            "-5s",
            "0.5ms",
            "169h",
            "8d",
            "99999999999999999999h",
            "10parsecs",
            "ten seconds",
            "NaNs",
        ] {
            assert_eq!(parse_time(text), Err(TIME_RANGE.to_owned()), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, kb) in [
            ("64MB", 65_536),
            ("64mb", 65_536),
            ("64M", 65_536),
            ("64MiB", 65_536),
            ("64KB", 64),
            ("1.5GB", 1_572_864),
            ("512 KB", 512),
            ("4194303KB", BUFFER_KB_MAX),
        ] {
            assert_eq!(parse_size_kb(text), Ok(kb), "{text}");
        }
        for text in [
            "", "64", "MB", "0MB", "-64MB", "63KB", "4GB", "1e30GB", "infMB", "nanMB", "64XB", "64B",
            "6 4MB", "64MB!",
        ] {
            assert_eq!(parse_size_kb(text), Err(SIZE_RANGE.to_owned()), "{text}");
        }
    }
}

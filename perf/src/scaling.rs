//! The scaling gate: what contention costs, which instruction counts cannot see.
//!
//! Two threads with rings in their cores' caches against one, as a part of what the same copies without a buffer reach in the same
//! run. A slow memory or a neighbour on the machine takes from both; contention between committers only from ours.

use crate::report::Measurement;
use serde::{Deserialize, Serialize};

/// The result of the suite `shards` that is judged.
pub const RESULT: &str = "scaling_two_cached";

/// What is demanded, in `perf/baseline/limits.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The least part of a memcpy's scaling.
    pub of_memcpy_min: f64,
    /// Where two threads that only copy do less than this many times the work of one, the machine has no two cores to give.
    pub memcpy_min: f64,
    /// The most that a median near the limit may be in doubt, as a part of it.
    pub noise_max: f64,
}

/// What the gate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The scaling is what is demanded.
    Pass,
    /// It is not.
    Broken(String),
    /// It cannot be told here; the text says why.
    Refused(String),
}

/// Judges a measurement that was taken on two cores or more.
pub fn judge(result: &Measurement, limit: &Limit) -> Verdict {
    let figure =
        |name: &str| result.extra.get(name).copied().ok_or_else(|| format!("{RESULT} has no {name}"));
    let (ours, noise, memcpy) = match (figure("of_memcpy"), figure("of_memcpy_noise"), figure("memcpy")) {
        (Ok(ours), Ok(noise), Ok(memcpy)) => (ours, noise, memcpy),
        (Err(why), ..) | (_, Err(why), _) | (.., Err(why)) => return Verdict::Refused(why),
    };
    if memcpy < limit.memcpy_min {
        return Verdict::Refused(format!(
            "two threads that only copy do {memcpy:.2} times the work of one, less than {}: this machine is busy",
            limit.memcpy_min
        ));
    }
    // Where the median's whole interval lies on one side of the limit, noise changes nothing.
    let in_doubt = (ours * (1.0 - noise)..=ours * (1.0 + noise)).contains(&limit.of_memcpy_min);
    if in_doubt && noise > limit.noise_max {
        return Verdict::Refused(format!(
            "{ours:.3} of a memcpy's scaling is known to {:.1}% only, not to {:.1}%: this machine is too noisy",
            noise * 100.0,
            limit.noise_max * 100.0
        ));
    }
    if ours < limit.of_memcpy_min {
        return Verdict::Broken(format!(
            "two threads scale {ours:.3} times as well as a memcpy, the limit is {}",
            limit.of_memcpy_min
        ));
    }
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Series;

    const LIMIT: Limit = Limit { of_memcpy_min: 0.95, memcpy_min: 1.8, noise_max: 0.02 };

    fn measured(of_memcpy: f64, noise: f64, memcpy: f64) -> Measurement {
        Measurement::ratio(RESULT, &Series::new(vec![of_memcpy * memcpy]))
            .with("of_memcpy", of_memcpy)
            .with("of_memcpy_noise", noise)
            .with("memcpy", memcpy)
    }

    #[test]
    fn less_than_the_limit_is_broken() {
        assert_eq!(judge(&measured(0.96, 0.01, 1.97), &LIMIT), Verdict::Pass);
        assert!(matches!(judge(&measured(0.94, 0.01, 1.97), &LIMIT), Verdict::Broken(_)));
        assert!(
            matches!(judge(&measured(0.8, 0.05, 1.97), &LIMIT), Verdict::Broken(_)),
            "noise cannot explain it"
        );
        assert_eq!(judge(&measured(1.01, 0.05, 1.97), &LIMIT), Verdict::Pass);
    }

    #[test]
    fn what_cannot_be_judged_is_refused_even_if_it_looks_bad() {
        let bad = measured(0.5, 0.01, 1.97);
        for result in
            [measured(0.94, 0.03, 1.97), measured(0.5, 0.01, 1.7), Measurement { extra: [].into(), ..bad }]
        {
            assert!(matches!(judge(&result, &LIMIT), Verdict::Refused(_)), "{result:?}");
        }
    }
}

//! The scaling gate: the cost of contention, which instruction counts cannot show.
//!
//! Two threads with rings in their cores' caches against one, relative to what the same copies
//! without a buffer reach in the same run. Slow memory or a busy neighbour slows both; contention
//! between committers only ours.
//!
//! Where copies do not scale either, as on two hyperthreads of one core, they are no measure. There
//! two threads with one buffer are compared with the same two with a buffer each, which do not
//! contend, on the same cores in the same run. That is no measure either where the two threads do
//! not run at the same time.

use crate::report::Measurement;
use serde::{Deserialize, Serialize};

/// The result of the suite `shards` that is judged.
pub const RESULT: &str = "scaling_two_cached";

/// With fewer rounds in the time the machine is too busy to judge.
const ROUNDS_MIN: usize = 30;

/// The limits, in `perf/baseline/limits.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The least part of a memcpy's scaling.
    pub of_memcpy_min: f64,
    /// Where two threads that only copy do less than this many times the work of one,
    /// `of_apart_min` decides instead.
    pub memcpy_min: f64,
    /// The least part of the work that two threads with a buffer each do.
    pub of_apart_min: f64,
    /// Where those two do less than this many times the work of one, they do not run at the same
    /// time.
    pub apart_min: f64,
    /// The largest relative noise of a median whose confidence interval contains the limit.
    pub noise_max: f64,
}

/// The gate's verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the limit; the text says which measure was used.
    Pass(String),
    /// Below the limit.
    Broken(String),
    /// Not measurable here; the text says why.
    Refused(String),
}

/// Judges a measurement that was taken on two cores or more.
pub fn judge(result: &Measurement, limit: &Limit) -> Verdict {
    let figure = |name: &str| {
        let known = result.extra.get(name).copied();
        known.ok_or_else(|| Verdict::Refused(format!("{RESULT} has no {name}")))
    };
    let judged = || -> Result<Verdict, Verdict> {
        if result.samples < ROUNDS_MIN {
            let rounds = result.samples;
            return Err(Verdict::Refused(format!(
                "{rounds} rounds in the time, not {ROUNDS_MIN}: this machine is busy"
            )));
        }
        let (copies, apart) = (figure("memcpy")?, figure("apart")?);
        if copies >= limit.memcpy_min {
            let what = format!("of a memcpy's scaling, which is {copies:.2}");
            return Ok(against(
                figure("of_memcpy")?,
                figure("of_memcpy_noise")?,
                limit.of_memcpy_min,
                limit,
                &what,
            ));
        }
        if apart < limit.apart_min {
            return Err(Verdict::Refused(format!(
                "two threads that only copy do {copies:.2} times the work of one, less than {}, and two with a buffer each {apart:.2} \
                 times, less than {}: this machine is busy",
                limit.memcpy_min, limit.apart_min
            )));
        }
        let what = format!(
            "of the work of two threads with a buffer each, which is {apart:.2} times that of one (copies scale by {copies:.2} only, \
             less than {}: two threads of one core, or a busy machine)",
            limit.memcpy_min
        );
        Ok(against(figure("of_apart")?, figure("of_apart_noise")?, limit.of_apart_min, limit, &what))
    };
    judged().unwrap_or_else(|refused| refused)
}

/// Judges `ours`, which is relative to `what`.
fn against(ours: f64, noise: f64, least: f64, limit: &Limit, what: &str) -> Verdict {
    // Where the median's whole interval lies on one side of the limit, noise changes nothing.
    let in_doubt = (ours * (1.0 - noise)..=ours * (1.0 + noise)).contains(&least);
    if in_doubt && noise > limit.noise_max {
        return Verdict::Refused(format!(
            "{ours:.3} {what} is known to {:.1}% only, not to {:.1}%: this machine is too noisy",
            noise * 100.0,
            limit.noise_max * 100.0
        ));
    }
    let text = format!("two committing threads reach {ours:.3} {what}; the limit is {least}");
    if ours < least { Verdict::Broken(text) } else { Verdict::Pass(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Series;

    const LIMIT: Limit =
        Limit { of_memcpy_min: 0.95, memcpy_min: 1.8, of_apart_min: 0.94, apart_min: 1.4, noise_max: 0.02 };

    fn measured(of_memcpy: f64, noise: f64, memcpy: f64) -> Measurement {
        Measurement::ratio(RESULT, &Series::new(vec![of_memcpy * memcpy; ROUNDS_MIN]))
            .with("of_memcpy", of_memcpy)
            .with("of_memcpy_noise", noise)
            .with("memcpy", memcpy)
            .with("of_apart", 0.97)
            .with("of_apart_noise", 0.01)
            .with("apart", 1.9)
    }

    /// Where copies do not scale.
    fn on_one_core(of_apart: f64, noise: f64, apart: f64) -> Measurement {
        let result = measured(1.5, 0.01, 1.1);
        result.with("of_apart", of_apart).with("of_apart_noise", noise).with("apart", apart)
    }

    #[test]
    fn less_than_the_limit_is_broken() {
        assert!(matches!(judge(&measured(0.96, 0.01, 1.97), &LIMIT), Verdict::Pass(_)));
        assert!(matches!(judge(&measured(0.94, 0.01, 1.97), &LIMIT), Verdict::Broken(_)));
        assert!(
            matches!(judge(&measured(0.8, 0.05, 1.97), &LIMIT), Verdict::Broken(_)),
            "noise cannot explain it"
        );
        assert!(matches!(judge(&measured(1.01, 0.05, 1.97), &LIMIT), Verdict::Pass(_)));
    }

    #[test]
    fn where_copies_do_not_scale_two_buffers_decide() {
        let Verdict::Pass(text) = judge(&on_one_core(0.945, 0.001, 1.6), &LIMIT) else {
            panic!("not passed")
        };
        assert!(text.contains("with a buffer each") && text.contains("0.945"), "{text}");
        assert!(matches!(judge(&on_one_core(0.93, 0.001, 1.6), &LIMIT), Verdict::Broken(_)));
        assert!(matches!(judge(&on_one_core(0.93, 0.03, 1.6), &LIMIT), Verdict::Refused(_)), "too noisy");
        assert!(
            matches!(judge(&on_one_core(1.0, 0.001, 1.3), &LIMIT), Verdict::Refused(_)),
            "not at the same time"
        );
    }

    #[test]
    fn what_cannot_be_judged_is_refused_even_if_it_looks_bad() {
        let bad = measured(0.5, 0.01, 1.97);
        let few = Measurement { samples: ROUNDS_MIN - 1, ..bad.clone() };
        for result in [measured(0.94, 0.03, 1.97), few, Measurement { extra: [].into(), ..bad }] {
            assert!(matches!(judge(&result, &LIMIT), Verdict::Refused(_)), "{result:?}");
        }
    }
}

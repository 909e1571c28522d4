//! From functions and their calls to stacks.
//!
//! Callgrind counts the cost of each call, not by the callers of the caller. So a function with
//! several callers is drawn above each of them in the same proportions; the widths of functions and
//! of calls are exact.

use crate::names::{COUNTED, short};
use std::collections::BTreeMap;
use watershed_perf::instructions::callgrind::{Function, Functions};

/// Folded stacks: frames from the outermost to the innermost, separated by ";", and their
/// instructions.
pub type Stacks = BTreeMap<String, u64>;

/// Where the instructions of one function go: to itself or to a call, below the frames that were
/// inlined there.
struct Part<'a> {
    inlined: Vec<String>,
    callee: Option<&'a str>,
    cost: u64,
}

/// Folds a profile. `inlined` says which functions were inlined at an address of an object.
///
/// The sum of the stacks is the sum of all functions' own costs; frames at the outer end that only
/// call the next are left out.
///
/// # Errors
/// When there is no function from which everything is called.
pub fn fold(functions: &Functions, inlined: impl Fn(&str, u64) -> Vec<String>) -> Result<Stacks, String> {
    let parts: BTreeMap<&str, Vec<Part<'_>>> =
        functions.iter().map(|(name, function)| (name.as_str(), parts(function, &inlined))).collect();
    let total = functions.values().flat_map(|function| function.own.values()).sum();
    let root = root(&parts, total).ok_or("no function calls all others")?;
    let mut folding = Folding { parts: &parts, above: Vec::new(), stacks: Stacks::new() };
    folding.expand(root, total, &mut Vec::new());
    Ok(folding.stacks)
}

fn parts<'a>(function: &'a Function, inlined: &impl Fn(&str, u64) -> Vec<String>) -> Vec<Part<'a>> {
    // By frames first: many addresses have the same.
    let mut costs: BTreeMap<(Vec<String>, Option<&str>), u64> = BTreeMap::new();
    for (address, cost) in &function.own {
        *costs.entry((inlined(&function.object, *address), None)).or_default() += cost;
    }
    for ((address, callee), cost) in &function.calls {
        *costs.entry((inlined(&function.object, *address), Some(callee))).or_default() += cost;
    }
    costs.into_iter().map(|((inlined, callee), cost)| Part { inlined, callee, cost }).collect()
}

fn inclusive(parts: &[Part<'_>]) -> u64 {
    parts.iter().map(|part| part.cost).sum()
}

/// The innermost function below which everything happens: found from the counted one, or else from
/// a caller of all, by going down while there is one call that takes everything.
fn root<'a>(parts: &BTreeMap<&'a str, Vec<Part<'a>>>, total: u64) -> Option<&'a str> {
    let mut called: BTreeMap<&str, u64> = BTreeMap::new();
    for part in parts.values().flatten() {
        if let Some(callee) = part.callee {
            *called.entry(callee).or_default() += part.cost;
        }
    }
    let is_outermost = |(name, parts): &(&&'a str, &Vec<Part<'a>>)| {
        inclusive(parts) >= total && !called.contains_key(**name)
    };
    let is_counted =
        |(name, parts): &(&&'a str, &Vec<Part<'a>>)| name.contains(COUNTED) && inclusive(parts) >= total;
    let mut root = *parts.iter().find(is_counted).or_else(|| parts.iter().find(is_outermost))?.0;
    // A chain is not longer than there are functions.
    for _ in 0..parts.len() {
        let whole = parts.get(root)?.iter().find(|part| part.cost >= total);
        match whole.and_then(|part| part.callee).filter(|callee| parts.contains_key(callee)) {
            Some(callee) => root = callee,
            None => break,
        }
    }
    Some(root)
}

struct Folding<'a> {
    parts: &'a BTreeMap<&'a str, Vec<Part<'a>>>,
    above: Vec<&'a str>,
    stacks: Stacks,
}

impl<'a> Folding<'a> {
    /// Distributes `budget` instructions among the parts of a function. Rounding moves some, but
    /// loses none.
    fn expand(&mut self, name: &'a str, budget: u64, frames: &mut Vec<String>) {
        frames.push(short(name));
        let parts = self.parts.get(name).map_or(&[][..], Vec::as_slice);
        let whole = inclusive(parts);
        // A recursive call is not drawn again above itself.
        if whole == 0 || self.above.contains(&name) {
            self.add(frames, budget);
        } else {
            self.above.push(name);
            let (mut seen, mut given) = (0_u64, 0_u64);
            for part in parts {
                seen += part.cost;
                let share = (u128::from(budget) * u128::from(seen) / u128::from(whole)) as u64 - given;
                given += share;
                self.expand_part(part, share, frames);
            }
            self.above.pop();
        }
        frames.pop();
    }

    fn expand_part(&mut self, part: &Part<'a>, share: u64, frames: &mut Vec<String>) {
        if share == 0 {
            return;
        }
        let depth = frames.len();
        frames.extend(part.inlined.iter().map(|name| short(name)));
        match part.callee {
            Some(callee) => self.expand(callee, share, frames),
            None => self.add(frames, share),
        }
        frames.truncate(depth);
    }

    fn add(&mut self, frames: &[String], cost: u64) {
        *self.stacks.entry(frames.join(";")).or_default() += cost;
    }
}

/// One stack a line, as inferno takes them.
pub fn lines(stacks: &Stacks) -> String {
    stacks.iter().map(|(stack, cost)| format!("{stack} {cost}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(own: &[(u64, u64)], calls: &[(u64, &str, u64)]) -> Function {
        let calls = calls.iter().map(|(address, callee, cost)| ((*address, callee.to_string()), *cost));
        Function { object: "x".into(), own: own.iter().copied().collect(), calls: calls.collect() }
    }

    fn folded(functions: &[(&str, Function)], inlined: impl Fn(&str, u64) -> Vec<String>) -> String {
        let functions =
            functions.iter().map(|(name, function)| (name.to_string(), function.clone())).collect();
        lines(&fold(&functions, inlined).unwrap())
    }

    #[test]
    fn costs_go_to_callers_in_proportion_and_none_is_lost() {
        let functions = [
            ("start", function(&[], &[(1, "body", 1000)])),
            ("body", function(&[(1, 100)], &[(2, "a", 300), (3, "b", 600)])),
            ("a", function(&[(1, 200)], &[(2, "copy", 100)])),
            ("b", function(&[(1, 0)], &[(2, "copy", 600)])),
            ("copy", function(&[(1, 700)], &[])),
        ];
        let expected = "body 100\nbody;a 200\nbody;a;copy 100\nbody;b;copy 600\n";
        assert_eq!(folded(&functions, |_, _| Vec::new()), expected);
    }

    #[test]
    fn inlined_functions_have_frames() {
        let functions = [
            ("body", function(&[(1, 5), (2, 10), (3, 1)], &[(3, "copy", 7)])),
            ("copy", function(&[(1, 7)], &[])),
        ];
        let inlined = |object: &str, address| match address {
            2 => vec!["walk".to_owned()],
            3 if object == "x" => vec!["walk".to_owned(), "head".to_owned()],
            _ => Vec::new(),
        };
        // The address of the copy's own instruction is 1, at which nothing was inlined.
        assert_eq!(
            folded(&functions, inlined),
            "body 5\nbody;walk 10\nbody;walk;head 1\nbody;walk;head;copy 7\n"
        );
    }

    #[test]
    fn odd_shares_and_recursion_keep_the_sum() {
        let functions = [
            ("top", function(&[(1, 1)], &[(1, "a", 10), (2, "b", 23)])),
            ("a", function(&[(1, 3)], &[(2, "c", 7)])),
            ("b", function(&[(1, 13)], &[(2, "c", 10)])),
            ("c", function(&[(1, 5), (2, 12)], &[(3, "c", 9)])),
        ];
        let text = folded(&functions, |_, _| Vec::new());
        let sum: u64 =
            text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(sum, 34, "{text}");
    }

    #[test]
    fn what_was_not_counted_is_left_out() {
        let functions = [
            ("start", function(&[], &[(1, "start", 50), (2, "x::__iai_callgrind_wrapper_mod::x", 50)])),
            ("x::__iai_callgrind_wrapper_mod::x", function(&[], &[(1, "body", 50)])),
            ("body", function(&[(1, 20)], &[(2, "a", 30)])),
            ("a", function(&[(1, 30)], &[])),
        ];
        assert_eq!(folded(&functions, |_, _| Vec::new()), "body 20\nbody;a 30\n");
    }

    #[test]
    fn without_an_outermost_function_it_is_an_error() {
        let functions = [("a".to_owned(), function(&[(1, 1)], &[(1, "a", 1)]))].into();
        assert!(fold(&functions, |_, _| Vec::new()).is_err());
    }
}

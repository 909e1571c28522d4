//! Names of functions as they are drawn: short, and still unique.

use watershed_perf::instructions::callgrind::without_hash;

/// The function that iai-callgrind puts around what is counted: counting begins and ends with it.
pub const COUNTED: &str = "__iai_callgrind_wrapper_mod";

/// A demangled name without hash, without our crates' common prefix, and without what would end a
/// frame in a folded stack.
pub fn short(name: &str) -> String {
    // The linker merges functions with the same body, whose name is then any of theirs.
    if name.contains(COUNTED) {
        return "what is counted".into();
    }
    let name = without_hash(name).replace("watershed_", "").replace(';', ",");
    // Versions of symbols and the C library's inner names of one routine mean nothing here.
    without_impls(name.split('@').next().unwrap_or_default().trim_start_matches("__"))
}

/// "a::<impl b::C>::d" is "a::d": the module says enough.
fn without_impls(name: &str) -> String {
    let Some((before, rest)) = name.split_once("<impl ") else { return name.to_owned() };
    let mut depth = 1;
    for (at, letter) in rest.char_indices() {
        depth += match letter {
            '<' => 1,
            '>' if !rest[..at].ends_with('-') => -1,
            _ => 0,
        };
        if depth == 0 {
            return format!("{before}{}", rest[at + 1..].trim_start_matches("::"));
        }
    }
    name.to_owned()
}

/// Whether an inlined function is worth a frame of its own: ours is, the standard library's
/// wrappers are not.
pub fn is_ours(name: &str) -> bool {
    name.contains("watershed_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_fit_a_folded_stack() {
        assert_eq!(short("watershed_engine::ring::commit::h0123456789abcdef"), "engine::ring::commit");
        assert_eq!(
            short("<watershed_perf::A as core::ops::Drop>::drop"),
            "<perf::A as core::ops::Drop>::drop"
        );
        assert_eq!(short("__memcpy_sse2_unaligned"), "memcpy_sse2_unaligned");
        assert_eq!(short("memcpy@GLIBC_2.2.5"), "memcpy");
        assert_eq!(
            short("watershed_engine::read::<impl watershed_engine::Ring<T>>::next"),
            "engine::read::next"
        );
        assert_eq!(short("a::<impl b"), "a::<impl b");
        assert_eq!(short("instructions::patch::__iai_callgrind_wrapper_mod::patch"), "what is counted");
        assert_eq!(short("a::b<[u8; 4]>::c"), "a::b<[u8, 4]>::c");
        assert!(is_ours("watershed_simd::walk::one") && !is_ours("core::option::Option<T>::map"));
    }
}

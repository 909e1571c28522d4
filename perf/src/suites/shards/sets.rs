//! Subjects of one kind that take turns in a contest.

use crate::measure::Options;

/// How many subjects of a kind there are. What the system gives one for its memory makes it some
/// percent faster or slower than the next, for as long as it is there, so that a contest of one
/// against one is about memory as much as about work.
const SETS: usize = 3;

// Laps go A B and B A in turns: each subject is met in both orders only if their number is odd.
const _: () = assert!(SETS % 2 == 1);

/// [`SETS`] subjects, of which each lap takes the next.
pub(super) struct Sets<T> {
    members: Vec<T>,
    next: usize,
}

impl<T> Sets<T> {
    /// All of them, from `make`.
    pub(super) fn new<E>(make: impl FnMut() -> Result<T, E>) -> Result<Sets<T>, E> {
        let members = std::iter::repeat_with(make).take(SETS).collect::<Result<_, E>>()?;
        Ok(Sets { members, next: 0 })
    }

    /// Whose turn it is.
    pub(super) fn turn(&mut self) -> &mut T {
        let at = self.next;
        self.next = (at + 1) % SETS;
        &mut self.members[at]
    }
}

/// As many rounds for each subject as there would be for one.
pub(super) fn options_for_sets(options: &Options) -> Options {
    Options { rounds: SETS * options.rounds, ..*options }
}

//! From folded stacks to SVG.

use crate::stacks::{Stacks, lines};
use inferno::flamegraph::color::{BasicPalette, Palette};
use inferno::{differential, flamegraph};

/// The heading of a picture.
pub struct Heading {
    /// The benchmark's name.
    pub title: String,
    /// What is counted, and how much of it there was.
    pub subtitle: String,
}

/// A flame graph: the width of a frame is its part of the instructions.
///
/// # Errors
/// When there is nothing to draw.
pub fn draw(heading: &Heading, stacks: &Stacks) -> Result<String, String> {
    let mut options = options(heading);
    // Colours by name: the same function has the same one in every picture.
    options.colors = Palette::Basic(BasicPalette::Hot);
    options.hash = true;
    svg(&mut options, &lines(stacks))
}

/// A differential flame graph: widths are those of `new`, red frames grew and blue ones shrank.
///
/// # Errors
/// When there is nothing to draw.
pub fn draw_difference(heading: &Heading, old: &Stacks, new: &Stacks) -> Result<String, String> {
    let mut both = Vec::new();
    differential::from_readers(
        differential::Options::default(),
        lines(old).as_bytes(),
        lines(new).as_bytes(),
        &mut both,
    )
    .map_err(|error| error.to_string())?;
    let both = String::from_utf8(both).map_err(|error| error.to_string())?;
    svg(&mut options(heading), &both)
}

fn options(heading: &Heading) -> flamegraph::Options<'static> {
    let mut options = flamegraph::Options::default();
    options.title.clone_from(&heading.title);
    options.subtitle = Some(heading.subtitle.clone());
    options.count_name = "instructions".into();
    // Fixed, so that a picture looks the same wherever it is shown.
    options.image_width = Some(1200);
    options.min_width = 0.2;
    options
}

fn svg(options: &mut flamegraph::Options<'_>, lines: &str) -> Result<String, String> {
    let mut svg = Vec::new();
    flamegraph::from_lines(options, lines.lines(), &mut svg).map_err(|error| error.to_string())?;
    let mut svg = String::from_utf8(svg).map_err(|error| error.to_string())?;
    svg.push('\n');
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(lines: &[(&str, u64)]) -> Stacks {
        lines.iter().map(|(stack, cost)| (stack.to_string(), *cost)).collect()
    }

    fn heading() -> Heading {
        Heading { title: "engine/write".into(), subtitle: "100 instructions a chunk".into() }
    }

    /// Many frames, so that an order that depends on a random hasher would show.
    fn many(seed: u64) -> Stacks {
        (0..200).map(|i| (format!("a;f{};g{}", i % 17, i), 1000 + i * seed)).collect()
    }

    #[test]
    fn the_same_stacks_give_the_same_bytes() {
        assert_eq!(draw(&heading(), &many(3)).unwrap(), draw(&heading(), &many(3)).unwrap());
        let difference = || draw_difference(&heading(), &many(3), &many(5)).unwrap();
        assert_eq!(difference(), difference());
    }

    #[test]
    fn a_picture_shows_every_wide_frame_with_its_count() {
        let svg = draw(&heading(), &stacks(&[("a;wide", 90), ("a;other", 10)])).unwrap();
        assert!(svg.contains("<title>wide (90 instructions, 90.00%)</title>"), "{svg}");
        assert!(svg.contains("100 instructions a chunk") && svg.contains("engine/write"));
        assert!(draw(&heading(), &Stacks::new()).is_err(), "nothing to draw");
    }

    #[test]
    fn a_difference_names_what_grew() {
        let svg = draw_difference(
            &heading(),
            &stacks(&[("a;same", 50)]),
            &stacks(&[("a;same", 50), ("a;slow", 50)]),
        );
        let svg = svg.unwrap();
        assert!(svg.contains("slow (50 instructions, 50.00%; +50.00%)"), "{svg}");
    }
}

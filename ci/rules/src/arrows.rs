//! Imports point one way between the rooms of a crate, and form no circle.
//!
//! A room is a folder of `src`, or a file beside it. `lib.rs` is the room `lib`; what it re-exports
//! belongs to the room that it is re-exported from.

use std::collections::{BTreeMap, BTreeSet};

use crate::source;

/// The rooms from which a room imports, with the first line that does.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// Circles, and imports against the order. `order` has a line for each crate: "FOLDER" asks for no
/// circle, "FOLDER: ROOM > ROOM ROOM > ROOM" for imports to the right only. Rooms between two
/// arrows import from neither.
pub fn violations(files: &[(&str, String)], order: &str) -> Vec<String> {
    let lines = order.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.flat_map(|line| of_crate(files, line)).collect()
}

fn of_crate(files: &[(&str, String)], line: &str) -> Vec<String> {
    let (folder, ranks) = line.split_once(':').unwrap_or((line, ""));
    let arrows = arrows(folder, files);
    let mut found: Vec<String> = Vec::new();
    if arrows.is_empty() {
        found.push(format!("{folder}: no room imports from another, is the folder right?"));
    }
    if let Some(circle) = circle(&arrows) {
        found.push(format!("{folder}: a circle of imports: {}", circle.join(" > ")));
    }
    if !ranks.trim().is_empty() {
        found.extend(against(&arrows, ranks).map(|what| format!("{folder}: {what}")));
    }
    found
}

fn against(arrows: &Arrows, ranks: &str) -> impl Iterator<Item = String> {
    let ranked = ranks.split('>').enumerate();
    let rank: BTreeMap<&str, usize> =
        ranked.flat_map(|(rank, rooms)| rooms.split_whitespace().map(move |room| (room, rank))).collect();
    let all = arrows.iter().flat_map(|(from, rooms)| rooms.iter().map(move |(to, line)| (from, to, line)));
    all.filter_map(move |(from, to, line)| match (rank.get(from.as_str()), rank.get(to.as_str())) {
        (Some(from), Some(to)) if from < to => None,
        (Some(_), Some(_)) => Some(format!("{from} imports from {to}, against the order: {line}")),
        _ => Some(format!("{from} or {to} is not in the order: {line}")),
    })
}

/// Rooms that import from each other in a circle, the first one again at the end.
fn circle(arrows: &Arrows) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|room| circle_from(room, arrows, &mut Vec::new(), &mut done))
}

fn circle_from<'a>(
    room: &'a str,
    arrows: &'a Arrows,
    trail: &mut Vec<&'a str>,
    done: &mut BTreeSet<&'a str>,
) -> Option<Vec<String>> {
    if let Some(at) = trail.iter().position(|known| *known == room) {
        return Some(trail[at..].iter().chain([&room]).map(|room| (*room).to_owned()).collect());
    }
    if !done.insert(room) {
        return None;
    }
    trail.push(room);
    let next = arrows.get(room).into_iter().flat_map(BTreeMap::keys);
    let found = next.into_iter().find_map(|room| circle_from(room, arrows, trail, done));
    trail.pop();
    found
}

/// The arrows of a crate, those of its test modules left out.
fn arrows(folder: &str, files: &[(&str, String)]) -> Arrows {
    let source = format!("{folder}/src/");
    let files: Vec<(&str, &str)> =
        files.iter().filter_map(|(path, text)| Some((path.strip_prefix(&source)?, text.as_str()))).collect();
    let rooms: BTreeSet<&str> = files.iter().map(|(path, _)| room(path)).collect();
    let lib = files.iter().find(|(path, _)| *path == "lib.rs").map_or("", |(_, text)| text);
    let exports = exports(lib);
    let mut arrows = Arrows::new();
    for (path, text) in files {
        let from = room(path);
        for (number, statement) in statements(text) {
            for name in imported(&statement, depth(path), from == "lib") {
                let to = match exports.get(&name) {
                    _ if rooms.contains(name.as_str()) => &name,
                    Some(room) => room,
                    // A name of another crate, or in the root of this one what it defines itself.
                    None if from == "lib" => continue,
                    None => "lib",
                };
                if from != to {
                    let rooms = arrows.entry(from.to_owned()).or_default();
                    rooms.entry(to.to_owned()).or_insert_with(|| format!("{source}{path}:{number}"));
                }
            }
        }
    }
    arrows
}

/// The room of a file, by its path below `src`.
fn room(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

/// How far below the crate's root the module of a file is.
fn depth(path: &str) -> usize {
    let parts = path.split('/').count();
    if path == "lib.rs" || path.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// Lines of code without comments, those of a `use` put together; up to the test module at the end
/// of a file.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    let mut lines = text.lines().map(|line| source::split(line).0.trim()).enumerate().peekable();
    while let Some((index, code)) = lines.next() {
        let is_test = code.starts_with("#[cfg(") && code.contains("test");
        if is_test && lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{')) {
            break;
        }
        match found.last_mut().filter(|_| is_open) {
            Some((_, statement)) => statement.push_str(code),
            None => found.push((index + 1, code.to_owned())),
        }
        is_open = (is_open || use_tree(code).is_some()) && !code.ends_with(';');
    }
    found
}

/// What follows the `use` of a statement.
fn use_tree(statement: &str) -> Option<&str> {
    let visible =
        statement.split_once("use ").filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
    visible.map(|(_, tree)| tree.trim_end_matches(';'))
}

/// What a statement names right below the crate's root: by `crate::`, by as many `super::` as lead
/// there, or by any path of a `use` in the root itself.
fn imported(statement: &str, depth: usize, is_root: bool) -> Vec<String> {
    let up = "super::".repeat(depth.max(1));
    let below = |path: &str| match path.strip_prefix("crate::").or_else(|| path.strip_prefix(&up)) {
        Some(rest) => Some(first(rest).to_owned()),
        None => is_root.then(|| first(path).to_owned()),
    };
    if let Some(tree) = use_tree(statement) {
        return paths(tree).iter().filter_map(|path| below(path)).collect();
    }
    let of_root = statement.split("crate::").skip(1);
    of_root.chain(statement.split(&up).skip(1)).map(|rest| first(rest).to_owned()).collect()
}

/// The names that the root re-exports, with their rooms.
fn exports(lib: &str) -> BTreeMap<String, String> {
    let statements = statements(lib);
    let trees = statements.iter().filter_map(|(_, statement)| use_tree(statement));
    let paths = trees.flat_map(paths).filter(|path| path.contains("::"));
    let named = paths.map(|path| {
        let name =
            path.rsplit_once(" as ").map_or_else(|| path.rsplit("::").next().unwrap_or(""), |(_, name)| name);
        (name.to_owned(), first(path.trim_start_matches("crate::")).to_owned())
    });
    named.collect()
}

/// The name with which a path begins.
fn first(path: &str) -> &str {
    path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(path)
}

/// The paths of a tree of imports: `a::b` and `a::c` of `a::{b, c}`.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let mut level = 0;
    let branches = inner.split(|c| {
        level += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && level == 0
    });
    let branches = branches.map(str::trim).filter(|branch| !branch.is_empty());
    branches.flat_map(paths).map(|path| format!("{before}{path}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files<'a>(texts: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
        texts.iter().map(|(path, text)| (*path, (*text).to_owned())).collect()
    }

    #[test]
    fn trees_of_imports_have_paths() {
        assert_eq!(paths("crate::a::B"), ["crate::a::B"]);
        assert_eq!(
            paths("crate::{a::{B, c::D}, e, f::{G}}"),
            ["crate::a::B", "crate::a::c::D", "crate::e", "crate::f::G"]
        );
    }

    #[test]
    fn arrows_follow_the_order() {
        let rooms = files(&[
            ("x/src/lib.rs", "mod high;\nmod low;\npub use high::{Top, Other as Alias};\n"),
            ("x/src/high/mod.rs", "use super::low::Thing;\nuse std::fmt;\n"),
            ("x/src/low.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::high::Top;\n}\n"),
        ]);
        assert_eq!(violations(&rooms, "# a comment\nx: lib > high > low\n"), Vec::<String>::new());
        assert_eq!(
            violations(&rooms, "x: lib > low > high"),
            ["x: high imports from low, against the order: x/src/high/mod.rs:1"]
        );
        assert_eq!(
            violations(&rooms, "x: lib > high"),
            ["x: high or low is not in the order: x/src/high/mod.rs:1"]
        );
        assert_eq!(violations(&rooms, "y"), ["y: no room imports from another, is the folder right?"]);
    }

    #[test]
    fn circles_are_found_by_whichever_path() {
        let lib = ("x/src/lib.rs", "mod a;\nmod b;\npub use a::Name;\n");
        let a = ("x/src/a/mod.rs", "use crate::{\n    b::Inner,\n};\n");
        for line in [
            "use crate::a::deep;",
            "use crate::Name;",
            "let x = super::a::Name;",
            "fn f(_: &crate::a::Name) {}",
        ] {
            let rooms = files(&[lib, a, ("x/src/b.rs", line)]);
            assert_eq!(violations(&rooms, "x"), ["x: a circle of imports: a > b > a"], "{line}");
        }
        let rooms = files(&[lib, a, ("x/src/b.rs", "// use crate::a;\n")]);
        assert_eq!(violations(&rooms, "x"), Vec::<String>::new());
    }

    #[test]
    fn modules_inside_of_a_room_may_name_each_other() {
        let rooms = files(&[
            ("x/src/lib.rs", "use a::b;\nuse std::fmt;\n"),
            ("x/src/a/mod.rs", "use c::D;\n"),
            ("x/src/a/c.rs", "use super::E;\nuse super::super::a::F;\nuse crate::a::G;\n"),
        ]);
        assert_eq!(violations(&rooms, "x: lib > a"), Vec::<String>::new());
    }
}

//! Which categories a session has.

use watershed_wire::protos::TrackEventConfig;

use super::category::Category;

/// Tags whose categories are off when a config has no `disabled_tags`.
const TAGS_OFF: [&str; 2] = ["slow", "debug"];

/// How a name is compared with what a config says.
#[derive(Clone, Copy)]
enum By {
    Name,
    Pattern,
}

impl By {
    /// A `*` stands for any rest, at the end only; a text without one matches nothing as a pattern.
    fn matches(self, asked: &str, name: &str) -> bool {
        match self {
            By::Name => asked == name,
            By::Pattern => asked.strip_suffix('*').is_some_and(|begin| name.starts_with(begin)),
        }
    }

    fn any(self, asked: &[impl AsRef<str>], name: &str) -> bool {
        asked.iter().any(|asked| self.matches(asked.as_ref(), name))
    }
}

/// Whether a session with this config has the category. See [`Category`] for the rules; they are
/// those of Perfetto's own library.
pub(super) fn is_enabled(config: &TrackEventConfig, category: &Category) -> bool {
    for by in [By::Name, By::Pattern] {
        let has_tag = |asked: &[String]| category.tags().iter().any(|tag| by.any(asked, tag));
        let is_tag_off = match config.disabled_tags.is_empty() {
            true => category.tags().iter().any(|tag| by.any(&TAGS_OFF, tag)),
            false => has_tag(&config.disabled_tags),
        };
        if by.any(&config.enabled_categories, category.name()) || has_tag(&config.enabled_tags) {
            return true;
        }
        if by.any(&config.disabled_categories, category.name()) || is_tag_off {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    static NET: Category = Category::new("net");
    static NET_DNS: Category = Category::new("net.dns").with_tags(&["slow"]);
    static DISK: Category = Category::new("disk").with_tags(&["io", "verbose"]);

    /// Whether it has net, net.dns and disk.
    fn has(enabled: &[&str], enabled_tags: &[&str], disabled: &[&str], disabled_tags: &[&str]) -> [bool; 3] {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let config = TrackEventConfig {
            enabled_categories: list(enabled),
            enabled_tags: list(enabled_tags),
            disabled_categories: list(disabled),
            disabled_tags: list(disabled_tags),
            ..Default::default()
        };
        [&NET, &NET_DNS, &DISK].map(|category| is_enabled(&config, category))
    }

    #[test]
    fn what_nothing_names_is_enabled_unless_it_is_slow() {
        assert_eq!(has(&[], &[], &[], &[]), [true, false, true]);
        assert_eq!(has(&[], &[], &[], &["other"]), [true; 3]);
    }

    #[test]
    fn names_come_before_patterns_and_enabling_before_disabling() {
        assert_eq!(has(&["net"], &[], &["*"], &[]), [true, false, false]);
        assert_eq!(has(&["net*"], &[], &["*"], &[]), [true, false, false], "a tag that is off is a name");
        assert_eq!(has(&["net*"], &[], &["net.dns", "*"], &["none"]), [true, false, false]);
        assert_eq!(has(&["*"], &[], &["*"], &["none"]), [true; 3]);
        assert_eq!(has(&["n*t"], &[], &["*"], &["none"]), [false; 3], "a star is at the end only");
    }

    #[test]
    fn tags_choose_many() {
        assert_eq!(has(&[], &["slow"], &["*"], &[]), [false, true, false]);
        assert_eq!(has(&[], &["verb*"], &["*"], &[]), [false, false, true]);
        assert_eq!(has(&[], &["io"], &["disk"], &[]), [true, false, true]);
        assert_eq!(has(&[], &[], &[], &["i*"]), [true, true, false]);
    }
}

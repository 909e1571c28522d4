//! Macros: an event in one line, and nothing of it where no session wants it.

/// Writes an instant event: `instant!(CATEGORY, name, arguments...)`.
///
/// `CATEGORY` is a static [`Category`](crate::track_event::Category). The name is a literal, which
/// a trace has once; or any `&str` in braces, which it has each time. Arguments are `name = value`,
/// or `name` alone for a variable of that name; values are what
/// [`ArgValue`](crate::track_event::ArgValue) says. They are evaluated only if a session may want
/// the event, while it is being written: they must not fork the process.
///
/// Before the arguments may stand `on = &track`, for an event of a
/// [`Track`](crate::track_event::Track) instead of the thread, and behind them `; flow = number`.
///
/// ```
/// use watershed_client::instant;
/// use watershed_client::track_event::{Category, Track, debug};
///
/// static NET: Category = Category::new("net");
/// let (peer, connection) = (vec![127, 0, 0, 1], Track::new("connection", 7));
/// instant!(NET, "connected", peer = debug(&peer), port = 80);
/// instant!(NET, "first byte", on = &connection; flow = 12);
/// instant!(NET, { &format!("reply {}", 5) });
/// ```
#[macro_export]
macro_rules! instant {
    ($category:expr, $name:tt $($rest:tt)*) => {
        $crate::__track_event!(write_instant, $category, $name, [] $($rest)*)
    };
}

/// Begins a slice of the calling thread and gives its guard: the slice ends when that is dropped.
/// The arguments are those of [`instant!`](crate::instant).
///
/// ```
/// use watershed_client::slice;
/// use watershed_client::track_event::Category;
///
/// static NET: Category = Category::new("net");
/// fn handle(request: u64) {
///     let _slice = slice!(NET, "handle", request);
///     // ...
/// }
/// # handle(1);
/// ```
#[macro_export]
macro_rules! slice {
    ($category:expr, $name:tt $($rest:tt)*) => {{
        let category: &'static $crate::track_event::Category = &$category;
        let is_enabled = category.is_enabled();
        $crate::__track_event!(begin_slice, $category, $name, [] $($rest)*);
        $crate::track_event::SliceGuard::new(is_enabled.then_some(category))
    }};
}

/// Begins a slice that [`end!`](crate::end) ends, on a [`Track`](crate::track_event::Track) or on
/// the calling thread's. The arguments are those of [`instant!`](crate::instant).
///
/// ```
/// use watershed_client::track_event::{Category, Track};
/// use watershed_client::{begin, end};
///
/// static NET: Category = Category::new("net");
/// let request = Track::new("request", 5);
/// begin!(NET, "request", on = &request, bytes = 100);
/// // On any thread, later:
/// end!(NET, on = &request);
/// ```
#[macro_export]
macro_rules! begin {
    ($category:expr, $name:tt $($rest:tt)*) => {
        $crate::__track_event!(begin_slice, $category, $name, [] $($rest)*)
    };
}

/// Ends the slice that began last on a track, or on the calling thread's: see
/// [`begin!`](crate::begin).
#[macro_export]
macro_rules! end {
    ($category:expr) => {{
        let category: &'static $crate::track_event::Category = &$category;
        if category.is_enabled() {
            $crate::track_event::end_slice(category, None, None);
        }
    }};
    ($category:expr, on = $track:expr) => {{
        let category: &'static $crate::track_event::Category = &$category;
        if category.is_enabled() {
            $crate::track_event::end_slice(category, Some($track), None);
        }
    }};
}

/// Writes a value of a [`Counter`](crate::track_event::Counter): an integer or a floating point
/// number.
///
/// ```
/// use watershed_client::counter;
/// use watershed_client::track_event::{Category, Counter, Unit};
///
/// static NET: Category = Category::new("net");
/// static RECEIVED: Counter = Counter::new("received").with_unit(Unit::SizeBytes);
/// counter!(NET, RECEIVED, 1234);
/// ```
#[macro_export]
macro_rules! counter {
    ($category:expr, $counter:expr, $value:expr) => {{
        let category: &'static $crate::track_event::Category = &$category;
        if category.is_enabled() {
            $crate::track_event::count_value(category, &$counter, ($value).into());
        }
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __track_event {
    ($write:ident, $category:expr, $name:tt, [] , on = $track:expr $(, $($rest:tt)*)?) => {
        $crate::__track_event!($write, $category, $name, [Some($track)] $(, $($rest)*)?)
    };
    ($write:ident, $category:expr, $name:tt, [] , on = $track:expr; $($rest:tt)*) => {
        $crate::__track_event!($write, $category, $name, [Some($track)] ; $($rest)*)
    };
    ($write:ident, $category:expr, $name:tt, [$($track:expr)?]
        $(, $arg:ident $(= $value:expr)?)* $(,)? $(; flow = $flow:expr)?) => {{
        let category: &'static $crate::track_event::Category = &$category;
        if category.is_enabled() {
            let track: Option<&$crate::track_event::Track> = None $(.or($track))?;
            $crate::track_event::$write(
                category,
                $crate::__event_name!($name),
                track,
                $crate::__fill!([$($arg $(= $value)?),*] [$($flow)?]),
            );
        }
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __event_name {
    ({ $name:expr }) => {
        ::core::convert::identity::<&str>($name)
    };
    ($name:literal) => {{
        static NAME: $crate::track_event::EventName = $crate::track_event::EventName::new($name);
        &NAME
    }};
}

#[doc(hidden)]
#[macro_export]
macro_rules! __fill {
    ([] []) => {
        None
    };
    ([$($arg:ident $(= $value:expr)?),*] [$($flow:expr)?]) => {
        Some(&|event: &mut $crate::track_event::EventWriter<'_>| {
            $({
                static NAME: $crate::track_event::ArgName =
                    $crate::track_event::ArgName::new(stringify!($arg));
                event.arg(&NAME, $crate::__arg_value!($arg $(= $value)?));
            })*
            $(event.flow($flow);)?
        })
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __arg_value {
    ($arg:ident) => {
        &$arg
    };
    ($arg:ident = $value:expr) => {
        &$value
    };
}

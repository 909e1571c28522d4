//! Options of the `perfetto` command that make sense on Android alone. Known by name, so that who
//! types them is told what is the matter, and not only that there is no such option.

use crate::exit::Failure;

/// None is in the help.
#[derive(Debug, clap::Args)]
pub(super) struct AndroidArgs {
    #[arg(short, long, hide = true, value_name = "NAME")]
    app: Option<String>,

    #[arg(long, hide = true)]
    upload: bool,

    #[arg(long, hide = true, value_name = "TAG")]
    dropbox: Option<String>,

    #[arg(long, hide = true)]
    save_all_for_bugreport: bool,

    #[arg(long, hide = true, value_name = "ID")]
    alert_id: Option<String>,

    #[arg(long, hide = true, value_name = "ID")]
    config_id: Option<String>,

    #[arg(long, hide = true, value_name = "UID")]
    config_uid: Option<String>,

    #[arg(long, hide = true, value_name = "ID")]
    subscription_id: Option<String>,

    /// There are none, so that nothing has to be done.
    #[arg(long, hide = true)]
    no_guardrails: bool,

    /// Likewise; nothing is recorded.
    #[arg(long, hide = true)]
    pub(super) reset_guardrails: bool,
}

impl AndroidArgs {
    /// Refuses what cannot be had.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let statsd = "it is for Android's statsd; a config's statsd_metadata says the same";
        let given = [
            ("--app", self.app.is_some(), "atrace of Android apps is not recorded here"),
            ("--upload", self.upload, "only Android has a place to hand traces to; name a file with -o"),
            ("--dropbox", self.dropbox.is_some(), "only Android has a DropBox; name a file with -o"),
            (
                "--save-all-for-bugreport",
                self.save_all_for_bugreport,
                "only Android has a folder for them; `watershed query` lists the sessions, \
                 `watershed clone --for-bugreport --id N -o OUT` writes one",
            ),
            ("--alert-id", self.alert_id.is_some(), statsd),
            ("--config-id", self.config_id.is_some(), statsd),
            ("--config-uid", self.config_uid.is_some(), statsd),
            ("--subscription-id", self.subscription_id.is_some(), statsd),
        ];
        match given.iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, reason)) => Err(Failure::usage(format_args!("{option}: {reason}"))),
            None => Ok(()),
        }
    }
}

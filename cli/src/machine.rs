//! What traces say about this machine.

use watershed_client::in_process;
use watershed_service::SystemInfo;

/// What the system says, and the offset of local time.
pub(crate) fn system_info() -> SystemInfo {
    let timezone_off_mins = Some(jiff::Zoned::now().offset().seconds() / 60);
    SystemInfo { timezone_off_mins, ..in_process::system_info() }
}

//! The kernel's tracing instances, and fields of its events.

use std::fs;
use std::path::{Path, PathBuf};

use watershed_wire::raw::Fields;

/// Where tracefs is, mounted if need be; `None`, and a word why, if this machine cannot run the
/// test.
pub(crate) fn tracefs() -> Option<PathBuf> {
    if let Err(reason) = watershed_probes::ftrace_access(&watershed_probes::Roots::default()) {
        eprintln!("no tracefs here, nothing was tested: {reason}");
        return None;
    }
    let roots = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
    let root = roots.into_iter().find(|root| root.join("instances").exists());
    if root.is_none() {
        eprintln!("this kernel has no instances, nothing was tested");
    }
    root
}

/// Instances of that process.
pub(crate) fn made_by(pid: u32, root: &Path) -> Vec<PathBuf> {
    let prefix = format!("watershed-{pid}-");
    let entries = fs::read_dir(root.join("instances")).unwrap().flatten();
    let is_ours = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&prefix);
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}

pub(crate) fn is_on(instance: &Path) -> bool {
    says_one(&instance.join("tracing_on"))
}

pub(crate) fn asks(instance: &Path, event: &str) -> bool {
    says_one(&instance.join("events").join(event).join("enable"))
}

fn says_one(file: &Path) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "1")
}

/// The instance of that process which records the event. An instance is on when it is made, without
/// events; it is off while its events are enabled.
pub(crate) fn recording(pid: u32, root: &Path, event: &str) -> Option<PathBuf> {
    made_by(pid, root).into_iter().find(|instance| asks(instance, event) && is_on(instance))
}

/// The first field of that number: an integer, or bytes.
pub(crate) fn field(message: &[u8], number: u32) -> Option<(u64, Vec<u8>)> {
    let field = Fields::new(message).map(Result::unwrap).find(|field| field.number == number)?;
    Some(match field.value.bytes() {
        Some(bytes) => (0, bytes.to_vec()),
        None => (field.value.varint().unwrap(), Vec::new()),
    })
}

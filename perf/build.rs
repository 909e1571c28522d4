//! Records compiler and flags of the measured code: results without them cannot be compared.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().ok();
    let version = version.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    println!("cargo::rustc-env=WATERSHED_PERF_COMPILER={}", version.trim());

    // The separator of the encoded flags is the ASCII unit separator.
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default().replace('\x1f', " ");
    println!("cargo::rustc-env=WATERSHED_PERF_FLAGS={flags}");
    for name in ["TARGET", "PROFILE", "OPT_LEVEL"] {
        let value = std::env::var(name).unwrap_or_default();
        println!("cargo::rustc-env=WATERSHED_PERF_{name}={value}");
    }
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    println!("cargo::rerun-if-changed=build.rs");
}

//! Gives the shared library its versioned name, so that a program keeps the ABI with which it was
//! linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Goes up with every incompatible change of watershed.h, and only then; install.sh reads it
    // from here.
    const ABI_VERSION: u32 = 0;
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    match os.as_str() {
        "macos" | "ios" => {
            println!(
                "cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libwatershed.{ABI_VERSION}.dylib"
            );
        }
        "windows" => {}
        _ => println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwatershed.so.{ABI_VERSION}"),
    }
}

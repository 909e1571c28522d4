//! The program's frame: version, help, and the codes of wrong usage.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_watershed")).args(args).env_remove("WATERSHED_SIMD").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn version() {
    let short = run(&["--version"]);
    assert!(short.status.success());
    assert_eq!(stdout(&short), format!("watershed {}\n", env!("CARGO_PKG_VERSION")));
    let long = stdout(&run(&["--version", "--verbose"]));
    assert!(long.starts_with(&stdout(&short)), "{long}");
    let simd = long.lines().find_map(|line| line.strip_prefix("simd: ")).unwrap();
    assert!(["scalar", "avx2", "avx512", "neon"].contains(&simd), "{long}");
}

#[test]
fn version_tells_of_a_wish_that_cannot_be_met() {
    let output = Command::new(env!("CARGO_BIN_EXE_watershed"))
        .args(["-V", "-v"])
        .env("WATERSHED_SIMD", "abacus")
        .output()
        .unwrap();
    assert!(stdout(&output).contains("WATERSHED_SIMD=abacus cannot run here"), "{}", stdout(&output));
}

#[test]
fn help_goes_to_standard_output_and_lists_the_commands() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let help = stdout(&output);
    for word in ["record", "inspect", "Exit codes"] {
        assert!(help.contains(word), "{help}");
    }
}

#[test]
fn wrong_usage_has_code_2_and_prints_nothing_on_standard_output() {
    for args in [&[][..], &["frobnicate"], &["inspect"], &["inspect", "--yaml", "t"], &["inspect", "a", "b"]]
    {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(!stderr(&output).is_empty(), "{args:?}");
    }
}

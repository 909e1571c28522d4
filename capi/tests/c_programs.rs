//! C programs against the installed library: what an embedder does.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A prefix with the library in it.
struct Installed {
    folder: TempDir,
}

impl Installed {
    /// Runs the install script, with the profile of this test: the library is built already.
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
        let mut install = Command::new("sh");
        install.arg(script).arg(folder.path()).env("CARGO", env!("CARGO"));
        install.env("PROFILE", if cfg!(debug_assertions) { "dev" } else { "release" });
        run(&mut install);
        Self { folder }
    }

    fn lib(&self) -> PathBuf {
        self.folder.path().join("lib")
    }

    fn compiler(&self, program: &str, warnings: &[&str]) -> Command {
        let mut compiler = Command::new(program);
        compiler.args(warnings).arg("-I").arg(self.folder.path().join("include"));
        compiler
    }

    /// Compiles a program of `examples/` or `tests/` and returns the executable.
    fn compile(&self, source: &str, link: &[&str]) -> PathBuf {
        let executable =
            self.folder.path().join(if link.contains(&"-lwatershed") { "dynamic" } else { "static" });
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let mut compiler = self.compiler("cc", &["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        run(compiler.arg(source).arg("-o").arg(&executable).arg("-L").arg(self.lib()).args(link));
        executable
    }

    fn execute(&self, executable: &Path) -> String {
        run(Command::new(executable).env("LD_LIBRARY_PATH", self.lib()).env("DYLD_LIBRARY_PATH", self.lib()))
    }
}

/// Runs a command that must succeed, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// One field of the pkg-config file.
fn pkg_config(installed: &Installed, field: &str) -> String {
    let text = std::fs::read_to_string(installed.lib().join("pkgconfig/watershed.pc")).expect("watershed.pc");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{field}: ")));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

const RING_PRINTS: &str = "\
4096 bytes, has data: 0
before the patch: 1/1 hello 1/1 world
patched: 1
after the patch: 1/2 done-begins+ends
oldest in the copy: packet 074, loss reasons 65
overwritten: 72
chunks: 204 written, 4 read, 72 overwritten
every chunk is accounted for: 1
";

#[test]
fn the_example_runs_with_the_shared_library() {
    let installed = Installed::new();
    let program = installed.compile("examples/ring.c", &["-lwatershed"]);
    assert_eq!(installed.execute(&program), RING_PRINTS);

    // The program asks for the version of the ABI, not for whatever is installed later.
    #[cfg(target_os = "linux")]
    {
        std::fs::remove_file(installed.lib().join("libwatershed.so")).expect("the name for linking");
        assert_eq!(installed.execute(&program), RING_PRINTS);
    }
}

#[test]
fn the_example_runs_with_the_static_library() {
    let installed = Installed::new();
    let private = pkg_config(&installed, "Libs.private");
    let mut link = vec!["-Wl,-Bstatic", "-l:libwatershed.a", "-Wl,-Bdynamic"];
    if cfg!(target_os = "macos") {
        std::fs::remove_file(installed.lib().join("libwatershed.dylib")).expect("the shared library");
        link = vec!["-lwatershed"];
    }
    link.extend(private.split_whitespace());
    let program = installed.compile("examples/ring.c", &link);
    assert_eq!(installed.execute(&program), RING_PRINTS);
}

#[test]
fn null_pointers_are_answered_with_neutral_values() {
    let installed = Installed::new();
    let program = installed.compile("tests/nulls.c", &["-lwatershed"]);
    assert_eq!(installed.execute(&program), "ok\n");
}

#[test]
fn the_pkg_config_file_names_the_place_and_the_version() {
    let installed = Installed::new();
    assert_eq!(pkg_config(&installed, "Version"), env!("CARGO_PKG_VERSION"));
    assert_eq!(pkg_config(&installed, "Libs"), "-L${libdir} -lwatershed");
    let text = std::fs::read_to_string(installed.lib().join("pkgconfig/watershed.pc")).expect("watershed.pc");
    assert!(text.starts_with(&format!("prefix={}\n", installed.folder.path().display())), "{text}");
    assert!(!text.contains('@'), "a place was not filled in: {text}");
}

#[test]
fn the_header_is_good_cpp_too() {
    if Command::new("c++").arg("--version").output().is_err() {
        // A C compiler is all that the tests ask for; machines of the checks have both.
        return;
    }
    let installed = Installed::new();
    let source = installed.folder.path().join("header.cpp");
    std::fs::write(&source, "#include <watershed.h>\nint main() { return ws_version() == nullptr; }\n")
        .unwrap();
    let mut compiler =
        installed.compiler("c++", &["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    run(compiler.arg("-fsyntax-only").arg(source));
}

#[cfg(target_os = "linux")]
#[test]
fn the_shared_library_exports_our_names_only() {
    let installed = Installed::new();
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(installed.lib().join("libwatershed.so")));
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.contains(&"ws_buffer_create"));
    let foreign: Vec<_> = names.iter().filter(|name| !name.starts_with("ws_")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

//! The machine that a figure was measured on: without it no two figures can be compared.

use serde::{Deserialize, Serialize};
use std::process::Command;

/// Hardware, system and compiler of a run. Empty text where the system does not say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Which of them, such as "4-5", where the system says so.
    #[serde(default)]
    pub cpus: String,
    /// The kind of cores, on machines with several: "little", "middle", "big", or what the caller
    /// named.
    #[serde(default)]
    pub cluster: String,
    /// For instance "x86_64".
    pub arch: String,
    /// For instance "linux".
    pub os: String,
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's setting of transparent huge pages, such as "madvise".
    pub huge_pages: String,
    /// `rustc --version` of the build.
    pub compiler: String,
    /// Flags beyond the profile's.
    pub compiler_flags: String,
    /// Profile and optimisation level of the build, such as "release, 3".
    pub profile: String,
    /// The commit of the working folder, with "+changes" where it differs from it.
    pub commit: String,
    /// Whether an emulator ran it: such figures are no performance and are never recorded.
    pub emulated: bool,
}

impl Machine {
    /// This machine, this build.
    pub fn here() -> Self {
        Self {
            cpu: cpu_name(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpus: allowed_cpus(),
            cluster: String::new(),
            arch: std::env::consts::ARCH.into(),
            os: std::env::consts::OS.into(),
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| output("uname", &["-r"])),
            huge_pages: huge_pages(),
            compiler: env!("WATERSHED_PERF_COMPILER").into(),
            compiler_flags: env!("WATERSHED_PERF_FLAGS").into(),
            profile: format!("{}, {}", env!("WATERSHED_PERF_PROFILE"), env!("WATERSHED_PERF_OPT_LEVEL")),
            commit: commit(),
            emulated: emulated(),
        }
    }

    /// A name for a folder: processor, architecture, number and kind of cores, in lower case with
    /// dashes.
    pub fn folder_name(&self) -> String {
        let name = format!("{} {} {} cores {}", self.cpu, self.arch, self.cores, self.cluster).to_lowercase();
        let words = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| !matches!(*word, "" | "r" | "tm" | "cpu")).collect::<Vec<_>>().join("-")
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} cores, {} {} {}", self.cpu, self.cores, self.os, self.kernel, self.arch)?;
        if !self.cluster.is_empty() {
            write!(f, ", {} cores ({})", self.cluster, self.cpus)?;
        }
        write!(f, ", {} ({}), commit {}", self.compiler, self.profile, self.commit)?;
        if self.emulated { f.write_str(", EMULATED: no figure means anything") } else { Ok(()) }
    }
}

fn first_line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// What a command printed, or nothing.
fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success());
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// The kernel's list of the processors that this process may use.
fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map_or_else(String::new, |list| list.trim().to_owned())
}

/// The name of the last processor that may be used, which is where pinned suites run: a phone has
/// several kinds.
fn cpu_name() -> String {
    let allowed = allowed_cpus();
    let last = allowed.rsplit([',', '-']).next().unwrap_or_default();
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu_name_in(&info, last).unwrap_or_else(|| output("sysctl", &["-n", "machdep.cpu.brand_string"]))
}

/// The name of processor `number` in the text of /proc/cpuinfo.
fn cpu_name_in(info: &str, number: &str) -> Option<String> {
    let value = |block: &str, name: &str| {
        let line = block.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let its_own = info.split("\n\n").find(|block| value(block, "processor").as_deref() == Some(number));
    let field = |name: &str| value(its_own.unwrap_or(info), name);
    // aarch64 kernels name no model; the part's number identifies it.
    field("model name")
        .or_else(|| Some(format!("implementer {} part {}", field("CPU implementer")?, field("CPU part")?)))
}

/// The bracketed word of the kernel's list.
fn huge_pages() -> String {
    let line = first_line("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let word = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    word.map_or_else(String::new, |(word, _)| word.to_owned())
}

/// The commit of the working folder; on a device, where there is none, what the packed program's
/// environment says. Records do not count as changes: one may have been written just before.
fn commit() -> String {
    if let Ok(packed) = std::env::var("WATERSHED_PERF_COMMIT") {
        return packed;
    }
    const STATUS: [&str; 6] =
        ["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)perf/record"];
    let id = output("git", &["rev-parse", "--short=12", "HEAD"]);
    if id.is_empty() || output("git", &STATUS).is_empty() { id } else { format!("{id}+changes") }
}

/// Whether valgrind or a user-mode emulator runs this program. An emulator does not change the
/// kernel's own architecture in /proc/sys.
fn emulated() -> bool {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let foreign_kernel =
        first_line("/proc/sys/kernel/arch").is_some_and(|arch| arch != std::env::consts::ARCH);
    // Kernels before 6.1 do not have that file: then the vendor of the processor tells.
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let foreign_processor = std::env::consts::ARCH == "aarch64" && info.contains("vendor_id");
    foreign_kernel || foreign_processor || preloaded.to_string_lossy().contains("vgpreload")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_compiler_and_cores() {
        let machine = Machine::here();
        assert!(machine.compiler.starts_with("rustc "), "{machine:?}");
        assert!(machine.cores > 0);
    }

    #[test]
    fn each_kind_of_core_has_its_name() {
        let info = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n\
            processor\t: 7\nCPU implementer\t: 0x41\nCPU part\t: 0xd44\n\nHardware: x\n";
        assert_eq!(cpu_name_in(info, "7").as_deref(), Some("implementer 0x41 part 0xd44"));
        assert_eq!(cpu_name_in(info, "0").as_deref(), Some("implementer 0x41 part 0xd05"));
        assert_eq!(cpu_name_in("", "0"), None);
    }

    #[test]
    fn folder_names_are_plain_words() {
        let mut machine = Machine::here();
        machine.cpu = "Intel(R) Xeon(R) CPU @ 2.20GHz".into();
        machine.arch = "x86_64".into();
        machine.cores = 2;
        assert_eq!(machine.folder_name(), "intel-xeon-2-20ghz-x86_64-2-cores");
        machine.cluster = "big".into();
        assert_eq!(machine.folder_name(), "intel-xeon-2-20ghz-x86_64-2-cores-big");
    }
}

use super::*;
use crate::fake::{FakeMachine, poll};
use watershed_wire::protos::CpuInfo;
use watershed_wire::protos::cpu_info::cpu::Identifier;
use watershed_wire::protos::cpu_info::{ArmCpuIdentifier, Cpu};

const PIXEL: &str = "processor\t: 0\nBogoMIPS\t: 49.15\nFeatures\t: fp asimd mte\nCPU implementer\t: 0x41\n\
    CPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: 0xd05\nCPU revision\t: 10\n\n\
    processor\t: 2\nFeatures\t: mte mte3 mtex\nCPU implementer\t: 0x41\nCPU part\t: 0xd44\n\n\
    Hardware\t: an example\n";

fn told(machine: &FakeMachine, config: &SystemInfoConfig) -> (Vec<Data>, Vec<String>) {
    let notices = Notices::new();
    let mut probe = SystemInfoProbe::new(&machine.roots(), config, &notices);
    assert_eq!(probe.due_ns(), Some(0));
    let packets = poll(&mut probe, 7);
    assert!(packets.iter().all(|packet| packet.timestamp == Some(7_000_000)));
    probe.hurry();
    assert_eq!(poll(&mut probe, 8), []);
    assert_eq!(probe.due_ns(), None, "it is told once");
    let data = packets.into_iter().filter_map(|packet| packet.data).collect();
    (data, notices.take().iter().map(ToString::to_string).collect())
}

fn cpus(machine: &FakeMachine) -> Vec<Cpu> {
    match &told(machine, &SystemInfoConfig::default()).0[..] {
        [Data::CpuInfo(CpuInfo { cpus })] => cpus.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cpus_of_a_phone() {
    let machine = FakeMachine::new();
    machine.write("proc/cpuinfo", PIXEL);
    for (cpu, capacity, khz) in [(0, 250, "300000 574000 \n"), (2, 1024, "500000 2850000\n")] {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}");
        machine.write(format!("{dir}/cpu_capacity"), format!("{capacity}\n"));
        machine.write(format!("{dir}/cpufreq/scaling_available_frequencies"), khz);
    }
    machine.write("sys/devices/system/cpu/cpu2/cpufreq/scaling_boost_frequencies", "3100000 2850000\n");
    // Offline: /proc does not list it.
    machine.write("sys/devices/system/cpu/cpu1/cpu_capacity", "250\n");
    machine.write("sys/devices/system/cpu/cpufreq/policy0/x", "");
    let identifier = ArmCpuIdentifier {
        implementer: Some(0x41),
        architecture: Some(8),
        variant: Some(1),
        part: Some(0xd05),
        revision: Some(10),
    };
    let small = Cpu {
        frequencies: vec![300_000, 574_000],
        capacity: Some(250),
        identifier: Some(Identifier::ArmIdentifier(identifier)),
        features: Some(1),
        ..Cpu::default()
    };
    let offline = Cpu { capacity: Some(250), ..Cpu::default() };
    // What identifies it is not complete.
    let large = Cpu {
        frequencies: vec![500_000, 2_850_000, 3_100_000],
        capacity: Some(1024),
        features: Some(3),
        ..Cpu::default()
    };
    assert_eq!(cpus(&machine), [small, offline, large]);
}

#[test]
fn a_model_is_the_processor() {
    let machine = FakeMachine::new();
    machine.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu mte\n\n");
    assert_eq!(cpus(&machine), [Cpu { processor: Some("AMD EPYC".into()), ..Cpu::default() }]);
}

#[test]
fn what_is_missing_is_said() {
    let machine = FakeMachine::new();
    let (data, notices) = told(&machine, &SystemInfoConfig { irq_names: Some(true) });
    assert_eq!(data, []);
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(notices[0].starts_with("linux.system_info: cannot read /proc/cpuinfo ("), "{notices:?}");
    assert!(notices[1].contains("irq_names: cannot read /proc/interrupts ("), "{notices:?}");
}

#[test]
fn nonsense_is_no_cpu() {
    let machine = FakeMachine::new();
    for content in ["", "\n\n", "processor\t: -1\n\nprocessor\t: 4000000000\n\n", "processor", "a: b: c\n"] {
        machine.write("proc/cpuinfo", content);
        assert_eq!(cpus(&machine), [], "{content}");
    }
}

#[test]
fn names_of_interrupts() {
    let machine = FakeMachine::new();
    machine.write("proc/cpuinfo", "processor\t: 0\n\n");
    machine.write(
        "proc/interrupts",
        "            CPU0       CPU1\n\
         \x20 26:          0         14  IO-APIC   4-edge      ttyS0\n\
         \x20 36:          0    1086852 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0\n\
         \x20 13:       7000       8000     GICv3  27 Level     arch_timer\n\
         \x20 41:          0          3  cs40l26 IRQ1 Controller   5 Edge      cs40l26 wake, more\n\
         \x20 16:          1          2   IO-APIC  16-fasteoi   uhci_hcd:usb3, ehci\n\
         \x20 17:          1          2   chip  17  some_name\n\
         \x20 20:          1          2   chip  20  first, the second\n\
         \x20 21:          1          2   IO-APIC  21-edge   x-edge\n\
         \x20 22:          1          2   GICv3  22 Level   Water Level\n\
         \x20 18:          1          2   IO-APIC  18-edge\n\
         \x20 19:          1          2\n\
         NMI:          0          0   Non-maskable interrupts\n\
         ERR:          0\n",
    );
    let (data, notices) = told(&machine, &SystemInfoConfig { irq_names: Some(true) });
    let Data::InterruptInfo(info) = &data[1] else { panic!("{data:?}") };
    let names: Vec<_> = info.irq_mapping.iter().map(|irq| (irq.irq_id(), irq.name())).collect();
    assert_eq!(
        names,
        [
            (26, "ttyS0"),
            (36, "virtio1-req.0"),
            (13, "arch_timer"),
            (41, "cs40l26 wake, more"),
            (16, "uhci_hcd:usb3, ehci"),
            (17, "some_name"),
            (20, "first, the second"),
            (21, "x-edge"),
            (22, "Water Level"),
        ]
    );
    assert_eq!(notices, [] as [&str; 0]);
}

//! Description of the machine that a benchmark ran on.

use flowgauge_dataplane::poll::Instructions;
use serde::Serialize;
use std::fs;

/// Properties of this machine. Empty or `None` if the system does not report them.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Caches of the first processor, such as `L1 32K, L2 1024K, L3 32768K`.
    pub caches: String,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Name and release of the operating system's kernel.
    pub kernel: String,
    /// Whether it is a virtual machine, which shares its processor with others.
    pub virtual_machine: bool,
    /// Frequency governor of the processor.
    pub governor: Option<String>,
    /// Runnable tasks in the minute before the run. More than one disturb the benchmark.
    pub load: Option<f64>,
    /// Instruction set that workers use for distinct flows.
    pub instructions: &'static str,
    /// Version of flowgauge.
    pub version: &'static str,
    /// Whether flowgauge was compiled with optimizations.
    pub optimized: bool,
}

impl Machine {
    /// Describes this machine.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let processor = field(&processors, "model name")
            .or_else(|| field(&processors, "Model"))
            .unwrap_or("unknown")
            .to_owned();
        let memory = read("/proc/meminfo");
        let kibibytes = field(&memory, "MemTotal")
            .and_then(|size| size.trim_end_matches(" kB").parse::<u64>().ok());
        let trimmed = |path: &str| read(path).trim().to_owned();
        let governor = Some(trimmed("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
            .filter(|name| !name.is_empty());
        Machine {
            processor,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(),
            memory: kibibytes.map(|size| size * 1024),
            kernel: format!(
                "{} {}",
                trimmed("/proc/sys/kernel/ostype"),
                trimmed("/proc/sys/kernel/osrelease")
            ),
            virtual_machine: field(&processors, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor,
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            instructions: Instructions::in_use().name(),
            version: env!("CARGO_PKG_VERSION"),
            optimized: !cfg!(debug_assertions),
        }
    }

    /// Formats the description in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let gibibytes = |memory: u64| format!("{:.0} GiB", memory as f64 / f64::from(1 << 30));
        let parts = [
            Some(self.processor.clone()),
            Some(format!("{} CPUs", self.cpus)),
            Some(self.caches.clone()).filter(|caches| !caches.is_empty()),
            self.memory.map(gibibytes),
            Some(self.kernel.trim().to_owned()),
            self.virtual_machine.then(|| "virtual machine".to_owned()),
            self.governor.as_ref().map(|governor| format!("governor {governor}")),
            self.load.map(|load| format!("load {load}")),
            Some(format!("{} instructions", self.instructions)),
            Some(format!("flowgauge {}", self.version)),
            (!self.optimized).then(|| "not optimized".to_owned()),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Returns the value of the first line `name: value`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| {
        line.split_once(':').filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    text.lines().find_map(of)
}

fn caches() -> String {
    let describe = |index: usize| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            fs::read_to_string(path).map(|text| text.trim().to_owned()).ok()
        };
        let kind = read("type")?;
        (kind != "Instruction").then_some(format!("L{} {}", read("level")?, read("size")?))
    };
    (0..8).filter_map(describe).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_and_the_line_is_one() {
        assert_eq!(
            field("a: 1\nmodel name\t: Some Processor\nmodel name: other", "model name"),
            Some("Some Processor")
        );
        let line = Machine::look().line();
        assert!(
            line.contains("CPUs") && line.contains("flowgauge") && !line.contains('\n'),
            "{line}"
        );
    }
}

//! Arguments that DPDK is started with.

use crate::eal;

/// Returns DPDK's arguments to use one device: those that restrict it to this device and one core,
/// unless `given` chooses devices (`-a`, `-b`, `--no-pci`) or cores (`-l`, `-c`, `--lcores`), then
/// `given`, split at spaces.
#[must_use]
pub fn arguments(devargs: &str, given: &str) -> Vec<String> {
    let given: Vec<String> = given.split_ascii_whitespace().map(str::to_owned).collect();
    let has = |short: &[&str], long: &[&str]| {
        given.iter().any(|argument| {
            let name = argument.split('=').next().unwrap_or(argument);
            long.contains(&name)
                || short.iter().any(|short| !name.starts_with("--") && name.starts_with(short))
        })
    };
    let mut arguments = Vec::new();
    if !has(&["-a", "-b"], &["--allow", "--block", "--no-pci"]) {
        // Otherwise DPDK takes every card that it has a driver for.
        if is_pci_address(devargs) {
            arguments.extend(["-a".to_owned(), devargs.to_owned()]);
        } else {
            arguments.push("--no-pci".to_owned());
        }
    }
    if !has(&["-l", "-c", "-S"], &["--lcores"]) {
        // Workers are threads of this process; DPDK requires one thread of its own, which is idle.
        arguments.extend(eal::first_processor().map(|processor| format!("--lcores=0@{processor}")));
    }
    arguments.extend(given);
    arguments
}

/// Returns whether this begins with `[domain:]bus:device.function`.
fn is_pci_address(devargs: &str) -> bool {
    let name = devargs.split(',').next().unwrap_or(devargs);
    let name = name.strip_prefix("pci:").unwrap_or(name);
    let Some((device, function)) = name.rsplit_once('.') else { return false };
    let hexadecimal =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fields = device.split(':').count();
    (2..=3).contains(&fields) && device.split(':').all(hexadecimal) && hexadecimal(function)
}

//! Compiles the C side of the binding against the system's DPDK.

#[cfg(not(feature = "link"))]
fn main() {}

#[cfg(feature = "link")]
fn main() -> Result<(), String> {
    link::link()
}

#[cfg(feature = "link")]
mod link {
    use std::env;
    use std::process::Command;

    /// Libraries that inline functions in DPDK's headers call. DPDK finds drivers itself, in its
    /// plugin directory.
    const LIBRARIES: [&str; 5] = ["rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool", "rte_ring"];
    /// Oldest supported release.
    const OLDEST: &str = "22.11";
    /// First release with logging in a library of its own.
    const OWN_LOG: &str = "23.11";

    pub(crate) fn link() -> Result<(), String> {
        println!("cargo::rerun-if-changed=src/shim.c");
        println!("cargo::rerun-if-env-changed=PKG_CONFIG");
        println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
        pkg_config(&[&format!("--atleast-version={OLDEST}")])?;
        let mut shim = cc::Build::new();
        // Clean under our own warnings, which not every release of DPDK's headers is.
        shim.file("src/shim.c").std("gnu11").opt_level(3).warnings(false);
        pkg_config(&["--cflags"])?.split_ascii_whitespace().for_each(|flag| _ = shim.flag(flag));
        shim.try_compile("flowgauge_dpdk_shim")
            .map_err(|error| format!("cannot compile src/shim.c: {error}"))?;
        for directory in pkg_config(&["--libs-only-L"])?.split_ascii_whitespace() {
            println!("cargo::rustc-link-search=native={}", directory.trim_start_matches("-L"));
        }
        LIBRARIES.iter().for_each(|library| println!("cargo::rustc-link-lib=dylib={library}"));
        if pkg_config(&[&format!("--atleast-version={OWN_LOG}")]).is_ok() {
            println!("cargo::rustc-link-lib=dylib=rte_log");
        }
        Ok(())
    }

    fn pkg_config(arguments: &[&str]) -> Result<String, String> {
        let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
        let missing = |why: &str| {
            format!(
                "DPDK {OLDEST} or later was not found ({why}); `apt-get install libdpdk-dev pkg-config` (Debian, Ubuntu) or `dnf install dpdk-devel`"
            )
        };
        let output = Command::new(&program).args(arguments).arg("libdpdk").output();
        let output = output.map_err(|error| missing(&format!("{program}: {error}")))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(missing(said.lines().next().unwrap_or("it is older")))
        }
    }
}

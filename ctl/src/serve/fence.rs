//! Sandbox of the server threads.
//!
//! Capabilities and Landlock rules belong to a thread. A server thread, which parses untrusted
//! input, drops all of its rights; threads that attach programs and write files retain theirs.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
};

/// Drops all capabilities, and all access to the file system, to outgoing connections and to
/// further ports, for this thread and its children. Logs what the kernel does not support.
pub(super) fn enter(protocol: &str) {
    drop_capabilities();
    match restrict() {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(RulesetStatus::PartiallyEnforced) => {
            tracing::debug!(
                "this kernel fences the thread that answers over {protocol} in part (Landlock)"
            )
        }
        Ok(RulesetStatus::NotEnforced) => {
            tracing::debug!(
                "this kernel has no Landlock: the thread that answers over {protocol} is not fenced"
            )
        }
        Err(error) => {
            tracing::warn!("the thread that answers over {protocol} is not fenced: {error}")
        }
    }
}

/// Drops all capabilities of this thread and its children.
pub fn drop_capabilities() {
    use caps::CapSet::{Ambient, Effective, Inheritable, Permitted};
    for set in [Ambient, Effective, Inheritable, Permitted] {
        if let Err(error) = caps::clear(None, set) {
            let thread = std::thread::current();
            tracing::warn!(
                "the thread {} keeps its capabilities: {error}",
                thread.name().unwrap_or("without a name")
            );
        }
    }
}

fn restrict() -> Result<RulesetStatus, landlock::RulesetError> {
    // The newest version that all supported releases of the crate know; older kernels apply a
    // subset.
    let newest = ABI::V5;
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))?;
    let rules = rules.handle_access(AccessNet::from_all(newest))?.create()?;
    Ok(rules.restrict_self()?.ruleset)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use caps::CapSet;
    use flowgauge_testing::skip;
    use std::fs::File;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn a_thread_that_is_fenced_may_nothing_and_others_what_they_could() {
        let before = caps::read(None, CapSet::Permitted).unwrap();
        let fenced = thread::spawn(|| {
            enter("HTTP");
            let left = caps::read(None, CapSet::Permitted).unwrap();
            (
                left,
                File::open("/proc/self/status").is_err(),
                TcpListener::bind("127.0.0.1:0").is_err(),
            )
        });
        let (left, no_files, no_ports) = fenced.join().unwrap();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(caps::read(None, CapSet::Permitted).unwrap(), before);
        assert!(File::open("/proc/self/status").is_ok());
        let has_landlock = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessNet::from_all(ABI::V4));
        match has_landlock {
            Ok(_) => assert!(no_files && no_ports),
            Err(_) => skip("a kernel with Landlock's rules for files and ports (6.7)"),
        }
    }
}

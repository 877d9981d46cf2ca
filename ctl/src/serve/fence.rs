//! What the thread that answers may do: nothing but answer.
//!
//! Capabilities and Landlock's rules are those of a thread. The one that reads what strangers send
//! gives all of them up, while those that attach programs and write files keep theirs.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetStatus,
};

/// Takes all capabilities, all of the file system and all further connections and ports from this
/// thread and those that it begins; says how much of that the kernel does.
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

/// Takes all capabilities from this thread and those that it begins.
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
    // The newest that every release of the crate's knows; older kernels do what they can.
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

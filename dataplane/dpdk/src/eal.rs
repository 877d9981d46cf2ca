//! DPDK's environment, which starts once a process and ends with it, and the arguments that it starts
//! with.
#![allow(
    unsafe_code,
    reason = "starts DPDK and takes its log; this module holds what must be true for that"
)]

use crate::error::{Error, reason};
use crate::ffi;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Proof that DPDK runs in this process.
#[derive(Clone, Copy, Debug)]
pub struct Eal(());

static STARTED: Mutex<bool> = Mutex::new(false);

impl Eal {
    /// Starts DPDK with these arguments (those that every DPDK program takes, without the program's
    /// name). If this process has already started it, returns that one, whatever its arguments.
    ///
    /// The CPU affinity of the calling thread does not change.
    ///
    /// # Errors
    /// [`Error::Start`] with DPDK's message.
    pub fn start_once(arguments: &[impl AsRef<str>]) -> Result<Eal, Error> {
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !*started {
            start(arguments)?;
            *started = true;
        }
        Ok(Eal(()))
    }
}

/// Returns DPDK's name and release.
#[must_use]
pub fn version() -> String {
    // SAFETY: a string constant.
    unsafe { CStr::from_ptr(ffi::fg_version()) }.to_string_lossy().into_owned()
}

fn start(arguments: &[impl AsRef<str>]) -> Result<(), Error> {
    let refused = |_| Error::Start { why: "an argument holds a zero byte".to_owned() };
    let all = std::iter::once("flowgauge").chain(arguments.iter().map(AsRef::as_ref));
    let all: Vec<CString> = all.map(CString::new).collect::<Result<_, _>>().map_err(refused)?;
    let count = all.len() as c_int;
    // DPDK keeps pointers to its arguments, and reorders them; it starts once.
    let pointers: Vec<*mut c_char> =
        all.into_iter().map(CString::into_raw).chain([std::ptr::null_mut()]).collect();
    let pointers = Vec::leak(pointers);
    let affinity = Affinity::of_this_thread();
    // SAFETY: `count` pointers to strings that are never freed, then a null pointer; `log` has the
    // declared type. The lock of `STARTED` is held, so no other thread starts DPDK.
    let (code, said) = listen(|| unsafe { ffi::fg_init(count, pointers.as_mut_ptr(), log) });
    affinity.restore();
    if code < 0 { Err(Error::Start { why: reason(&said, code) }) } else { Ok(()) }
}

/// CPU affinity of a thread.
struct Affinity(Option<libc::cpu_set_t>);

impl Affinity {
    fn of_this_thread() -> Self {
        // SAFETY: a set is plain integers, and the kernel writes at most the given size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let got = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            Affinity((got == 0).then_some(set))
        }
    }

    /// DPDK binds the thread that starts it to one processor, and threads started from it would
    /// inherit that.
    fn restore(self) {
        if let Some(set) = self.0 {
            // SAFETY: the kernel reads a set of the given size. It returned this one before.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
        }
    }
}

/// Returns the first CPU that this thread may run on.
pub(crate) fn first_processor() -> Option<usize> {
    let Affinity(set) = Affinity::of_this_thread();
    // SAFETY: looks at bits of a set that was filled in, within its size.
    set.and_then(|set| {
        (0..libc::CPU_SETSIZE as usize)
            .find(|&processor| unsafe { libc::CPU_ISSET(processor, &set) })
    })
}

/// Lock of calls that open, close and configure devices: they must not run concurrently.
pub(crate) fn control() -> MutexGuard<'static, ()> {
    static CONTROL: Mutex<()> = Mutex::new(());
    CONTROL.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// Errors that DPDK logs in this thread; `None` unless they are collected.
    static HEARD: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Calls DPDK and returns the errors that it logged meanwhile.
pub(crate) fn listen<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    HEARD.set(Some(Vec::new()));
    let result = call();
    (result, HEARD.take().unwrap_or_default())
}

/// The least serious level that DPDK uses for errors, RTE_LOG_ERR.
const ERROR: u32 = 4;
const WARNING: u32 = 5;

extern "C" fn log(level: u32, text: *const c_char, length: usize) {
    // SAFETY: the stream's buffer, which holds `length` bytes while it is being written.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    for line in String::from_utf8_lossy(text).lines().map(str::trim).filter(|line| !line.is_empty())
    {
        let kept = level <= ERROR
            && HEARD
                .try_with(|heard| {
                    heard.borrow_mut().as_mut().map(|lines| lines.push(line.to_owned())).is_some()
                })
                .unwrap_or(false);
        match level {
            _ if kept => tracing::debug!("DPDK: {line}"),
            0..=ERROR => tracing::error!("DPDK: {line}"),
            WARNING => tracing::info!("DPDK: {line}"),
            _ => tracing::debug!("DPDK: {line}"),
        }
    }
}

thread_local! {
    static MEMBER: Member = Member::join();
}

/// Registration of a thread with DPDK, whose buffer pools have a cache for each thread.
struct Member(bool);

impl Member {
    fn join() -> Self {
        // SAFETY: DPDK runs, since a queue exists. A thread that gets no number (there are 128)
        // works, only slower.
        Member(unsafe { ffi::fg_register_thread() } == 0)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: this thread was registered by `join`, and it ends.
            unsafe { ffi::fg_unregister_thread() };
        }
    }
}

/// Registers this thread with DPDK, which must run.
#[inline]
pub(crate) fn join() {
    // Fails only while the thread ends.
    let _ = MEMBER.try_with(|_| ());
}

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
        arguments.extend(first_processor().map(|processor| format!("--lcores=0@{processor}")));
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

#[cfg(test)]
mod tests {
    use super::arguments;

    #[test]
    fn only_the_named_device_is_taken() {
        for (devargs, pci) in [
            ("0000:03:00.0", true),
            ("03:00.1,rx_burst=1", true),
            ("pci:0000:af:00.0", true),
            ("net_pcap0,rx_pcap=/tmp/a.b:c.0", false),
            ("net_null0", false),
            ("net_af_xdp0,iface=eth0:1.5", false),
            ("", false),
            ("0.0", false),
        ] {
            let expected: &[&str] = if pci { &["-a", devargs] } else { &["--no-pci"] };
            assert_eq!(
                arguments(devargs, "--in-memory --lcores=0"),
                [expected, &["--in-memory", "--lcores=0"]].concat()
            );
        }
    }

    #[test]
    fn given_arguments_hold() {
        assert_eq!(
            arguments("0000:03:00.0", "-b 0000:04:00.0 -l 1"),
            ["-b", "0000:04:00.0", "-l", "1"]
        );
        assert_eq!(
            arguments("net_null0", "--allow=0000:04:00.0 -l1-3"),
            ["--allow=0000:04:00.0", "-l1-3"]
        );
        let [bus, lcores, no_huge] = &arguments("net_null0", "--no-huge")[..] else {
            panic!("three arguments")
        };
        assert_eq!((&bus[..], &no_huge[..]), ("--no-pci", "--no-huge"));
        let processor: usize = lcores.strip_prefix("--lcores=0@").unwrap().parse().unwrap();
        assert!(processor < 1024);
    }
}

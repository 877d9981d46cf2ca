//! BPF classifiers on the `clsact` queueing discipline: the hook of kernels without TCX (before
//! Linux 6.6).
//!
//! Filters run in the order of their priorities; among filters of one priority, the most recently
//! added runs first. A direct-action classifier that returns `TC_ACT_UNSPEC` (-1, the same as
//! `TCX_NEXT`) passes the packet to the next filter.
//!
//! A filter has no `bpf_link`: it stays when its process ends. Its name, which `tc filter show`
//! prints, therefore contains its owner ([`FilterOwner`]), and whether flowgauge created the
//! queueing discipline. Filters of a killed process are found by that name; the filter of a
//! [pinned](super::pins) program is found by the program's ID.

use super::syscall;
use crate::Event;
use crate::interface::netlink::{
    NLM_F_CREATE, NLM_F_EXCL, QueryScope, ROUTE, RTM_GETQDISC, TCMSG, ask, attribute, change, find,
    word,
};
use crate::place::{CountingPoint, Direction};
use nix::errno::Errno;
use nix::net::if_::if_nameindex;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_CHAIN: u16 = 11;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
/// Direct action: the program's return value is the verdict.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// Handle and parent of the queueing disciplines `clsact` and `ingress`; an interface has at most
/// one of them.
const QDISC_HANDLE: u32 = 0xffff_0000;
const QDISC_PARENT: u32 = 0xffff_fff1;

/// Priority of the filters: before all others.
const PRIORITY: u16 = 1;
/// `ETH_P_ALL`.
const ALL_PROTOCOLS: u16 = 3;

/// Prefix of filter names, and the mark that follows if flowgauge created the queueing discipline.
const NAME: &str = "flowgauge";
const QDISC_MARK: &str = "+qdisc";
/// Maximum length of a path in a name, in bytes; the kernel accepts names of up to 255.
const MAX_PATH_BYTES: usize = 200;

fn parent(direction: Direction) -> u32 {
    match direction {
        Direction::Ingress => 0xffff_fff2,
        Direction::Egress => 0xffff_fff3,
    }
}

/// Encodes `struct tcmsg`.
fn message(index: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, index, handle, parent, info].into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// Returns priority and protocol of flowgauge's filters, as in `tcmsg`.
fn info() -> u32 {
    u32::from(PRIORITY) << 16 | u32::from(ALL_PROTOCOLS.to_be())
}

/// Encodes a text attribute, which ends with a zero.
fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

fn read_text(value: &[u8]) -> String {
    let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Name of a filter's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FilterOwner(String);

impl FilterOwner {
    /// Returns the owner for a filter that ends with this process.
    pub(super) fn process() -> Self {
        FilterOwner(format!("process {}", process(std::process::id()).unwrap_or_default()))
    }

    /// Returns the owner for a filter that outlives processes: the holder of the lock of this pin
    /// directory.
    pub(super) fn pins(directory: &Path) -> Self {
        let path = directory.to_string_lossy();
        let (path, _) = path.split_at(path.floor_char_boundary(MAX_PATH_BYTES));
        FilterOwner(format!("pins {path}"))
    }

    /// Returns whether the owner is a pin directory that does not exist.
    fn lacks_pins(&self) -> bool {
        let pins = self.0.strip_prefix("pins ").filter(|path| path.len() < MAX_PATH_BYTES);
        pins.is_some_and(|path| !Path::new(path).exists())
    }

    fn is_process(&self) -> bool {
        self.0.starts_with("process ")
    }

    /// Parses the owner from a filter's name; `None` if the filter is not flowgauge's.
    fn from_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(NAME)?;
        rest.strip_prefix(QDISC_MARK)
            .unwrap_or(rest)
            .strip_prefix(' ')
            .map(|owner| FilterOwner(owner.to_owned()))
    }

    fn name(&self, made_qdisc: bool) -> String {
        format!("{NAME}{} {}", if made_qdisc { QDISC_MARK } else { "" }, self.0)
    }

    /// Returns whether the owning process is gone; `None` if that is unknown.
    fn is_gone(&self) -> Option<bool> {
        let process_text = self.0.strip_prefix("process ")?;
        let (number, _) = process_text.split_once(' ')?;
        // In another PID namespace the number belongs to another process.
        let (_, namespace) = process_text.rsplit_once(' ')?;
        let number = number
            .parse()
            .ok()
            .filter(|_| pid_namespace().is_some_and(|own| namespace == own.to_string()))?;
        if kill(Pid::from_raw(number), None) == Err(Errno::ESRCH) {
            return Some(true);
        }
        // `/proc` may hide other users' processes.
        process(number.unsigned_abs()).map(|found| found != process_text)
    }
}

fn pid_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|namespace| namespace.ino())
}

/// Returns a unique identification of a process: its PID, start time (in ticks since boot) and PID
/// namespace.
fn process(number: u32) -> Option<String> {
    const START: usize = 19;
    let status = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let (_, fields) = status.rsplit_once(") ")?;
    Some(format!("{number} {} {}", fields.split(' ').nth(START)?, pid_namespace()?))
}

/// A filter of an interface, as the kernel reports it.
#[derive(Debug)]
struct Filter {
    priority: u16,
    handle: u32,
    chain: u32,
    /// ID of its program; 0 if it has none.
    program: u32,
    name: String,
}

impl Filter {
    fn parse(answer: &[u8]) -> Option<Self> {
        let field = |at: usize| answer.get(at..at + 4).and_then(word);
        let attributes = answer.get(TCMSG..)?;
        let options = find(attributes, TCA_OPTIONS).unwrap_or_default();
        let filter = Filter {
            priority: (field(16)? >> 16) as u16,
            handle: field(8)?,
            chain: find(attributes, TCA_CHAIN).and_then(word).unwrap_or(0),
            program: find(options, TCA_BPF_ID).and_then(word).unwrap_or(0),
            name: find(options, TCA_BPF_NAME).map(read_text).unwrap_or_default(),
        };
        // An entry without a handle is the container of filters of one priority.
        (filter.handle != 0).then_some(filter)
    }

    fn owner(&self) -> Option<FilterOwner> {
        FilterOwner::from_name(&self.name)
    }

    fn made_qdisc(&self) -> bool {
        self.owner().is_some_and(|owner| self.name == owner.name(true))
    }

    /// Removes the filter, and the queueing discipline if flowgauge created it and it has no other
    /// filters.
    fn remove(&self, index: u32, direction: Direction) -> io::Result<()> {
        let info = u32::from(self.priority) << 16 | u32::from(ALL_PROTOCOLS.to_be());
        let body =
            [message(index, self.handle, parent(direction), info), text(TCA_KIND, "bpf")].concat();
        change(ROUTE, RTM_DELTFILTER, 0, &body)?;
        if self.made_qdisc() { remove_unused_qdisc(index) } else { Ok(()) }
    }
}

/// Returns the filters of an interface with flowgauge's priority, in the order in which they run.
/// There may be thousands of other priorities.
fn filters(index: u32, direction: Direction) -> io::Result<Vec<Filter>> {
    dump(index, direction, info())
}

fn dump(index: u32, direction: Direction, info: u32) -> io::Result<Vec<Filter>> {
    let answers =
        ask(ROUTE, RTM_GETTFILTER, QueryScope::All, &message(index, 0, parent(direction), info))?;
    Ok(answers.iter().filter_map(|answer| Filter::parse(answer)).collect())
}

/// Returns the filters of an interface in both directions and of any priority.
fn all_filters(index: u32) -> io::Result<Vec<Filter>> {
    let mut all = dump(index, Direction::Ingress, 0)?;
    all.extend(dump(index, Direction::Egress, 0)?);
    Ok(all)
}

/// Returns the kind of the queueing discipline that contains an interface's filters: `clsact` or
/// `ingress`.
fn qdisc(index: u32) -> io::Result<Option<String>> {
    let answers = ask(ROUTE, RTM_GETQDISC, QueryScope::All, &message(index, 0, 0, 0))?;
    let kind = |answer: &Vec<u8>| {
        let field = |at: usize| answer.get(at..at + 4).and_then(word);
        let is_it = field(4) == Some(index) && field(12) == Some(QDISC_PARENT);
        find(answer.get(TCMSG..)?, TCA_KIND).filter(|_| is_it).map(read_text)
    };
    Ok(answers.iter().find_map(kind))
}

fn qdisc_request(index: u32) -> Vec<u8> {
    [message(index, QDISC_HANDLE, QDISC_PARENT, 0), text(TCA_KIND, "clsact")].concat()
}

/// Creates the queueing discipline if it is missing. Returns whether it did.
fn make_qdisc(index: u32, direction: Direction) -> io::Result<bool> {
    match change(ROUTE, RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, &qdisc_request(index)) {
        Ok(()) => return Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            return Err(io::Error::other(
                "the kernel has no clsact queueing discipline (module sch_ingress)",
            ));
        }
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
        Err(_) => {}
    }
    // `ingress` accepts filters of the other direction, but runs them on arriving packets.
    if direction == Direction::Egress && qdisc(index)?.as_deref() == Some("ingress") {
        let advice = "`tc qdisc del dev … ingress` and `tc qdisc add dev … clsact` replace it";
        return Err(io::Error::other(format!(
            "its queueing discipline 'ingress' sees no packets that leave; {advice}"
        )));
    }
    Ok(false)
}

/// Removes the queueing discipline if it has no filters. A filter added by another program between
/// check and removal is lost: the kernel has no call for both.
fn remove_unused_qdisc(index: u32) -> io::Result<()> {
    if all_filters(index)?.is_empty() {
        change(ROUTE, RTM_DELQDISC, 0, &qdisc_request(index))
    } else {
        Ok(())
    }
}

/// A program attached to an interface as a filter. Removed on drop, unless pins own it.
pub(super) struct Classifier {
    index: u32,
    direction: Direction,
    owner: FilterOwner,
    /// Reference that prevents reuse of the program's ID.
    program: OwnedFd,
    number: u32,
    /// Whether flowgauge created the queueing discipline.
    made_qdisc: bool,
}

impl Classifier {
    /// Attaches a program before all filters, creating the queueing discipline if it is missing.
    pub(super) fn attach(
        program: BorrowedFd<'_>,
        index: u32,
        direction: Direction,
        owner: FilterOwner,
    ) -> io::Result<Self> {
        let program = program.try_clone_to_owned()?;
        let number = syscall::program_number(&program)?;
        let mut classifier =
            Classifier { index, direction, owner, program, number, made_qdisc: false };
        classifier.attach_again()?;
        Ok(classifier)
    }

    /// Opens a program that is or was attached.
    pub(super) fn open(
        program: OwnedFd,
        index: u32,
        direction: Direction,
        owner: FilterOwner,
    ) -> io::Result<Self> {
        let number = syscall::program_number(&program)?;
        let filters = filters(index, direction)?;
        let made_qdisc =
            filters.iter().any(|filter| filter.program == number && filter.made_qdisc());
        Ok(Classifier { index, direction, owner, program, number, made_qdisc })
    }

    /// Attaches the program again after its filter was removed.
    pub(super) fn attach_again(&mut self) -> io::Result<()> {
        let made = make_qdisc(self.index, self.direction)?;
        self.made_qdisc =
            self.made_qdisc || made || all_filters(self.index)?.iter().any(Filter::made_qdisc);
        self.add().inspect_err(|_| {
            if made && let Err(error) = remove_unused_qdisc(self.index) {
                tracing::debug!("clsact of interface {} stays: {error}", self.index);
            }
        })
    }

    fn add(&self) -> io::Result<()> {
        let options = [
            attribute(TCA_BPF_FD, &self.program.as_raw_fd().to_ne_bytes()),
            text(TCA_BPF_NAME, &self.owner.name(self.made_qdisc)),
            attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes()),
        ];
        let attributes = [text(TCA_KIND, "bpf"), attribute(TCA_OPTIONS, &options.concat())];
        let body =
            [message(self.index, 0, parent(self.direction), info()), attributes.concat()].concat();
        let added = change(ROUTE, RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, &body);
        added.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => io::Error::other("the kernel has no BPF classifier (module cls_bpf)"),
            Some(libc::EINVAL) => io::Error::other(format!(
                "{error}; if a filter of another kind or protocol has priority {PRIORITY} (`tc filter show`), give that one another priority"
            )),
            _ => error,
        })
    }

    /// Returns the ID of the program.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn program(&self) -> &OwnedFd {
        &self.program
    }

    fn is_it(&self, filter: &Filter) -> bool {
        filter.program == self.number
    }

    /// Returns the interface's index; `None` once the filter or the interface was removed.
    pub(super) fn attached_to(&self) -> io::Result<Option<u32>> {
        let found = filters(self.index, self.direction)?.iter().any(|filter| self.is_it(filter));
        Ok(found.then_some(self.index))
    }

    /// Returns the IDs of the programs that run before this one; 0 for a filter without a program.
    pub(super) fn before(&self) -> io::Result<Vec<u32>> {
        let filters = filters(self.index, self.direction)?;
        let before = filters
            .iter()
            .filter(|filter| filter.chain == 0)
            .take_while(|filter| !self.is_it(filter));
        Ok(before.map(|filter| filter.program).collect())
    }

    /// Removes the filter, if it exists.
    pub(super) fn detach(&self) -> io::Result<()> {
        let filters = filters(self.index, self.direction)?;
        filters
            .iter()
            .filter(|filter| self.is_it(filter))
            .try_for_each(|filter| filter.remove(self.index, self.direction))
    }
}

impl Drop for Classifier {
    fn drop(&mut self) {
        if self.owner.is_process()
            && let Err(error) = self.detach()
        {
            tracing::warn!(
                "cannot remove the filter of interface {}: {error}; `flowgauge detach` does",
                self.index
            );
        }
    }
}

/// Removes filters at a counting point whose process is dead, and those of these pins except for
/// one program; the caller has the pins' lock. Returns what to report.
pub(super) fn clean(
    place: &CountingPoint,
    index: u32,
    pins: Option<&Path>,
    except: Option<u32>,
) -> Vec<Event> {
    let pins = pins.map(FilterOwner::pins);
    let mut events = Vec::new();
    for filter in filters(index, place.direction).unwrap_or_default() {
        let Some(owner) = filter.owner().filter(|_| Some(filter.program) != except) else {
            continue;
        };
        let gone = if Some(&owner) == pins.as_ref() { Some(true) } else { owner.is_gone() };
        let notice = match gone {
            Some(true) => match filter.remove(index, place.direction) {
                Ok(()) => {
                    "the filter that a killed flowgauge left is removed; what it counted is dropped"
                        .to_owned()
                }
                Err(error) => {
                    format!("cannot remove the filter that a killed flowgauge left: {error}")
                }
            },
            Some(false) => continue,
            None => {
                let (name, interface) = (&filter.name, &place.interface);
                format!(
                    "another flowgauge's filter is attached as well ('{name}'); if that one is gone, `flowgauge detach -i {interface}` \
                     removes it"
                )
            }
        };
        events.push(Event::Notice(format!("{place}: {notice}")));
    }
    events
}

/// Returns the filters in this network namespace whose process is not known to run and whose pins
/// do not exist, with their counting points.
fn orphans(interface: Option<&str>) -> Vec<(CountingPoint, u32, Filter)> {
    let mut orphans = Vec::new();
    for found in if_nameindex().iter().flat_map(|interfaces| interfaces.iter()) {
        let name = found.name().to_string_lossy().into_owned();
        if interface.is_some_and(|interface| interface != name) {
            continue;
        }
        for direction in Direction::ALL {
            for filter in filters(found.index(), direction).unwrap_or_default() {
                let is_orphan = |owner: FilterOwner| {
                    if owner.is_process() {
                        owner.is_gone() != Some(false)
                    } else {
                        owner.lacks_pins()
                    }
                };
                if filter.owner().is_some_and(is_orphan) {
                    orphans.push((
                        CountingPoint { interface: name.clone(), direction },
                        found.index(),
                        filter,
                    ));
                }
            }
        }
    }
    orphans
}

/// Returns the counting points of orphaned filters.
pub(super) fn left() -> Vec<CountingPoint> {
    orphans(None).into_iter().map(|(place, ..)| place).collect()
}

/// Removes orphaned filters, of one interface or of all. Returns their counting points.
pub(super) fn remove_left(interface: Option<&str>) -> io::Result<Vec<CountingPoint>> {
    orphans(interface)
        .into_iter()
        .map(|(place, index, filter)| filter.remove(index, place.direction).map(|()| place))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_owner() {
        for owner in [
            FilterOwner::process(),
            FilterOwner::pins(Path::new("/sys/fs/bpf/flow gauge/egress-3-1")),
        ] {
            for made in [false, true] {
                assert_eq!(FilterOwner::from_name(&owner.name(made)), Some(owner.clone()));
            }
        }
        for other in ["", "flowgauge_tcx:[7]", "flowgauge", "flowgauge+qdisc", "cil_from_netdev"] {
            assert_eq!(FilterOwner::from_name(other), None, "{other}");
        }
        let long = FilterOwner::pins(Path::new(&"ä".repeat(1000)));
        assert!(long.name(true).len() < 256);
    }

    #[test]
    fn a_process_is_gone_only_if_that_can_be_known() {
        let own = FilterOwner::process();
        assert_eq!(own.is_gone(), Some(false));
        let FilterOwner(text) = &own;
        let words: Vec<&str> = text.split(' ').collect();
        let [_, number, start, namespace] = words[..] else { panic!("{text}") };
        assert_eq!(
            FilterOwner(format!("process {number} {start}0 {namespace}")).is_gone(),
            Some(true),
            "the number was given again"
        );
        assert_eq!(FilterOwner(format!("process {number} {start} {namespace}0")).is_gone(), None);
        assert_eq!(FilterOwner::pins(Path::new("/x")).is_gone(), None);
        assert_eq!(FilterOwner("process ".to_owned()).is_gone(), None);
    }

    #[test]
    fn damaged_answers_are_no_filters() {
        let whole =
            [message(3, 7, parent(Direction::Egress), info()), text(TCA_KIND, "bpf")].concat();
        assert!(
            Filter::parse(&whole).is_some_and(|filter| (filter.priority, filter.handle) == (1, 7))
        );
        for length in 0..TCMSG {
            assert!(Filter::parse(&whole[..length]).is_none());
        }
        let holder = message(3, 0, parent(Direction::Egress), info());
        assert!(Filter::parse(&holder).is_none());
    }
}

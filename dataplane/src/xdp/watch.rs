//! Supervision of a counting program: whether it is still attached, sees all packets, and runs
//! before other programs.
//!
//! Problems are repaired where possible, and reported. A window in which packets may have been
//! missed is marked.

use super::Mode;
use super::attach::{AttachRefusal, LoadedPrograms, attach, put};
use super::hook::{AttachedHook, Hook, LastCheck, ProgramSource, ProgramState};
use super::link::{Attachment, Departure, ProgramLink};
use super::object;
use super::refusal::refused;
use crate::Event;
use crate::error::Error;
use crate::interface::{Departures, Interface, device};
use crate::open_files::advice;
use crate::place::CountingPoint;
use std::io;
use std::time::{Duration, Instant};

/// Checks, about ten a second, between two attempts to attach a program again.
const RETRY_CHECKS: u32 = 10;
/// Maximum times that a program is moved before others attached later: two programs that both
/// insist on being first would never stop.
const MAX_CONTESTS: u32 = 3;

/// Formats a duration for people.
fn lasted(time: Duration) -> String {
    let milliseconds = time.as_millis();
    if milliseconds < 10_000 {
        format!("{milliseconds} ms")
    } else {
        format!("{} s", time.as_secs())
    }
}

/// Descriptions of an interface that left this network namespace.
pub(super) const GONE: &str = "the interface is gone, and the program with it";
pub(super) const MOVED: &str =
    "the interface moved to another network namespace; the program was removed from it";

/// Describes an interface that moved, and that the program cannot be removed from.
pub(super) fn not_removed(error: &io::Error) -> String {
    format!(
        "the interface moved to another network namespace, and the program cannot be removed from it: {error}; end flowgauge to \
         remove it"
    )
}

impl Hook {
    /// Checks the program. `departures` are the interfaces that left since the last check; events
    /// are added to `events`.
    pub(super) fn look(
        &mut self,
        from: ProgramSource<'_>,
        departures: &Departures,
        events: &mut Vec<Event>,
    ) {
        let before = std::mem::replace(&mut self.last_check.at, Instant::now());
        let has_left = departures.has(self.note.interface_index);
        if self.state == ProgramState::Gone {
            if has_left {
                // It was back in the meantime, and was not counted.
                self.mark_gap();
            }
            self.return_to(before, from, events);
            return;
        }
        let name = match device::name(self.note.interface_index) {
            Ok(name) => name,
            Err(_) if has_left => None,
            // The last known state holds.
            Err(error) => return self.cannot_look(&error, events),
        };
        self.last_check.unseen = false;
        let Some(name) = name else { return self.leave(events) };
        if has_left {
            // It is back already.
            self.leave(events);
            self.return_to(before, from, events);
            return;
        }
        self.follow_announcements(departures, events);
        self.remember_losses();
        if name != self.last_check.name {
            let kept = &self.place.interface;
            events.push(Event::Notice(format!(
                "{}: the interface is called {name} now; records go on calling it {kept}",
                self.last_check.name
            )));
            self.last_check.name = name;
        }
        self.follow_state(events);
        if self.follow_link(before, from, events) {
            self.follow_order(before, from, events);
            self.follow_queues(before, from, events);
            self.follow_pins(events);
        }
    }

    /// Stops counting at an interface that left the network namespace.
    fn leave(&mut self, events: &mut Vec<Event>) {
        self.state = ProgramState::Gone;
        self.last_check.looks = 0;
        self.mark_gap();
        let what = match self.link.as_ref().map_or(Departure::Gone, ProgramLink::leave) {
            Departure::Gone => GONE.to_owned(),
            Departure::Moved => format!("{MOVED}, and this window may have packets from there"),
            Departure::Attached(error) => not_removed(&error),
        };
        events.push(Event::Warning(format!("{}: {what}", self.place)));
    }

    /// Marks the window if it is unknown whether the interface was in another network namespace.
    fn follow_announcements(&mut self, departures: &Departures, events: &mut Vec<Event>) {
        let is_unknown = self.may_have_left(departures);
        if is_unknown {
            self.mark_gap();
        }
        if is_unknown && !self.last_check.unannounced {
            events.push(Event::Warning(format!(
                "{}: the kernel dropped notifications of interface changes; if the interface was in another network namespace meanwhile, \
                 this window has packets from there",
                self.place
            )));
        }
        self.last_check.unannounced = is_unknown;
    }

    /// Reports once that the interface cannot be checked.
    fn cannot_look(&mut self, error: &io::Error, events: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.last_check.unseen, true) {
            events.push(Event::Notice(format!(
                "{}: cannot check whether the interface is there: {error}{}",
                self.place,
                advice(Some(error))
            )));
        }
    }

    /// Starts to count at an interface once it exists.
    pub(super) fn wait_for_interface(
        &mut self,
        events: &mut Vec<Event>,
        attached: impl FnOnce(&CountingPoint) -> Result<AttachedHook, Error>,
    ) {
        match device::index(&self.place.interface) {
            Ok(Some(_)) => {}
            Ok(None) => {
                self.last_check.looks = 0;
                return;
            }
            Err(error) => return self.cannot_look(&error, events),
        }
        self.mark_gap();
        let is_first = self.last_check.looks == 0;
        self.last_check.looks += 1;
        if self.last_check.looks % RETRY_CHECKS != 1 {
            return;
        }
        match attached(&self.place) {
            Ok(hooked) => {
                events.extend(hooked.events);
                events.push(Event::Warning(format!(
                    "{}: the interface is there, and counted from now on",
                    self.place
                )));
                *self = hooked.hook;
                self.mark_gap();
            }
            Err(error) if is_first => {
                events.push(Event::Warning(format!(
                    "{}: the interface is there, but is not counted: {error}",
                    self.place
                )));
            }
            Err(_) => {}
        }
    }

    /// Resumes counting if an interface that was gone exists again.
    fn return_to(&mut self, before: Instant, from: ProgramSource<'_>, events: &mut Vec<Event>) {
        let index = match device::index(&self.place.interface) {
            Ok(Some(index)) => index,
            Ok(None) => {
                self.last_check.looks = 0;
                return;
            }
            Err(error) => return self.cannot_look(&error, events),
        };
        self.mark_gap();
        let tried = self.last_check.looks > 0;
        self.last_check.looks += 1;
        if self.last_check.looks % RETRY_CHECKS != 1 {
            return;
        }
        match self.begin_again(index, from) {
            Ok(()) => {
                self.state = ProgramState::Counting;
                self.last_check = LastCheck::at(&self.place.interface);
                let missed = if tried {
                    "until now".to_owned()
                } else {
                    format!("in up to {} before", lasted(before.elapsed()))
                };
                events.push(Event::Warning(format!(
                    "{}: the interface is there again, and counted again; what crossed it {missed} is missing",
                    self.place
                )));
            }
            Err(error) if !tried => {
                events.push(Event::Warning(format!(
                    "{}: the interface is there again, but is not counted: {error}",
                    self.place
                )));
            }
            Err(_) => {}
        }
    }

    /// Checks that the pins still exist, and restores them.
    fn follow_pins(&mut self, events: &mut Vec<Event>) {
        match self.mend_pins() {
            Ok(false) => {}
            Ok(true) => {
                self.last_check.unpinned = false;
                events.push(Event::Notice(format!(
                    "{}: pins were removed by others and are restored; no packet is missing",
                    self.place
                )));
            }
            Err(error) if !std::mem::replace(&mut self.last_check.unpinned, true) => {
                let what = "pins were removed by others: if this process is killed, its counts end with it";
                events.push(Event::Notice(format!("{}: {what} ({error})", self.place)));
            }
            Err(_) => {}
        }
    }

    /// Checks whether the interface is up.
    fn follow_state(&mut self, events: &mut Vec<Event>) {
        let running =
            Interface::new(&self.last_check.name).ok().and_then(|interface| interface.is_running());
        if let Some(running) = running
            && std::mem::replace(&mut self.last_check.running, running) != running
        {
            let change = if running { "is up again" } else { "is down; no packets cross it" };
            events.push(Event::Notice(format!("{}: {change}", self.last_check.name)));
        }
    }

    /// Checks that the program is attached, and attaches it again if not. Returns whether it was
    /// attached all the time.
    fn follow_link(
        &mut self,
        before: Instant,
        from: ProgramSource<'_>,
        events: &mut Vec<Event>,
    ) -> bool {
        let found = self.link.as_ref().map(ProgramLink::attachment);
        let here = Some(self.note.interface_index);
        let what = match found {
            Some(Ok(Attachment { index, program, .. }))
                if index == here && Some(program) == self.program =>
            {
                self.state = ProgramState::Counting;
                return true;
            }
            // The kernel does not report it: the last known state holds.
            Some(Err(_)) => return false,
            Some(Ok(Attachment { index: Some(_), program, .. })) => {
                format!("program {program} was put in its place")
            }
            Some(Ok(Attachment { index: None, .. })) | None => {
                "it was detached from outside".to_owned()
            }
        };
        self.mark_gap();
        let (since, looks) = match self.state {
            ProgramState::Lost { since, looks } => (since, looks + 1),
            _ => (before, RETRY_CHECKS),
        };
        if looks < RETRY_CHECKS {
            self.state = ProgramState::Lost { since, looks };
            return false;
        }
        let reported = self.state != ProgramState::Counting;
        match self.attach_again(from) {
            Ok(()) => {
                self.state = ProgramState::Counting;
                let missed = lasted(since.elapsed());
                let cause = if reported { String::new() } else { format!(" ({what})") };
                events.push(Event::Warning(format!(
                    "{}: its program was not attached{cause}; it is again, and packets of up to {missed} are missing",
                    self.place
                )));
            }
            Err(error) => {
                self.state = ProgramState::Lost { since, looks: 0 };
                if !reported {
                    events.push(Event::Warning(format!(
                        "{}: its program is not attached any more ({what}) and cannot be attached again: {error}; packets are not \
                         counted",
                        self.place
                    )));
                }
            }
        }
        false
    }

    /// Attaches the program again: by its own link if it still exists, otherwise by a new one. A
    /// filter is recreated with its program. If the program does not exist any more, or the
    /// interface takes it no more, another one is loaded.
    pub(super) fn attach_again(&mut self, from: ProgramSource<'_>) -> Result<(), Error> {
        let (program, index) = (self.program, self.note.interface_index);
        let (direction, mode) = (self.place.direction, self.mode);
        let Some(link) = &mut self.link else { return self.attach_another(from) };
        match link.attach_again(program, index, direction, mode).map_err(AttachRefusal::Attaching) {
            Ok(()) => self.pin_link(),
            Err(refusal) if mode != Mode::Clsact && refusal.is_about_pieces() => {
                self.attach_another(from)
            }
            Err(refusal) => Err(refusal.into_error(&self.place, mode)),
        }
    }

    /// Loads programs, or one for the present set, and attaches one of them, in place of the
    /// attached one if there is one.
    fn attach_another(&mut self, from: ProgramSource<'_>) -> Result<(), Error> {
        let mut programs = match self.member.take() {
            Some(member) => LoadedPrograms::OfSet(member),
            None => LoadedPrograms::Own(self.load(from)?),
        };
        let (mode, layer, options) = (self.mode, self.layer, from.options);
        let index = self.note.interface_index;
        let is_here = self.is_attached();
        let outcome = if let Some(link) = self.link.as_mut().filter(|_| is_here) {
            put(layer, mode, options, &mut programs, link)
        } else {
            let pins = self.pins.as_ref();
            attach(&self.place, index, layer, mode, options, &mut programs, pins)
                .map(|link| self.link = Some(link))
        };
        let own = match programs {
            LoadedPrograms::Own(own) => Some(own),
            LoadedPrograms::OfSet(member) => {
                self.member = Some(member);
                None
            }
        };
        outcome.map_err(|refusal| refusal.into_error(&self.place, mode))?;
        let attachment = self.link.as_ref().and_then(|link| link.attachment().ok());
        self.program = attachment.map(|attachment| attachment.program);
        self.form = self.program.and_then(object::form);
        if let Some(own) = own {
            self.keep_arrays_of(own, &options.settings);
        }
        self.pin_link()
    }

    /// Checks for programs attached before this one, which may drop packets before it.
    fn follow_order(&mut self, before: Instant, from: ProgramSource<'_>, events: &mut Vec<Event>) {
        if self.mode.is_xdp() {
            return;
        }
        let Some(link) = &self.link else { return };
        let others =
            link.before(self.note.interface_index, self.place.direction).unwrap_or_default();
        if others.is_empty() {
            self.last_check.before.clear();
            return;
        }
        self.mark_gap();
        let known = others == self.last_check.before;
        let names = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let came = format!(
            "{}: another program (number {names}) was attached before this one",
            self.place
        );
        if self.last_check.contests == MAX_CONTESTS {
            if !known {
                events.push(Event::Warning(format!(
                    "{came} again and again; what it does not let pass is not counted"
                )));
            }
            self.last_check.before = others;
            return;
        }
        self.last_check.contests += 1;
        // The kernel accepts a program only once per hook, so it must be detached before it is
        // attached in front of the others.
        let moved = self.link.as_ref().map_or(Ok(()), |link| {
            link.detach().map_err(|error| {
                refused(&self.place, format!("cannot detach the program: {error}"))
            })
        });
        match moved.and_then(|()| self.attach_again(from)) {
            Ok(()) => {
                let missed = lasted(before.elapsed());
                events.push(Event::Warning(format!(
                    "{came}; this one is the first again, and what the other did not let pass in up to {missed} is missing"
                )));
            }
            Err(error) => {
                self.state = ProgramState::Lost { since: before, looks: 0 };
                events.push(Event::Warning(format!(
                    "{came}; attaching this program again failed: {error}; packets are not counted"
                )));
            }
        }
    }

    /// Checks for more receive queues: a veth device runs no program on those it gains later.
    fn follow_queues(&mut self, before: Instant, from: ProgramSource<'_>, events: &mut Vec<Event>) {
        if self.mode != Mode::Native {
            return;
        }
        let Ok(interface) = Interface::new(&self.last_check.name) else { return };
        let queues = interface.receive_queues();
        let earlier = std::mem::replace(&mut self.last_check.queues, queues);
        if queues <= earlier {
            return;
        }
        self.mark_gap();
        let now = format!("{}: has {queues} receive queues now instead of {earlier}", self.place);
        // The kernel ignores a replacement by the same program, so another copy is loaded. The
        // other queues keep the present one meanwhile.
        match self.attach_another(from) {
            Ok(()) => {
                let missed = lasted(before.elapsed());
                events.push(Event::Warning(format!(
                    "{now}; all are counted, but what came to the new ones in up to {missed} before may be missing"
                )));
            }
            Err(error) => {
                // Try again at the next check.
                self.last_check.queues = earlier;
                if !matches!(events.last(), Some(Event::Warning(last)) if last.starts_with(&now)) {
                    events.push(Event::Warning(format!(
                        "{now}, and packets of the new ones are not counted: {error}"
                    )));
                }
            }
        }
    }
}

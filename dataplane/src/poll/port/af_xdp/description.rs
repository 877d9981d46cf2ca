//! Description of an AF_XDP port: `IFACE[:QUEUES][,OPTION=VALUE]…`.

use crate::xdp::Mode;
use crate::xdp::redirect::QUEUES;
use std::fmt;
use std::str::FromStr;

/// Transfer of packets from the driver into a socket's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// Zero copy if the driver supports it.
    #[default]
    Auto,
    /// Copied by the kernel: works with every driver.
    Copy,
    /// Written by the driver directly.
    ZeroCopy,
}

impl Copies {
    /// All variants.
    pub const ALL: [Copies; 3] = [Copies::Auto, Copies::Copy, Copies::ZeroCopy];

    /// Returns the name used in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Copies::Auto => "auto",
            Copies::Copy => "copy",
            Copies::ZeroCopy => "zero-copy",
        }
    }
}

/// A description of an AF_XDP port, for example `eth1:4,mode=copy,xdp=skb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AfXdp {
    /// Name of the interface.
    pub interface: String,
    /// Receive queues, from 0 on; `None` for all present and future ones.
    pub queues: Option<u32>,
    /// Transfer of packets into the frames.
    pub copies: Copies,
    /// XDP mode of the program that redirects packets: native or skb.
    pub xdp: Mode,
    /// Whether workers poll the driver themselves instead of waiting for its interrupts.
    pub busy_poll: bool,
    /// Frames per queue: a power of two.
    pub frames: u32,
    /// Whether to count even if the host has addresses on the interface; it will not receive their
    /// packets.
    pub from_host: bool,
}

const FRAMES: u32 = 4096;
const OPTIONS: &str = "mode=auto|copy|zero-copy, xdp=native|skb, frames=N (a power of two from 64 to 65536), busy-poll, from-host";

impl AfXdp {
    /// Describes all receive queues of an interface, with default options.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        AfXdp {
            interface: interface.to_owned(),
            queues: None,
            copies: Copies::Auto,
            xdp: Mode::Native,
            busy_poll: false,
            frames: FRAMES,
            from_host: false,
        }
    }

    fn set(&mut self, option: &str) -> Option<()> {
        match option.split_once('=').unwrap_or((option, "")) {
            ("mode", name) => {
                self.copies = Copies::ALL.into_iter().find(|copies| copies.name() == name)?
            }
            ("xdp", name) => {
                self.xdp = [Mode::Native, Mode::Skb].into_iter().find(|mode| mode.name() == name)?
            }
            ("frames", number) => {
                self.frames = number.parse().ok().filter(|frames: &u32| {
                    frames.is_power_of_two() && (64..=65536).contains(frames)
                })?;
            }
            ("busy-poll", "") => self.busy_poll = true,
            ("from-host", "") => self.from_host = true,
            _ => return None,
        }
        Some(())
    }
}

impl FromStr for AfXdp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',').map(str::trim);
        let place = parts.next().unwrap_or_default();
        let (interface, queues) = match place.split_once(':') {
            None => (place, None),
            Some((interface, queues)) => {
                let wanted = || {
                    format!(
                        "'{queues}' is not a number of receive queues; give 1 to {QUEUES}, or leave it out for all"
                    )
                };
                let queues: u32 = queues.parse().map_err(|_| wanted())?;
                if !(1..=QUEUES).contains(&queues) {
                    return Err(wanted());
                }
                (interface, Some(queues))
            }
        };
        if interface.is_empty() {
            return Err("name an interface, such as af_xdp:eth1".to_owned());
        }
        let mut description = AfXdp { queues, ..AfXdp::new(interface) };
        for part in parts {
            description.set(part).ok_or_else(|| {
                format!("'{part}' is not an option of af_xdp; options are {OPTIONS}")
            })?;
        }
        Ok(description)
    }
}

impl fmt::Display for AfXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.interface)?;
        if let Some(queues) = self.queues {
            write!(f, ":{queues}")?;
        }
        if self.copies != Copies::Auto {
            write!(f, ",mode={}", self.copies.name())?;
        }
        if self.xdp != Mode::Native {
            write!(f, ",xdp={}", self.xdp.name())?;
        }
        if self.frames != FRAMES {
            write!(f, ",frames={}", self.frames)?;
        }
        for (set, name) in [(self.busy_poll, "busy-poll"), (self.from_host, "from-host")] {
            if set {
                write!(f, ",{name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_round_trip_and_bad_ones_say_why() {
        for text in [
            "eth1",
            "eth0.7:4",
            "rx:1,mode=copy,xdp=skb,frames=64,busy-poll,from-host",
            "rx,mode=zero-copy",
        ] {
            assert_eq!(text.parse::<AfXdp>().unwrap().to_string(), text);
        }
        let (written, meant) = ("rx,mode=auto,xdp=native,frames=4096", AfXdp::new("rx"));
        assert_eq!(written.parse(), Ok(meant));
        for (text, part) in [
            ("", "name an interface"),
            (":2", "name an interface"),
            ("rx:0", "1 to 1024"),
            ("rx:all", "is not a number"),
            ("rx:1025", "1 to 1024"),
            ("rx,frames=100", "power of two"),
            ("rx,frames=32", "64 to 65536"),
            ("rx,xdp=offload", "native|skb"),
            ("rx,mode=fast", "auto|copy|zero-copy"),
            ("rx,busy-poll=5", "options are"),
        ] {
            let problem = text.parse::<AfXdp>().unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}

//! `flowgauge generate`: synthetic traffic as a capture file.

use crate::error::Failure;
use crate::progress;
use clap::Args;
use flowgauge_dataplane::capture::{Writer, link_type};
use flowgauge_dataplane::traffic::{Generator, Profile, ProfileError};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

const DEFAULT_PACKETS: u64 = 132_000;
const PROGRESS_EVERY: u64 = 1 << 16;

/// Write synthetic traffic to a capture file (pcap, nanoseconds).
///
/// The same profile gives the same packets every time. Without packets=N it writes 132,000 packets, 22 minutes at the default
/// 100 packets per second, as in the W-HLL thesis.
///
/// Profiles: unique (every packet a new source), sequential, subnets, zipf, burst. Options: rate=PPS, packets=N, size=BYTES,
/// seed=N, vlan=ID, ipv6, burst=SHARE, period=TIME; for zipf and burst also flows=N and alpha=A.
#[derive(Args)]
#[command(after_help = "Examples:
  flowgauge generate unique --to thesis.pcap
  flowgauge generate zipf,flows=200k,alpha=1.2,packets=2M,rate=100k --to zipf.pcap
  flowgauge generate burst,packets=1M,rate=10k --to - | flowgauge replay - --truth")]
pub(crate) struct Generate {
    /// The traffic: PROFILE[,OPTION=VALUE]…
    #[arg(value_name = "PROFILE", value_parser = profile)]
    profile: Profile,

    /// The file to write; - for standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

fn profile(text: &str) -> Result<Profile, String> {
    let profile: Profile = text.parse().map_err(|error: ProfileError| error.to_string())?;
    if profile.rate.is_none() {
        return Err("rate=max has no timestamps to write; give a number".to_owned());
    }
    Ok(profile)
}

impl Generate {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        if self.to.as_os_str() == "-" {
            return self.write(io::stdout().lock()).map_err(Failure::output);
        }
        let name = self.to.display().to_string();
        let file = if self.force { File::create(&self.to) } else { File::create_new(&self.to) };
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::Failed(format!("{name} exists; --force replaces it")),
            _ => Failure::Failed(format!("cannot create {name}: {error}")),
        })?;
        self.write(file).map_err(|error| Failure::Failed(format!("cannot write {name}: {error}")))
    }

    fn write(&self, output: impl Write) -> io::Result<()> {
        let packets = self.profile.packets.unwrap_or(DEFAULT_PACKETS);
        let generator = Generator::new(self.profile.clone());
        let mut frame = generator.template().to_vec();
        let mut writer = Writer::new(BufWriter::with_capacity(1 << 18, output), link_type::ETHERNET)?;
        let bar = progress::bar(Some(packets), format!("{}", self.to.display()));
        for index in 0..packets {
            generator.fill(index, &mut frame);
            writer.write(self.profile.timestamp(index), &frame, frame.len() as u32)?;
            if index.is_multiple_of(PROGRESS_EVERY) {
                bar.set_position(index);
            }
        }
        bar.finish_and_clear();
        writer.finish().map(drop)
    }
}

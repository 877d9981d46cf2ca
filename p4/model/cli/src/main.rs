//! `flowgauge-p4-model`: substitute for a Tofino switch, to test a controller. It executes
//! flowgauge's P4 source, serves BFRuntime like a switch, and counts packets from a capture, a
//! generator or network interfaces. It is a test double, not a switch.

use clap::Parser;
use flowgauge_bfruntime::server::{Costs, Pace as Time, RunningServer, Server, Target};
use flowgauge_core::Link;
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{self, Port, PortFrame, Ports, Received};
#[cfg(target_os = "linux")]
use flowgauge_p4_model::wire::{self, Wire};
use flowgauge_p4_model::{Model, Options, Switch};
use flowgauge_traffic::{Profile, ProfileError, memory};
use std::error::Error;
use std::io::{Write, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Polling interval while no packet is due.
const IDLE: Duration = Duration::from_micros(200);
/// Maximum length to which a truncated frame of a capture is padded.
const LONGEST: usize = 65_535;

/// Execute flowgauge's P4 source and serve BFRuntime, as a substitute for a Tofino switch.
///
/// This is a test double, not a switch: it does not model stages, timing and queues, and counts
/// some hundred thousand packets per second. Packets arrive in real time: from a capture or a
/// generator, in turn at the first port of each pipe, or from network interfaces. Press Ctrl-C to
/// stop.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
#[command(after_help = "Examples:
  flowgauge-p4-model --traffic zipf,flows=50k,rate=20k
  flowgauge-p4-model --define FLOWGAUGE_PRECISION=12 --pcap trace.pcap --listen 127.0.0.1:50053
  flowgauge-p4-model --port 0=veth0,1=veth2")]
struct Command {
    /// Serve BFRuntime on this address; port 0 lets the system choose one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50052")]
    listen: SocketAddr,

    /// Define a setting of the build, like -D of the compiler: FLOWGAUGE_KEY, FLOWGAUGE_PRECISION,
    /// FLOWGAUGE_ENTROPY and others (p4/README.md, Settings)
    #[arg(short = 'D', long, value_name = "NAME=VALUE", value_parser = definition)]
    define: Vec<(String, String)>,

    /// Execute this program instead of flowgauge's
    #[arg(long, value_name = "FILE.p4")]
    source: Option<PathBuf>,

    /// Name under which clients bind the program
    #[arg(long, value_name = "NAME", default_value = "flowgauge")]
    program: String,

    /// Number of pipes, each with its own registers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pipes: u8,

    /// Take as long as a switch's driver: to read one element from the chip (index), to copy a
    /// whole register (sync), to write an entry (update), and to complete a batch (completion)
    #[arg(long, value_name = "index=TIME,sync=TIME,update=TIME,completion=TIME", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = costs)]
    driver_like: Option<Costs>,

    /// Replay the packets of this capture, at its pace
    #[arg(long, value_name = "FILE", conflicts_with = "traffic")]
    pcap: Option<PathBuf>,

    /// Generate packets: PROFILE[,OPTION=VALUE]…, as for `flowgauge run --port memory:`
    #[arg(long, value_name = "PROFILE", value_parser = profile)]
    traffic: Option<Profile>,

    /// Use a network interface as a port of the switch, by its device port number (pipe * 128 +
    /// port); comma-separated. Requires CAP_NET_RAW; meant for virtual links in a separate network
    /// namespace
    #[arg(long, value_name = "PORT=IFACE", value_parser = attachment, value_delimiter = ',', conflicts_with_all = ["pcap", "traffic"])]
    port: Vec<(u16, String)>,
}

fn attachment(text: &str) -> Result<(u16, String), String> {
    let (port, interface) = text.split_once('=').ok_or("give PORT=IFACE, such as 0=veth0")?;
    match port.parse() {
        Ok(port) if port < 512 && !interface.is_empty() => Ok((port, interface.to_owned())),
        _ => Err("give PORT=IFACE with a port from 0 to 511, such as 0=veth0".to_owned()),
    }
}

fn costs(text: &str) -> Result<Costs, String> {
    let mut costs = Costs::SWITCH;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or("give NAME=TIME, such as index=120us")?;
        let cost = match name {
            "index" => &mut costs.index,
            "sync" => &mut costs.sync,
            "update" => &mut costs.update,
            "completion" => &mut costs.completion,
            _ => {
                return Err(format!(
                    "there is no {name}; there are index, sync, update and completion"
                ));
            }
        };
        *cost = humantime::parse_duration(value).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(costs)
}

fn definition(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or("give NAME=VALUE, such as FLOWGAUGE_PRECISION=12")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn profile(text: &str) -> Result<Profile, String> {
    text.parse().map_err(|error: ProfileError| error.to_string())
}

fn main() -> ExitCode {
    match serve(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(command: Command) -> Result<(), Box<dyn Error>> {
    let options = Options { defines: command.define, pipes: usize::from(command.pipes) };
    let model = match &command.source {
        Some(path) => Model::from_file(path, &options)?,
        None => Model::flowgauge(&options)?,
    };
    let switch = Arc::new(Switch::new(model, &command.program));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))?;
    let wires = open(&command.port)?;
    let target = Arc::clone(&switch) as Arc<dyn Target>;
    let server = match command.driver_like {
        Some(costs) => Server::driver_like(target, costs, Time::Real)?.0,
        None => Server::new(target)?,
    };
    let running = RunningServer::start_service(command.listen, None, server.service())?;
    let (name, pipes, address) = (&command.program, switch.pipes(), running.address());
    println!("a test double, no switch: {name} in {pipes} pipes, BFRuntime on {address}");
    stdout().flush()?;
    let arrived = match (command.pcap, command.traffic) {
        (Some(path), _) => feed(&switch, port::pcap(&path, 1, Pace::RealTime)?, &stop)?,
        (None, Some(profile)) => feed(&switch, memory(profile, 1, Pace::RealTime), &stop)?,
        (None, None) if command.port.is_empty() => 0,
        (None, None) => wired(&switch, wires, &stop)?,
    };
    println!("{arrived} packets arrived");
    stdout().flush()?;
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Frames that are received at one interface before the next one.
#[cfg(target_os = "linux")]
const BATCH: usize = 64;

/// Ports of the switch with interfaces, and these.
#[cfg(target_os = "linux")]
type Wires = (Vec<u16>, Vec<Wire>);

#[cfg(target_os = "linux")]
fn open(attachments: &[(u16, String)]) -> Result<Wires, String> {
    let (mut ports, mut wires) = (Vec::new(), Vec::new());
    for (port, interface) in attachments {
        if ports.contains(port) {
            return Err(format!("--port names port {port} twice"));
        }
        ports.push(*port);
        wires.push(
            Wire::open(interface)
                .map_err(|error| format!("cannot open network interface {interface}: {error}"))?,
        );
    }
    Ok((ports, wires))
}

/// Forwards packets between interfaces until stopped, and returns the number received.
#[cfg(target_os = "linux")]
fn wired(
    switch: &Switch,
    (ports, mut wires): Wires,
    stop: &AtomicBool,
) -> Result<u64, Box<dyn Error>> {
    let (mut arrived, mut unsent) = (0, 0_u64);
    let mut lost = vec![0; wires.len()];
    while !stop.load(Ordering::Relaxed) {
        wire::wait(&wires, Duration::from_millis(20))?;
        for at in 0..wires.len() {
            let mut entrance = switch.enter();
            let mut leaving = Vec::new();
            for _ in 0..BATCH {
                let wire = &mut wires[at];
                let name = wire.interface().to_owned();
                let frame = wire
                    .receive()
                    .map_err(|error| format!("cannot receive from {name}: {error}"))?;
                let Some(frame) = frame else { break };
                leaving.extend(entrance.arrive(ports[at], frame)?);
                arrived += 1;
            }
            // Packets that arrived while the model was busy count as lost to a full port buffer.
            let (wire, before) = (&mut wires[at], lost[at]);
            lost[at] = wire.lost()?;
            entrance.arrive_without_room(ports[at], lost[at] - before);
            drop(entrance);
            for output in leaving {
                // A port without an interface.
                let Some(to) = ports.iter().position(|port| *port == output.port) else { continue };
                if !wires[to].send(&output.frame).unwrap_or(false) {
                    unsent += 1;
                }
            }
        }
    }
    for (wire, lost) in wires.iter().zip(lost) {
        if lost > 0 {
            eprintln!(
                "warning: {lost} frames from {} found the model busy and were lost",
                wire.interface()
            );
        }
    }
    if unsent > 0 {
        eprintln!("warning: {unsent} frames could not be sent on");
    }
    Ok(arrived)
}

#[cfg(not(target_os = "linux"))]
fn open(attachments: &[(u16, String)]) -> Result<(), String> {
    if attachments.is_empty() {
        Ok(())
    } else {
        Err("network interfaces as ports need Linux".to_owned())
    }
}

#[cfg(not(target_os = "linux"))]
fn wired(_: &Switch, _: (), _: &AtomicBool) -> Result<u64, Box<dyn Error>> {
    Ok(0)
}

/// Injects packets until there are no more, and returns their number.
fn feed<P: Port>(
    switch: &Switch,
    mut ports: Ports<P>,
    stop: &AtomicBool,
) -> Result<u64, Box<dyn Error>> {
    let Some(port) = ports.ports.first_mut() else { return Ok(0) };
    let (mut arrived, mut others, mut whole, mut fault) = (0, 0_u64, Vec::new(), None);
    while !stop.load(Ordering::Relaxed) && fault.is_none() {
        let mut entrance = switch.enter();
        let received = port.receive(&mut |frame: PortFrame<'_>| {
            if frame.link != Link::Ethernet {
                others += 1;
                return;
            }
            // A switch sees complete frames. The truncated part of a captured frame is behind the
            // headers.
            let length = frame.wire_length as usize;
            let bytes = if length <= frame.bytes.len() {
                frame.bytes
            } else {
                whole.clear();
                whole.extend_from_slice(frame.bytes);
                whole.resize(length.min(LONGEST), 0);
                &whole
            };
            match entrance.arrive(switch.port(arrived as usize), bytes) {
                Ok(_) => arrived += 1,
                Err(stopped) => fault = Some(stopped),
            }
        });
        drop(entrance);
        match received {
            Received::Frames => {}
            Received::Idle => thread::sleep(IDLE),
            Received::Ended => break,
        }
    }
    for warning in ports.source.warnings() {
        eprintln!("warning: {warning}");
    }
    if others > 0 {
        eprintln!(
            "warning: {others} packets have no Ethernet header and cannot come to a switch; they were left out"
        );
    }
    match fault {
        Some(fault) => Err(fault.into()),
        None => Ok(arrived),
    }
}

//! Executes flowgauge's P4 source for Tofino: a test double of a switch.
//!
//! A [`Model`] reads the very source that the chip's compiler gets (the part of P4_16 and of the
//! Tofino Native Architecture that flowgauge needs; anything else is an error at `file:line`), and
//! processes frames as that source specifies. Tables, registers and counters are reached by the
//! names that the compiler writes into the control plane's schema. So the controller, the tables it
//! computes and the P4 program are tested together, against the code that software dataplanes run,
//! without a switch and without its development kit.
//!
//! It is a test double and not a switch. It refuses what hardware forbids and a program can get
//! wrong without noticing (a second access to a register array, a loop), but it knows nothing of
//! stages, memory and timing: only the chip's compiler can confirm that a program fits. Expressions
//! have the values that P4 defines; the chip's stateful ALU is known to compare a difference in a
//! condition (`a - v > K`) without wrap-around, so programs should compare a sign bit after a plain
//! subtraction. Egress, multicast, queues, mirror sessions and meters are not modelled.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use flowgauge_bfruntime::server::Write;
//! use flowgauge_bfruntime::{Data, Match, Pipes};
//! use flowgauge_p4_model::{Model, Options};
//!
//! let mut model = Model::flowgauge(&Options::default().define("FLOWGAUGE_PRECISION", 12))?;
//! let key = [("ingress_port".to_owned(), Match::Exact(vec![0, 1]))].into();
//! let data = Data::action("Ingress.forward.send", [("port", vec![0, 2])]);
//! model.write("pipe.Ingress.forward.ports", Pipes::All, &Write::Insert(key, data))?;
//! let frame = [0; 60];
//! assert_eq!(model.inject(1, &frame)?[0].port, 2);
//! # Ok(())
//! # }
//! ```

mod ast;
mod compile;
mod control_plane;
mod crc;
mod execute;
mod matching;
mod preprocess;
mod program;
mod schema;
mod source;
mod switch;
mod syntax;
mod token;
#[cfg(target_os = "linux")]
pub mod wire;

pub use execute::{Fault, Output};
pub use schema::identifier;
pub use source::{Place, SourceError};
pub use switch::{PacketEntrance, Switch};

use execute::{Pipe, Resubmitted};
use flowgauge_bfruntime::server::Digest;
use matching::MatchTable;
use program::Program;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of ports of a pipe. The upper bits of a port number are the pipe.
pub const PORTS_PER_PIPE: u16 = 128;

/// Parameters of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Macros, like `-DNAME=VALUE` of the compiler.
    pub defines: Vec<(String, String)>,
    /// Number of pipes, each with its own registers, counters and 128 port numbers. At most 4.
    pub pipes: usize,
}

impl Default for Options {
    /// Two pipes, as in the smallest Tofino.
    fn default() -> Self {
        Options { defines: Vec::new(), pipes: 2 }
    }
}

impl Options {
    /// Adds a macro.
    #[must_use]
    pub fn define(mut self, name: &str, value: impl ToString) -> Self {
        self.defines.push((name.to_owned(), value.to_string()));
        self
    }
}

/// Pipes of a switch that run one program.
#[derive(Clone, Debug)]
pub struct Model {
    program: Arc<Program>,
    tables: Vec<MatchTable>,
    pipes: Vec<Pipe>,
    clock: u64,
    values: Vec<u128>,
    input: Vec<u8>,
    scratch: Vec<u8>,
    digests: Vec<Digest>,
    /// Number of packets after which resubmitted ones come back, and those that wait.
    resubmit_after: usize,
    resubmitted: VecDeque<Resubmitted>,
}

impl Model {
    /// Loads flowgauge's own program, which is included in this crate.
    ///
    /// # Errors
    /// [`SourceError`] if it does not accept the macros of the options.
    pub fn flowgauge(options: &Options) -> Result<Self, SourceError> {
        // Tests make hundreds of switches with few programs, and compiling takes longer than most
        // of them.
        type Compiled = (Vec<(String, String)>, Arc<Program>);
        static COMPILED: Mutex<Vec<Compiled>> = Mutex::new(Vec::new());
        const MAX_COMPILED: usize = 128;
        let compiled = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = compiled().iter().find(|(defines, _)| *defines == options.defines).cloned();
        if let Some((_, program)) = known {
            return Ok(Self::new(program, options.pipes));
        }
        let program =
            compile::compile(&preprocess::from_own, Path::new("flowgauge.p4"), &options.defines)?;
        let program = Arc::new(program);
        let mut compiled = compiled();
        if compiled.len() == MAX_COMPILED {
            compiled.remove(0);
        }
        compiled.push((options.defines.clone(), Arc::clone(&program)));
        Ok(Self::new(program, options.pipes))
    }

    /// Loads a program from a file. Includes are searched next to the file that names them.
    ///
    /// # Errors
    /// [`SourceError`] with file and line.
    pub fn from_file(path: &Path, options: &Options) -> Result<Self, SourceError> {
        let program = compile::compile(&preprocess::from_disk, path, &options.defines)?;
        Ok(Self::new(program.into(), options.pipes))
    }

    /// Loads a program from a text. `name` is used as the file name in errors.
    ///
    /// # Errors
    /// [`SourceError`] with `name` and line.
    pub fn from_text(name: &str, text: &str, options: &Options) -> Result<Self, SourceError> {
        let read = preprocess::from_text(name, text);
        let program = compile::compile(&read, Path::new(name), &options.defines)?;
        Ok(Self::new(program.into(), options.pipes))
    }

    fn new(program: Arc<Program>, pipes: usize) -> Self {
        Model {
            tables: program.tables.iter().map(MatchTable::new).collect(),
            pipes: (0..pipes.clamp(1, 4)).map(|_| Pipe::new(&program)).collect(),
            values: vec![0; program.slots],
            program,
            clock: 0,
            input: Vec::new(),
            scratch: Vec::new(),
            digests: Vec::new(),
            resubmit_after: 0,
            resubmitted: VecDeque::new(),
        }
    }

    /// Returns the number of pipes.
    #[must_use]
    pub fn pipes(&self) -> usize {
        self.pipes.len()
    }

    /// Sets the arrival time of later packets, in nanoseconds. The model has no other clock.
    pub fn set_clock(&mut self, nanoseconds: u64) {
        self.clock = nanoseconds;
    }

    /// Returns and removes the digests sent since the last call, oldest first.
    pub fn take_digests(&mut self) -> Vec<Digest> {
        std::mem::take(&mut self.digests)
    }
}

//! Execution of a program on one packet.

use crate::Model;
use crate::compile::packed;
use crate::matching::{KeyBits, MatchTable};
use crate::program::{
    Algorithm, Operator, ParserStep, Program, Quantity, Slot, Step, Target, Transition, Value, mask,
};
use crate::{PORTS_PER_PIPE, program};
use flowgauge_bfruntime::server::Digest;

/// Bytes of intrinsic metadata, and then of port metadata, in front of a frame.
const INTRINSIC_BYTES: usize = 8;
const METADATA_BYTES: usize = 16;
/// Port of a packet until a program sets another.
const NO_PORT: u128 = 0x1ff;
/// Number, within a pipe, of the port that recirculates packets.
const RECIRCULATION_PORT: u16 = 68;
const MOST_RECIRCULATIONS: usize = 16;
const PARSER_ERROR_NO_TCAM: u128 = 1;
const PARSER_ERROR_PARTIAL_HEADER: u128 = 2;

/// Frame that leaves the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Egress port.
    pub port: u16,
    /// Bytes of the frame.
    pub frame: Vec<u8>,
}

/// Behaviour of the program, or an injected packet, that the hardware does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The port belongs to no pipe.
    #[error("port {port} is in none of the {pipes} pipes")]
    NoSuchPort {
        /// Port.
        port: u16,
        /// Number of pipes of the model.
        pipes: usize,
    },
    /// A packet accesses a register or counter array twice in one pass.
    #[error("{name} is accessed twice by one packet: an array belongs to one stage")]
    SecondAccess {
        /// Full name of the array.
        name: String,
    },
    /// Index beyond the end of an array.
    #[error("index {index} in {name}, which has {size} elements")]
    IndexOutOfRange {
        /// Full name of the array.
        name: String,
        /// Index.
        index: u128,
        /// Number of elements of the array.
        size: usize,
    },
    /// A parser assigns a field that already has a value other than zero.
    #[error("{state} assigns a field for the second time: Tofino 1 would combine the values by OR")]
    SecondAssignment {
        /// Full name of the parser state.
        state: String,
    },
    /// A parser extracts more headers than a stack has.
    #[error(
        "{state} extracts the next element of a stack that is full: P4 calls it an error, and the chip's compiler ends the parser there"
    )]
    StackOverflow {
        /// Full name of the parser state.
        state: String,
    },
    /// A resubmitted packet requests another resubmission.
    #[error("a resubmitted packet is resubmitted again: the chip drops it")]
    ResubmittedTwice,
    /// A packet is recirculated endlessly.
    #[error("a packet is recirculated more than {MOST_RECIRCULATIONS} times")]
    EndlessRecirculation,
}

/// State of one pipe.
#[derive(Clone, Debug)]
pub(crate) struct Pipe {
    /// Consecutive elements of each array, with the fields of an element side by side.
    pub(crate) arrays: Vec<Vec<u64>>,
    pub(crate) parameters: Vec<u128>,
    /// Last pass that accessed each array.
    access: Vec<u64>,
    pass: u64,
}

impl Pipe {
    pub(crate) fn new(program: &Program) -> Self {
        Pipe {
            arrays: program.arrays.iter().map(|array| array.initial.repeat(array.size)).collect(),
            parameters: program.parameters.iter().map(|parameter| parameter.initial).collect(),
            access: vec![0; program.arrays.len()],
            pass: 0,
        }
    }
}

/// Packet that waits for its second pass.
#[derive(Clone, Debug)]
pub(crate) struct Resubmitted {
    pipe: usize,
    input: Vec<u8>,
    /// Number of packets that pass before it.
    packets: usize,
}

impl Model {
    /// Injects a frame at a port. Returns the frames that leave the switch because of it, and
    /// because of [packets that come back](Self::resubmit_after).
    ///
    /// # Errors
    /// A [`Fault`] if the program does something that hardware does not support. Earlier effects of
    /// the packet remain.
    pub fn inject(&mut self, port: u16, frame: &[u8]) -> Result<Vec<Output>, Fault> {
        let waiting = self.resubmitted.len();
        let mut sent = self.arrive(port, frame)?.into_iter().collect::<Vec<Output>>();
        for resubmitted in self.resubmitted.iter_mut().take(waiting) {
            resubmitted.packets -= 1;
        }
        while self.resubmitted.front().is_some_and(|first| first.packets == 0) {
            sent.extend(self.come_back()?);
        }
        self.recirculate(sent)
    }

    /// Delays resubmitted packets by this many other packets, as on a chip under load.
    pub fn resubmit_after(&mut self, packets: usize) {
        self.resubmit_after = packets;
    }

    /// Processes all delayed resubmitted packets now, and returns the frames that leave the switch.
    ///
    /// # Errors
    /// The same as of [`inject`](Self::inject).
    pub fn settle(&mut self) -> Result<Vec<Output>, Fault> {
        let mut sent = Vec::new();
        while !self.resubmitted.is_empty() {
            sent.extend(self.come_back()?);
        }
        self.recirculate(sent)
    }

    fn recirculate(&mut self, mut sent: Vec<Output>) -> Result<Vec<Output>, Fault> {
        let mut recirculations = 0;
        while let Some(at) = sent.iter().position(|sent| self.comes_back(sent.port)) {
            recirculations += 1;
            if recirculations > MOST_RECIRCULATIONS {
                return Err(Fault::EndlessRecirculation);
            }
            let back = sent.swap_remove(at);
            sent.extend(self.arrive(back.port, &back.frame)?);
        }
        Ok(sent)
    }

    fn comes_back(&self, port: u16) -> bool {
        port % PORTS_PER_PIPE == RECIRCULATION_PORT && self.pipe_of(port).is_some()
    }

    fn pipe_of(&self, port: u16) -> Option<usize> {
        let pipe = usize::from(port / PORTS_PER_PIPE);
        (pipe < self.pipes.len()).then_some(pipe)
    }

    fn arrive(&mut self, port: u16, frame: &[u8]) -> Result<Option<Output>, Fault> {
        let pipe = self.pipe_of(port).ok_or(Fault::NoSuchPort { port, pipes: self.pipes.len() })?;
        self.prepare(port, frame);
        match self.pass(pipe)? {
            Outcome::Dropped => Ok(None),
            Outcome::Sent(output) => Ok(Some(output)),
            Outcome::Resubmitted(data) => {
                self.input[0] |= 0x80;
                self.input[INTRINSIC_BYTES..METADATA_BYTES].copy_from_slice(&data);
                if self.resubmit_after == 0 {
                    return self.second_pass(pipe);
                }
                self.resubmitted.push_back(Resubmitted {
                    pipe,
                    input: self.input.clone(),
                    packets: self.resubmit_after,
                });
                Ok(None)
            }
        }
    }

    fn come_back(&mut self) -> Result<Option<Output>, Fault> {
        let Some(Resubmitted { pipe, input, .. }) = self.resubmitted.pop_front() else {
            return Ok(None);
        };
        self.input = input;
        self.second_pass(pipe)
    }

    fn second_pass(&mut self, pipe: usize) -> Result<Option<Output>, Fault> {
        match self.pass(pipe)? {
            Outcome::Dropped => Ok(None),
            Outcome::Sent(output) => Ok(Some(output)),
            Outcome::Resubmitted(_) => Err(Fault::ResubmittedTwice),
        }
    }

    /// Prepares the input of the parser: intrinsic metadata (flag, version and padding, 9 bits of
    /// port, 48 of time), port metadata, frame.
    fn prepare(&mut self, port: u16, frame: &[u8]) {
        self.input.clear();
        let [_, _, timestamp @ ..] = self.clock.to_be_bytes();
        self.input.extend((port & 0x1ff).to_be_bytes());
        self.input.extend(timestamp);
        self.input.extend([0; METADATA_BYTES - INTRINSIC_BYTES]);
        self.input.extend(frame);
    }

    fn pass(&mut self, pipe: usize) -> Result<Outcome, Fault> {
        let program = &self.program;
        self.values.fill(0);
        self.values[program.intrinsic.egress_port as usize] = NO_PORT;
        self.values[program.intrinsic.global_timestamp as usize] =
            u128::from(self.clock) & mask(48);
        let number = pipe;
        let pipe = &mut self.pipes[pipe];
        for (parameter, value) in program.parameters.iter().zip(&pipe.parameters) {
            self.values[parameter.slot as usize] = *value;
        }
        pipe.pass += 1;
        let mut pass = Pass {
            program,
            tables: &self.tables,
            pipe,
            number,
            values: &mut self.values,
            input: &self.input,
            scratch: &mut self.scratch,
            digests: &mut self.digests,
            output: Vec::new(),
            resubmit: None,
            emits: false,
        };
        pass.run_all()
    }
}

enum Outcome {
    Dropped,
    Sent(Output),
    Resubmitted([u8; INTRINSIC_BYTES]),
}

struct Pass<'a> {
    program: &'a Program,
    tables: &'a [MatchTable],
    pipe: &'a mut Pipe,
    number: usize,
    values: &'a mut [u128],
    input: &'a [u8],
    scratch: &'a mut Vec<u8>,
    digests: &'a mut Vec<Digest>,
    output: Vec<u8>,
    resubmit: Option<[u8; INTRINSIC_BYTES]>,
    /// Whether emitted headers are written.
    emits: bool,
}

impl<'a> Pass<'a> {
    fn run_all(&mut self) -> Result<Outcome, Fault> {
        let program = self.program;
        let (payload, error) = self.parse()?;
        if error != 0 {
            if !program.reads_parser_error {
                return Ok(Outcome::Dropped);
            }
            self.set(program.intrinsic.parser_error, error);
        }
        self.run(&program.ingress)?;
        let port = self.get(program.intrinsic.egress_port);
        self.emits = self.get(program.intrinsic.drop) & 1 == 0 && port != NO_PORT;
        if self.emits {
            self.output.reserve(self.input.len());
        }
        self.run(&program.deparser)?;
        // The chip's drop control prevents resubmission.
        if let Some(data) = self.resubmit
            && self.get(program.intrinsic.drop) & 1 == 0
        {
            return Ok(Outcome::Resubmitted(data));
        }
        if !self.emits {
            return Ok(Outcome::Dropped);
        }
        let mut frame = std::mem::take(&mut self.output);
        frame.extend(self.input.get(payload..).unwrap_or_default());
        Ok(Outcome::Sent(Output { port: port as u16, frame }))
    }

    #[inline(always)]
    fn get(&self, slot: Slot) -> u128 {
        self.values[slot as usize]
    }

    #[inline(always)]
    fn set(&mut self, slot: Slot, value: u128) {
        self.values[slot as usize] = value;
    }

    /// Parses the packet. Returns the offset of the payload, and the error that ended the parser,
    /// if any.
    fn parse(&mut self) -> Result<(usize, u128), Fault> {
        let program = self.program;
        let input = self.input;
        let mut at = 0;
        let mut state = &program.states[program.start];
        loop {
            for step in &state.steps {
                match step {
                    ParserStep::Extract(header) => {
                        let header = &program.headers[*header];
                        let Some(bytes) = input.get(at..at + header.bytes) else {
                            return Ok((at, PARSER_ERROR_PARTIAL_HEADER));
                        };
                        for field in &header.fields {
                            self.values[field.slot as usize] =
                                bits(bytes, field.offset, field.width);
                        }
                        self.set(header.valid, 1);
                        at += header.bytes;
                    }
                    ParserStep::ExtractNext(stack) => {
                        let stack = &program.stacks[*stack];
                        let Some(element) = stack.elements.get(self.get(stack.extracted) as usize)
                        else {
                            return Err(Fault::StackOverflow { state: state.name.to_string() });
                        };
                        let (header, last) =
                            (&program.headers[*element], &program.headers[stack.last]);
                        let Some(bytes) = input.get(at..at + header.bytes) else {
                            return Ok((at, PARSER_ERROR_PARTIAL_HEADER));
                        };
                        for field in header.fields.iter().chain(&last.fields) {
                            self.values[field.slot as usize] =
                                bits(bytes, field.offset, field.width);
                        }
                        self.set(header.valid, 1);
                        self.set(stack.extracted, self.get(stack.extracted) + 1);
                        at += header.bytes;
                    }
                    ParserStep::SetCounter(slot, number) => self.set(*slot, u128::from(*number)),
                    ParserStep::AddToCounter(slot, number) => {
                        let sum = (self.get(*slot) as u8).wrapping_add(*number);
                        self.set(*slot, u128::from(sum));
                    }
                    ParserStep::Advance(bytes) => {
                        at += bytes;
                        if at > input.len() {
                            return Ok((input.len(), PARSER_ERROR_PARTIAL_HEADER));
                        }
                    }
                    ParserStep::Lookahead { to, skip, width, need } => {
                        let Some(bytes) = input.get(at..at + need) else {
                            return Ok((at, PARSER_ERROR_PARTIAL_HEADER));
                        };
                        self.refuse_second(*to, state)?;
                        self.set(*to, bits(bytes, *skip, *width));
                    }
                    ParserStep::Step(step) => {
                        if let Step::Assign(slot, _) = step {
                            self.refuse_second(*slot, state)?;
                        }
                        self.step(step)?;
                    }
                }
            }
            let target = match &state.transition {
                Transition::To(target) => *target,
                Transition::Select { keys, cases } => {
                    let key =
                        packed(keys.iter().map(|(value, width)| (self.evaluate(value), *width)));
                    match cases.iter().find(|case| key & case.mask == case.value) {
                        Some(case) => case.to,
                        None => return Ok((at, PARSER_ERROR_NO_TCAM)),
                    }
                }
            };
            match target {
                Target::Accept => return Ok((at, 0)),
                Target::Reject => return Ok((at, PARSER_ERROR_NO_TCAM)),
                Target::State(next) => state = &program.states[next],
            }
        }
    }

    fn refuse_second(&self, slot: Slot, state: &program::State) -> Result<(), Fault> {
        if self.get(slot) == 0 {
            Ok(())
        } else {
            Err(Fault::SecondAssignment { state: state.name.to_string() })
        }
    }

    fn run(&mut self, steps: &'a [Step]) -> Result<(), Fault> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &'a Step) -> Result<(), Fault> {
        match step {
            Step::Assign(slot, value) => {
                let value = self.evaluate(value);
                self.set(*slot, value);
            }
            Step::AssignSlice { slot, low, mask, value } => {
                let value = self.evaluate(value);
                let kept = self.get(*slot) & !(mask << low);
                self.set(*slot, kept | value << low);
            }
            Step::If(condition, then, otherwise) => {
                let branch = if self.evaluate(condition) != 0 { then } else { otherwise };
                self.run(branch)?;
            }
            Step::Apply { table, hit } => self.apply(*table, *hit)?,
            Step::Run(action) => self.run(&self.program.actions[*action].steps)?,
            Step::Execute { action, index } => self.execute(*action, index)?,
            Step::Hash { hash, input, to } => {
                let value = self.hash(&self.program.hashes[*hash], input);
                self.set(*to, value);
            }
            Step::Count { counter, index } => self.count(*counter, index)?,
            Step::Digest { digest, fields } => self.digest(*digest, fields),
            Step::Resubmit(header) => {
                let header = &self.program.headers[*header];
                let data = serialize(header, self.values);
                self.resubmit = data.get(..INTRINSIC_BYTES).and_then(|data| data.try_into().ok());
            }
            Step::Emit(header) => {
                let header = &self.program.headers[*header];
                if self.emits && self.get(header.valid) != 0 {
                    let start = self.output.len();
                    self.output.resize(start + header.bytes, 0);
                    write(header, self.values, &mut self.output[start..]);
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, table: usize, hit: Option<Slot>) -> Result<(), Fault> {
        let program = self.program;
        let tables = self.tables;
        let key = &program.tables[table].key;
        let row = if key.is_empty() {
            None
        } else {
            let key =
                KeyBits::join(key.iter().map(|field| (self.evaluate(&field.value), field.width)));
            tables[table].find(key)
        };
        if let Some(hit) = hit {
            self.set(hit, u128::from(row.is_some()));
        }
        let (action, data) = match row {
            Some(row) => (row.action, &row.data),
            None => (tables[table].default.0, &tables[table].default.1),
        };
        let action = &program.actions[action];
        for (parameter, value) in action.parameters.iter().zip(data) {
            self.set(parameter.slot, *value);
        }
        self.run(&action.steps)
    }

    /// Accesses an array, and returns the start of an element in it.
    fn access(&mut self, array: usize, index: &Value) -> Result<usize, Fault> {
        let index = self.evaluate(index);
        let declared = &self.program.arrays[array];
        let last = &mut self.pipe.access[array];
        if *last == self.pipe.pass {
            return Err(Fault::SecondAccess { name: declared.name.to_string() });
        }
        *last = self.pipe.pass;
        if index >= declared.size as u128 {
            return Err(Fault::IndexOutOfRange {
                name: declared.name.to_string(),
                index,
                size: declared.size,
            });
        }
        Ok(index as usize * declared.fields.len())
    }

    fn execute(&mut self, action: usize, index: &Value) -> Result<(), Fault> {
        let program = self.program;
        let action = &program.register_actions[action];
        let start = self.access(action.register, index)?;
        for (offset, slot) in action.element.iter().enumerate() {
            self.values[*slot as usize] =
                u128::from(self.pipe.arrays[action.register][start + offset]);
        }
        if let Some(result) = action.result {
            self.set(result, 0);
        }
        self.run(&action.steps)?;
        for (offset, slot) in action.element.iter().enumerate() {
            self.pipe.arrays[action.register][start + offset] = self.values[*slot as usize] as u64;
        }
        Ok(())
    }

    fn count(&mut self, counter: usize, index: &Value) -> Result<(), Fault> {
        let start = self.access(counter, index)?;
        let bytes = (self.input.len() - METADATA_BYTES) as u64;
        let cells = self.pipe.arrays[counter][start..].iter_mut();
        for (cell, quantity) in cells.zip(self.program.arrays[counter].counts) {
            *cell = cell.wrapping_add(match quantity {
                Quantity::Bytes => bytes,
                Quantity::Packets => 1,
            });
        }
        Ok(())
    }

    fn hash(&mut self, hash: &program::Hash, input: &[(Value, u32)]) -> u128 {
        let values = &*self.values;
        hash_of(
            hash,
            input.iter().map(|(value, width)| (evaluate(value, values), *width)),
            self.scratch,
        )
    }

    fn digest(&mut self, digest: usize, fields: &[(Value, u32)]) {
        let declared = &self.program.digests[digest];
        let fields = declared.fields.iter().zip(fields);
        let fields = fields
            .map(|((name, width), (value, _))| {
                (name.clone(), to_bytes(self.evaluate(value), *width))
            })
            .collect();
        self.digests.push(Digest {
            filter: declared.name.to_string(),
            pipe: self.number as u32,
            entries: vec![fields],
        });
    }

    #[inline(always)]
    fn evaluate(&self, value: &Value) -> u128 {
        evaluate(value, self.values)
    }
}

/// Hashes joined values. `scratch` is a reusable buffer.
pub(crate) fn hash_of(
    hash: &program::Hash,
    input: impl Iterator<Item = (u128, u32)> + Clone,
    scratch: &mut Vec<u8>,
) -> u128 {
    let value = match &hash.algorithm {
        Algorithm::Crc(crc) => {
            scratch.clear();
            if input.clone().all(|(_, width)| width.is_multiple_of(8)) {
                for (value, width) in input {
                    let bytes = value.to_be_bytes();
                    scratch.extend(&bytes[bytes.len() - width as usize / 8..]);
                }
            } else {
                let total: u32 = input.clone().map(|(_, width)| width).sum();
                scratch.resize(total as usize / 8, 0);
                let mut offset = 0;
                for (value, width) in input {
                    write_bits(scratch, offset, width, value);
                    offset += width;
                }
            }
            u128::from(crc.compute(scratch))
        }
        Algorithm::Identity => packed(input),
        Algorithm::Xor(word) => {
            let mut end = 0;
            input.fold(0, |folded, (value, width)| {
                end = (end + width) % word;
                folded ^ value << ((word - end) % word)
            })
        }
    };
    value & mask(hash.width)
}

pub(crate) fn evaluate(value: &Value, values: &[u128]) -> u128 {
    match value {
        Value::Constant(constant) => *constant,
        Value::Slot(slot) => values[*slot as usize],
        Value::Slice { of, low, mask } => evaluate(of, values) >> low & mask,
        Value::Complement(of, mask) => !evaluate(of, values) & mask,
        Value::Negate(of, mask) => evaluate(of, values).wrapping_neg() & mask,
        Value::Not(of) => u128::from(evaluate(of, values) == 0),
        Value::Binary(operator, sides) => binary(*operator, &sides.0, &sides.1, values),
        Value::Conditional(parts) => {
            let (condition, then, otherwise) = &**parts;
            if evaluate(condition, values) != 0 {
                evaluate(then, values)
            } else {
                evaluate(otherwise, values)
            }
        }
        Value::Extend { of, from, mask } => signed(evaluate(of, values), *from) as u128 & mask,
        Value::Predicate(conditions) => {
            let (low, high) = &**conditions;
            1 << (evaluate(low, values) + 2 * evaluate(high, values))
        }
    }
}

fn binary(operator: Operator, left: &Value, right: &Value, values: &[u128]) -> u128 {
    let left = evaluate(left, values);
    match operator {
        Operator::BothTrue => return u128::from(left != 0 && evaluate(right, values) != 0),
        Operator::OneTrue => return u128::from(left != 0 || evaluate(right, values) != 0),
        _ => {}
    }
    let right = evaluate(right, values);
    let less = |width: Option<u32>| match width {
        None => left < right,
        Some(width) => signed(left, width) < signed(right, width),
    };
    match operator {
        Operator::Add(mask) => left.wrapping_add(right) & mask,
        Operator::Subtract(mask) => left.wrapping_sub(right) & mask,
        Operator::AddSaturating { width, signed } => {
            saturated(left, right, width, signed, i128::saturating_add, u128::saturating_add)
        }
        Operator::SubtractSaturating { width, signed } => {
            saturated(left, right, width, signed, i128::saturating_sub, u128::saturating_sub)
        }
        Operator::Multiply(mask) => left.wrapping_mul(right) & mask,
        Operator::And => left & right,
        Operator::Or => left | right,
        Operator::Xor => left ^ right,
        Operator::ShiftLeft(mask) => {
            u32::try_from(right).ok().and_then(|by| left.checked_shl(by)).unwrap_or(0) & mask
        }
        Operator::ShiftRight { width, signed: false } => {
            u32::try_from(right).ok().filter(|by| *by < width).map_or(0, |by| left >> by)
        }
        Operator::ShiftRight { width, signed: true } => {
            (signed(left, width) >> u32::try_from(right).unwrap_or(127).min(127)) as u128
                & mask(width)
        }
        Operator::Concatenate(width) => left.checked_shl(width).unwrap_or(0) | right,
        Operator::Equal => u128::from(left == right),
        Operator::NotEqual => u128::from(left != right),
        Operator::Less(width) => u128::from(less(width)),
        Operator::LessOrEqual(width) => u128::from(left == right || less(width)),
        Operator::Maximum(width) => {
            if less(width) {
                right
            } else {
                left
            }
        }
        Operator::Minimum(width) => {
            if less(width) {
                left
            } else {
                right
            }
        }
        Operator::BothTrue | Operator::OneTrue => 0,
    }
}

/// Interprets `width` bits as two's complement.
fn signed(bits: u128, width: u32) -> i128 {
    let unused = 128 - width;
    (bits << unused) as i128 >> unused
}

fn saturated(
    left: u128,
    right: u128,
    width: u32,
    is_signed: bool,
    on_signed: fn(i128, i128) -> i128,
    on_unsigned: fn(u128, u128) -> u128,
) -> u128 {
    if is_signed {
        let highest = (mask(width) >> 1) as i128;
        on_signed(signed(left, width), signed(right, width)).clamp(-highest - 1, highest) as u128
            & mask(width)
    } else {
        on_unsigned(left, right).min(mask(width))
    }
}

/// Reads `width` bits at a bit offset, in network order.
#[inline]
fn bits(bytes: &[u8], offset: u32, width: u32) -> u128 {
    let end = offset + width;
    let (first, last) = (offset as usize / 8, end.div_ceil(8) as usize);
    let covering = &bytes[first..last];
    let below = last as u32 * 8 - end;
    if covering.len() <= 8 {
        let value = covering.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        return u128::from(value >> below) & mask(width);
    }
    covering.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte)) >> below
        & mask(width)
}

/// Writes `width` bits at a bit offset, where the bytes must be zero.
fn write_bits(bytes: &mut [u8], offset: u32, width: u32, value: u128) {
    let end = offset + width;
    let last = end.div_ceil(8) as usize;
    let mut value = (value & mask(width)) << (last as u32 * 8 - end);
    for byte in bytes[offset as usize / 8..last].iter_mut().rev() {
        *byte |= value as u8;
        value >>= 8;
    }
}

fn write(header: &program::Header, values: &[u128], to: &mut [u8]) {
    for field in &header.fields {
        write_bits(to, field.offset, field.width, values[field.slot as usize]);
    }
}

fn serialize(header: &program::Header, values: &[u128]) -> Vec<u8> {
    let mut bytes = vec![0; header.bytes];
    write(header, values, &mut bytes);
    bytes
}

/// Converts a value to the minimum number of big-endian bytes for `width` bits.
pub(crate) fn to_bytes(value: u128, width: u32) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    bytes[bytes.len() - width.div_ceil(8) as usize..].to_vec()
}

//! Compiled program: names are resolved to slots of a flat array, types to widths.

use crate::crc::Crc;
use crate::matching::KeyBits;
use std::sync::Arc;

/// Index of a value of the current packet.
pub(crate) type Slot = u32;

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Constant(u128),
    Slot(Slot),
    Slice {
        of: Box<Value>,
        low: u32,
        mask: u128,
    },
    Complement(Box<Value>, u128),
    Negate(Box<Value>, u128),
    Not(Box<Value>),
    Binary(Operator, Box<(Value, Value)>),
    Conditional(Box<(Value, Value, Value)>),
    /// Sign extension from a width to a mask.
    Extend {
        of: Box<Value>,
        from: u32,
        mask: u128,
    },
    /// TNA's `predicate`: one of four bits, selected by two conditions.
    Predicate(Box<(Value, Value)>),
}

impl Value {
    /// Returns the values that this one is computed from.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Value> {
        let operands = match self {
            Value::Constant(_) | Value::Slot(_) => [None; 3],
            Value::Slice { of, .. }
            | Value::Extend { of, .. }
            | Value::Not(of)
            | Value::Complement(of, _)
            | Value::Negate(of, _) => [Some(&**of), None, None],
            Value::Binary(_, sides) | Value::Predicate(sides) => {
                [Some(&sides.0), Some(&sides.1), None]
            }
            Value::Conditional(of) => [Some(&of.0), Some(&of.1), Some(&of.2)],
        };
        operands.into_iter().flatten()
    }
}

/// Operators with the widths they need at run time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operator {
    Add(u128),
    Subtract(u128),
    AddSaturating {
        width: u32,
        signed: bool,
    },
    SubtractSaturating {
        width: u32,
        signed: bool,
    },
    Multiply(u128),
    And,
    Or,
    Xor,
    ShiftLeft(u128),
    ShiftRight {
        width: u32,
        signed: bool,
    },
    /// Shift of the left side by the right side's width.
    Concatenate(u32),
    Equal,
    NotEqual,
    /// Less-than; signed with a width, unsigned without.
    Less(Option<u32>),
    LessOrEqual(Option<u32>),
    BothTrue,
    OneTrue,
    Maximum(Option<u32>),
    Minimum(Option<u32>),
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Assign(Slot, Value),
    AssignSlice {
        slot: Slot,
        low: u32,
        mask: u128,
        value: Value,
    },
    If(Value, Vec<Step>, Vec<Step>),
    /// Applies a table. The slot, if any, is set to whether an entry matched.
    Apply {
        table: usize,
        hit: Option<Slot>,
    },
    /// Runs an action whose parameters have been assigned.
    Run(usize),
    Execute {
        action: usize,
        index: Value,
    },
    Hash {
        hash: usize,
        input: Vec<(Value, u32)>,
        to: Slot,
    },
    Count {
        counter: usize,
        index: Value,
    },
    Digest {
        digest: usize,
        fields: Vec<(Value, u32)>,
    },
    Resubmit(usize),
    Emit(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) slot: Slot,
    pub(crate) width: u32,
    pub(crate) offset: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) valid: Slot,
    pub(crate) fields: Vec<Field>,
    pub(crate) bytes: usize,
}

/// Header stack that a parser extracts element by element.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    /// Number of extracted elements.
    pub(crate) extracted: Slot,
    /// Indices of its headers.
    pub(crate) elements: Vec<usize>,
    /// Copy of the last extracted header.
    pub(crate) last: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum ParserStep {
    Extract(usize),
    /// Extracts the next element of a stack.
    ExtractNext(usize),
    Advance(usize),
    /// Reads `width` bits from `skip` bits ahead. `need` bits must be left.
    Lookahead {
        to: Slot,
        skip: u32,
        width: u32,
        need: usize,
    },
    /// Sets the parser counter.
    SetCounter(Slot, u8),
    /// Adds to the parser counter, modulo 256.
    AddToCounter(Slot, u8),
    Step(Step),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Accept,
    Reject,
    State(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) value: u128,
    pub(crate) mask: u128,
    pub(crate) to: Target,
}

#[derive(Clone, Debug)]
pub(crate) enum Transition {
    To(Target),
    Select { keys: Vec<(Value, u32)>, cases: Vec<Case> },
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) name: Arc<str>,
    pub(crate) steps: Vec<ParserStep>,
    pub(crate) transition: Transition,
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: Arc<str>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Arc<str>,
    pub(crate) slot: Slot,
    pub(crate) width: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct RegisterAction {
    pub(crate) register: usize,
    /// Fields of the element while the action runs.
    pub(crate) element: Vec<Slot>,
    pub(crate) result: Option<Slot>,
    pub(crate) steps: Vec<Step>,
}

/// Register or counter array.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) name: Arc<str>,
    pub(crate) size: usize,
    /// Name, as in the schema, and width of each field of an element.
    pub(crate) fields: Vec<(String, u32)>,
    pub(crate) initial: Vec<u64>,
    /// Quantity that each field of a counter counts; empty for a register.
    pub(crate) counts: &'static [Quantity],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Bytes,
    Packets,
}

impl Quantity {
    /// Returns the name of the field in the schema.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Quantity::Bytes => "$COUNTER_SPEC_BYTES",
            Quantity::Packets => "$COUNTER_SPEC_PKTS",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RegisterParameter {
    pub(crate) name: Arc<str>,
    pub(crate) slot: Slot,
    pub(crate) width: u32,
    pub(crate) signed: bool,
    pub(crate) initial: u128,
    /// Register whose actions read it.
    pub(crate) register: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Algorithm {
    Crc(Box<Crc>),
    Identity,
    Xor(u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Hash {
    pub(crate) name: Arc<str>,
    pub(crate) algorithm: Algorithm,
    pub(crate) width: u32,
    /// Input; empty until the hash is used.
    pub(crate) input: Vec<HashInput>,
}

/// Input value of a hash, with its width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HashInput {
    Field(String, u32),
    Constant(u128, u32),
}

impl Hash {
    /// Returns the fields that a caller supplies, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, u32)> {
        self.input.iter().filter_map(|input| match input {
            HashInput::Field(name, width) => Some((name.as_str(), *width)),
            HashInput::Constant(..) => None,
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Digest {
    pub(crate) name: Arc<str>,
    pub(crate) fields: Vec<(String, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchKind {
    Exact,
    /// Longest-prefix match.
    Lpm,
    /// Value and mask, with entries in order of priority.
    Ternary,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyField {
    pub(crate) name: String,
    pub(crate) kind: MatchKind,
    pub(crate) width: u32,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) struct ConstantEntry {
    pub(crate) value: KeyBits,
    pub(crate) mask: KeyBits,
    pub(crate) action: usize,
    pub(crate) data: Vec<u128>,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: Arc<str>,
    pub(crate) annotations: Vec<String>,
    pub(crate) size: usize,
    pub(crate) key: Vec<KeyField>,
    /// Indices into the program's actions.
    pub(crate) actions: Vec<usize>,
    /// Whether the last of `actions` is an implicit default, since the program names none.
    pub(crate) implicit_default: bool,
    pub(crate) default: (usize, Vec<u128>),
    pub(crate) constant_default: bool,
    pub(crate) constant_entries: bool,
    pub(crate) entries: Vec<ConstantEntry>,
}

impl Table {
    /// Returns the actions that entries may have, as indices.
    pub(crate) fn entry_actions(&self) -> &[usize] {
        &self.actions[..self.actions.len() - usize::from(self.implicit_default)]
    }

    pub(crate) fn is_ternary(&self) -> bool {
        self.key.iter().any(|field| field.kind == MatchKind::Ternary)
    }
}

/// Slots of the intrinsic metadata that the model itself reads or writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Intrinsic {
    pub(crate) global_timestamp: Slot,
    pub(crate) parser_error: Slot,
    pub(crate) egress_port: Slot,
    pub(crate) drop: Slot,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) slots: usize,
    pub(crate) intrinsic: Intrinsic,
    pub(crate) reads_parser_error: bool,
    pub(crate) headers: Vec<Header>,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) states: Vec<State>,
    pub(crate) start: usize,
    pub(crate) ingress: Vec<Step>,
    pub(crate) deparser: Vec<Step>,
    pub(crate) actions: Vec<Action>,
    pub(crate) tables: Vec<Table>,
    pub(crate) arrays: Vec<Array>,
    pub(crate) register_actions: Vec<RegisterAction>,
    pub(crate) parameters: Vec<RegisterParameter>,
    pub(crate) hashes: Vec<Hash>,
    pub(crate) digests: Vec<Digest>,
    /// Full name of the ingress parser, for the table of port metadata.
    pub(crate) parser: String,
    /// Name of the ingress port in the parser.
    pub(crate) ingress_port: String,
}

/// Returns a mask of the lowest `width` bits.
pub(crate) fn mask(width: u32) -> u128 {
    u128::MAX.checked_shr(128_u32.saturating_sub(width)).unwrap_or(0)
}

//! Limits of Tofino 1. A program that exceeds them is rejected when it is loaded, so that it cannot
//! run here only.
//!
//! The limits are those that the chip's compiler checks, or beyond which it is known to fail. Only
//! the compiler knows where packets, stages and units are placed: a program accepted here may still
//! not fit.

use super::Compiler;
use crate::program::{Array, Operator, Program, Slot, Step, Value};
use crate::source::{Place, Result};
use hashbrown::{HashMap, HashSet};

/// Match-action stages.
const STAGES: usize = 12;
/// Maximum number of look-ups and registers that depend on each other. Mutually exclusive paths are
/// not distinguished here, so that a program that fits seems to have more than there are stages: up
/// to 14 for flowgauge's, which needs 11.
const LONGEST_CHAIN: usize = 2 * STAGES;
/// SRAM bits of a stage: 80 blocks of 1,024 words of 128 bits.
const SRAM_OF_STAGE: u128 = 80 * 1024 * 128;
/// TCAM blocks of all stages, and the size of each.
const TCAM_BLOCKS: u128 = STAGES as u128 * 24;
const TCAM_ENTRIES: u128 = 512;
const TCAM_BITS: u128 = 44;
/// Stateful ALUs of all stages.
const STATEFUL_ALUS: usize = STAGES * 4;
/// Limits of a stateful ALU: instructions, comparisons in each, and operands from the packet.
const SALU_INSTRUCTIONS: usize = 4;
const SALU_COMPARISONS: usize = 2;
const SALU_OPERANDS: usize = 2;
/// Bytes of a digest: 48, and one of them identifies the digest.
const DIGEST_BYTES: u32 = 47;
/// Maximum width of an addition, in bits.
const ADDER_BITS: u32 = 64;
/// Hash bits that an action can use: the action data bus has room for one immediate value.
const HASH_BITS: u32 = 32;

/// Arrays and tables that a packet has accessed.
pub(super) type AccessedObjects = HashSet<Unit>;

/// Object that belongs to one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unit {
    Array(usize),
    Table(usize),
}

/// Resources that an action, or a statement of a control, needs.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    pub(super) reached: AccessedObjects,
    /// Slots it has computed. All its instructions run in parallel, so that none can read the
    /// result of another.
    computed: HashSet<Slot>,
    hash_bits: u32,
    /// Whether it needs the hash distribution unit: for a hash, or for an address from the packet.
    distributes: bool,
}

impl Work {
    /// Merges the resources of two exclusive branches.
    pub(super) fn or(&mut self, other: Work) {
        self.reached.extend(other.reached);
        self.computed.extend(other.computed);
        self.hash_bits = self.hash_bits.max(other.hash_bits);
        self.distributes |= other.distributes;
    }

    /// Starts a new action for the next statement of a control.
    pub(super) fn next(&mut self) {
        *self = Work { reached: std::mem::take(&mut self.reached), ..Work::default() };
    }
}

impl Compiler {
    /// Notes that a packet accesses these units. No path may access a unit twice, since it belongs
    /// to one stage.
    pub(super) fn reach(&mut self, units: &AccessedObjects, place: &Place) -> Result<()> {
        let again = units.iter().find(|unit| self.work.reached.contains(*unit));
        if let Some(unit) = again {
            let (name, what) = match unit {
                Unit::Array(index) => (&self.program.arrays[*index].name, "reached twice"),
                Unit::Table(index) => (&self.program.tables[*index].name, "applied twice"),
            };
            return place.fail(format!(
                "{name} is {what} on one way through the program: it belongs to one stage, which a packet passes once; \
                 put both into branches of one if"
            ));
        }
        self.work.reached.extend(units);
        Ok(())
    }

    /// Returns the units that applying a table accesses: the table itself, and those of its
    /// actions.
    pub(super) fn reached_by_table(&self, table: usize) -> AccessedObjects {
        let actions = &self.program.tables[table].actions;
        let by_actions = actions
            .iter()
            .filter_map(|action| self.work_of_action.get(action))
            .flat_map(|work| &work.reached);
        by_actions.copied().chain([Unit::Table(table)]).collect()
    }

    /// Notes the address of an array. Constants and action data are available; other addresses are
    /// distributed like hashes.
    pub(super) fn address(&mut self, index: &Value) {
        let is_at_hand = is_constant(index)
            || matches!(index, Value::Slot(slot) if self.action_data.contains(slot));
        self.work.distributes |= !is_at_hand;
    }

    /// Notes that this many bits of a hash are needed here.
    pub(super) fn hash(&mut self, bits: u32, place: &Place) -> Result<()> {
        self.work.distributes = true;
        self.work.hash_bits += bits;
        if self.work.hash_bits <= HASH_BITS {
            return Ok(());
        }
        let total = self.work.hash_bits;
        place.fail(format!("{total} bits of hashes in one action: its data bus has room for {HASH_BITS}; use an action for each"))
    }

    /// Notes that an action runs, as part of another one or on its own.
    pub(super) fn run_within(&mut self, is_part: bool, work: &Work, place: &Place) -> Result<()> {
        self.reach(&work.reached, place)?;
        if !is_part {
            return Ok(());
        }
        self.work.distributes |= work.distributes;
        if work.hash_bits > 0 { self.hash(work.hash_bits, place) } else { Ok(()) }
    }

    /// Checks that what a deparser sends is sent under a condition: a counting field selects one of
    /// several.
    pub(super) fn check_conditional(&self, what: &str, place: &Place) -> Result<()> {
        if self.conditions > 0 {
            return Ok(());
        }
        place.fail(format!(
            "{what} without a condition: a deparser sends one if a field says so; put it into an if"
        ))
    }

    /// Checks that a keyed table can have this action as its default: hash distribution is not
    /// available on a miss.
    pub(super) fn check_default(&self, table: &crate::program::Table, place: &Place) -> Result<()> {
        let action = table.default.0;
        if table.key.is_empty()
            || !self.work_of_action.get(&action).is_some_and(|work| work.distributes)
        {
            return Ok(());
        }
        let (name, action) = (&table.name, &self.program.actions[action].name);
        place.fail(format!(
            "{name} with a key has the default action {action}, which takes a hash, or an address from the packet: \
             when nothing matches, the hash distribution units are not at hand"
        ))
    }

    /// Checks that each step from `first` on, of an action, is one instruction whose operands were
    /// computed before the action.
    pub(super) fn check_instructions(&mut self, first: usize, place: &Place) -> Result<()> {
        if instructions(&self.program, &self.steps[first..], &mut self.work.computed) {
            return Ok(());
        }
        place.fail(
            "an operation on the result of another one in one action: its instructions run at once, each with two operands; \
             put the second into an action of its own",
        )
    }

    /// Checks that a register has an instruction left for another action.
    pub(super) fn check_register_actions(&self, register: usize, place: &Place) -> Result<()> {
        let others = self
            .program
            .register_actions
            .iter()
            .filter(|action| action.register == register)
            .count();
        if others < SALU_INSTRUCTIONS {
            return Ok(());
        }
        let name = &self.program.arrays[register].name;
        place.fail(format!(
            "{name} has more than {SALU_INSTRUCTIONS} register actions: a stateful ALU has {SALU_INSTRUCTIONS} instructions"
        ))
    }

    /// Checks that a stateful ALU can execute this on an element.
    pub(super) fn check_register_action(
        &self,
        steps: &[Step],
        own: &[Slot],
        place: &Place,
    ) -> Result<()> {
        let mut work = RegisterWork {
            own,
            parameters: self.program.parameters.iter().map(|parameter| parameter.slot).collect(),
            ..RegisterWork::default()
        };
        work.steps(steps);
        if let Some(problem) = work.problem {
            return place.fail(problem);
        }
        if work.comparisons.len() > SALU_COMPARISONS {
            let number = work.comparisons.len();
            return place.fail(format!(
                "{number} comparisons in a register action: a stateful ALU has {SALU_COMPARISONS}"
            ));
        }
        if work.operands.len() > SALU_OPERANDS {
            let number = work.operands.len();
            return place
                .fail(format!("{number} operands from the packet in a register action: a stateful ALU has {SALU_OPERANDS}"));
        }
        Ok(())
    }

    /// Checks that everything fits into the chip together, and that no chain of dependent look-ups
    /// is longer than the stages.
    pub(super) fn check_totals(&self, place: &Place) -> Result<()> {
        let Program { arrays, tables, .. } = &self.program;
        let registers: Vec<&Array> =
            arrays.iter().filter(|array| array.counts.is_empty()).collect();
        if registers.len() > STATEFUL_ALUS {
            let number = registers.len();
            return place.fail(format!(
                "{number} registers: the chip has {STATEFUL_ALUS} stateful ALUs, one for each"
            ));
        }
        let chip = SRAM_OF_STAGE * STAGES as u128;
        let of_registers = registers.iter().map(|register| {
            let width: u32 = register.fields.iter().map(|(_, width)| width).sum();
            register.size as u128 * u128::from(width)
        });
        let (mut sram, mut tcam) = (of_registers.sum::<u128>(), 0);
        for table in tables {
            match cells_of_tcam(table) {
                Some(blocks) => tcam += blocks,
                None => sram += bits_of_sram(table),
            }
        }
        if sram > chip {
            return place.fail(format!(
                "registers and tables take {sram} bits of SRAM: the chip has {chip}"
            ));
        }
        if tcam > TCAM_BLOCKS {
            return place
                .fail(format!("tables take {tcam} blocks of TCAM: the chip has {TCAM_BLOCKS}"));
        }
        let mut chain = Chain { compiler: self, ready: HashMap::new(), longest: 0 };
        chain.steps(&self.program.ingress, 0);
        if chain.longest > LONGEST_CHAIN {
            let longest = chain.longest;
            let problem = format!(
                "{longest} look-ups and registers depend on one another: more than twice the chip's {STAGES} stages"
            );
            return place.fail(problem);
        }
        Ok(())
    }
}

/// Returns the TCAM blocks of a table; `None` for an exact table.
fn cells_of_tcam(table: &crate::program::Table) -> Option<u128> {
    let is_exact = table.key.iter().all(|field| field.kind == crate::program::MatchKind::Exact);
    let width: u128 = table.key.iter().map(|field| u128::from(field.width)).sum();
    (!is_exact).then(|| (table.size as u128).div_ceil(TCAM_ENTRIES) * width.div_ceil(TCAM_BITS))
}

fn bits_of_sram(table: &crate::program::Table) -> u128 {
    let width: u128 = table.key.iter().map(|field| u128::from(field.width)).sum();
    table.size as u128 * width
}

/// Checks that a table fits into the chip.
pub(super) fn check_table(table: &crate::program::Table, place: &Place) -> Result<()> {
    let (name, size) = (&table.name, table.size);
    match cells_of_tcam(table) {
        Some(blocks) if blocks > TCAM_BLOCKS => place.fail(format!(
            "{name} of {size} entries takes {blocks} blocks of TCAM: the chip has {TCAM_BLOCKS}"
        )),
        None if bits_of_sram(table) > SRAM_OF_STAGE * STAGES as u128 => {
            let (bits, chip) = (bits_of_sram(table), SRAM_OF_STAGE * STAGES as u128);
            place.fail(format!(
                "{name} of {size} entries takes {bits} bits of SRAM: the chip has {chip}"
            ))
        }
        _ => Ok(()),
    }
}

/// Checks that a register fits into a stage.
pub(super) fn check_register(
    name: &str,
    size: usize,
    fields: &[(String, u32)],
    place: &Place,
) -> Result<()> {
    let width: u32 = fields.iter().map(|(_, width)| width).sum();
    let bits = size as u128 * u128::from(width);
    if bits <= SRAM_OF_STAGE {
        return Ok(());
    }
    place.fail(format!(
        "{name} of {size} elements takes {bits} bits of SRAM: a stage, in which a register lies, has {SRAM_OF_STAGE}"
    ))
}

/// Checks that a digest can be sent.
pub(super) fn check_digest(fields: &[(String, u32)], place: &Place) -> Result<()> {
    let bytes: u32 = fields.iter().map(|(_, width)| width.div_ceil(8)).sum();
    if bytes <= DIGEST_BYTES {
        return Ok(());
    }
    place.fail(format!("a digest of {bytes} bytes: the chip sends at most {DIGEST_BYTES}"))
}

/// Checks that an ALU supports this operator at this width.
pub(super) fn check_operator(
    operator: &Operator,
    left: &Value,
    right: &Value,
    width: u32,
    place: &Place,
) -> Result<()> {
    match operator {
        Operator::Multiply(_) if !is_constant(left) && !is_constant(right) => {
            place.fail("a multiplication of two variables: the chip has no multiplier")
        }
        Operator::Multiply(_) if is_other_than_power(left) || is_other_than_power(right) => {
            place.fail("a multiplication by a constant that is not a power of two: the chip shifts")
        }
        Operator::ShiftLeft(_) | Operator::ShiftRight { .. } if !is_constant(right) => place.fail(
            "a shift by a variable: the chip shifts by constants; look the result up in a table",
        ),
        Operator::Add(_)
        | Operator::Subtract(_)
        | Operator::AddSaturating { .. }
        | Operator::SubtractSaturating { .. }
            if width > ADDER_BITS =>
        {
            place.fail(format!("an addition of {width} bits: the chip adds at most {ADDER_BITS}"))
        }
        _ => Ok(()),
    }
}

/// Whether each step of an action is one instruction that does not read anything `computed` in this
/// action, except to copy it.
fn instructions(program: &Program, steps: &[Step], computed: &mut HashSet<Slot>) -> bool {
    steps.iter().all(|step| match step {
        Step::Assign(slot, value) => {
            let (operations, reads) = (operations(value), reads_any(value, computed));
            if operations > 0 || reads {
                computed.insert(*slot);
            } else {
                computed.remove(slot);
            }
            operations + usize::from(operations > 0 && reads) <= 1
        }
        Step::AssignSlice { slot, value, .. } => {
            if reads_any(value, computed) {
                computed.insert(*slot);
            }
            true
        }
        Step::If(_, then, otherwise) => {
            let mut other = computed.clone();
            let both = instructions(program, then, computed)
                && instructions(program, otherwise, &mut other);
            computed.extend(other);
            both
        }
        Step::Run(action) => instructions(program, &program.actions[*action].steps, computed),
        _ => true,
    })
}

fn reads_any(value: &Value, slots: &HashSet<Slot>) -> bool {
    matches!(value, Value::Slot(slot) if slots.contains(slot))
        || value.operands().any(|operand| reads_any(operand, slots))
}

/// Returns the number of consecutive instructions that compute a value, without the final move. The
/// compiler places conditions.
fn operations(value: &Value) -> usize {
    match value {
        Value::Constant(_) | Value::Slot(_) | Value::Not(_) | Value::Predicate(_) => 0,
        Value::Slice { of, .. } | Value::Extend { of, .. } => operations(of),
        Value::Complement(of, _) => operations(of).max(1),
        Value::Negate(of, _) => operations(of) + 1,
        Value::Conditional(of) => operations(&of.1).max(operations(&of.2)),
        Value::Binary(operator, sides) => {
            let (left, right) = (&sides.0, &sides.1);
            match operator {
                Operator::Concatenate(_) => operations(left).max(operations(right)),
                Operator::Equal
                | Operator::NotEqual
                | Operator::Less(_)
                | Operator::LessOrEqual(_) => 0,
                Operator::BothTrue | Operator::OneTrue => 0,
                // A deposit of some bits into others, by a mask.
                Operator::Or if is_deposit(left, right) => 1,
                // The compiler combines constants.
                _ if is_constant(right) && ends_alike(operator, left) => operations(left),
                // Complements of operands are part of the instruction.
                Operator::And | Operator::Or | Operator::Xor => {
                    1 + operations(whole(left)).max(operations(whole(right)))
                }
                _ => 1 + operations(left).max(operations(right)),
            }
        }
    }
}

/// Whether a value is the same operation with a constant.
fn ends_alike(operator: &Operator, value: &Value) -> bool {
    let Value::Binary(of, sides) = value else {
        return false;
    };
    let sum = |operator: &Operator| matches!(operator, Operator::Add(_) | Operator::Subtract(_));
    let same =
        std::mem::discriminant(operator) == std::mem::discriminant(of) || sum(operator) && sum(of);
    same && is_constant(&sides.1)
}

fn whole(value: &Value) -> &Value {
    match value {
        Value::Complement(of, _) => of,
        value => value,
    }
}

fn is_deposit(left: &Value, right: &Value) -> bool {
    let mask = |value: &Value| match value {
        Value::Binary(Operator::And, sides) if operations(&sides.0) == 0 => match sides.1 {
            Value::Constant(mask) => Some(mask),
            _ => None,
        },
        _ => None,
    };
    matches!((mask(left), mask(right)), (Some(left), Some(right)) if left & right == 0)
}

/// Checks that a gateway can evaluate this condition.
pub(super) fn check_condition(condition: &Value, place: &Place) -> Result<()> {
    let problem = match condition {
        Value::Not(of) => return check_condition(of, place),
        Value::Binary(Operator::BothTrue | Operator::OneTrue, sides) => {
            check_condition(&sides.0, place)?;
            return check_condition(&sides.1, place);
        }
        Value::Binary(_, sides) if computes(&sides.0) || computes(&sides.1) => {
            "a condition on a result of arithmetic: a gateway compares fields as they are; compute it in an action before"
        }
        Value::Binary(Operator::Less(_) | Operator::LessOrEqual(_), sides)
            if !is_constant(&sides.0) && !is_constant(&sides.1) =>
        {
            "a condition on which of two fields is less: a gateway compares with constants; look at a bit of their difference"
        }
        _ => return Ok(()),
    };
    place.fail(problem)
}

/// Checks that an index is an existing value.
pub(super) fn check_index(index: &Value, place: &Place) -> Result<()> {
    if !computes(index) {
        return Ok(());
    }
    place.fail(
        "arithmetic in an index: an address takes bits as they are; compute it in an action before",
    )
}

/// Checks that a parser can assign these values.
pub(super) fn check_parser(steps: &[Step], place: &Place) -> Result<()> {
    let is_fine = |step: &Step| match step {
        Step::Assign(_, value) | Step::AssignSlice { value, .. } => !computes(value),
        _ => true,
    };
    if steps.iter().all(is_fine) {
        Ok(())
    } else {
        place.fail("arithmetic in a parser: it copies fields and constants")
    }
}

fn is_other_than_power(value: &Value) -> bool {
    matches!(value, Value::Constant(constant) if !constant.is_power_of_two())
}

fn is_constant(value: &Value) -> bool {
    matches!(value, Value::Constant(_))
}

/// Whether a value needs an adder, a shifter or a comparison.
fn computes(value: &Value) -> bool {
    let is_computed = match value {
        Value::Negate(..) | Value::Conditional(_) | Value::Predicate(_) => true,
        Value::Binary(operator, _) => !matches!(
            operator,
            Operator::Concatenate(_)
                | Operator::And
                | Operator::Or
                | Operator::Xor
                | Operator::Equal
                | Operator::NotEqual
                | Operator::Less(_)
                | Operator::LessOrEqual(_)
                | Operator::BothTrue
                | Operator::OneTrue
        ),
        _ => false,
    };
    is_computed || value.operands().any(computes)
}

/// Resources that a register action needs of a stateful ALU.
#[derive(Default)]
struct RegisterWork<'a> {
    /// The element and the result.
    own: &'a [Slot],
    parameters: HashSet<Slot>,
    /// Comparisons, each once in either form.
    comparisons: HashSet<String>,
    operands: HashSet<String>,
    problem: Option<String>,
}

impl RegisterWork<'_> {
    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::If(condition, then, otherwise) => {
                    self.condition(condition);
                    self.steps(then);
                    self.steps(otherwise);
                }
                Step::Assign(_, value) => self.result(value),
                Step::AssignSlice { .. } => {
                    self.refuse("a part of an element or of a result is assigned to: a stateful ALU writes the whole");
                }
                _ => {}
            }
        }
    }

    fn condition(&mut self, condition: &Value) {
        match condition {
            Value::Not(of) => self.condition(of),
            Value::Binary(Operator::BothTrue | Operator::OneTrue, sides) => {
                self.condition(&sides.0);
                self.condition(&sides.1);
            }
            Value::Binary(operator, sides) => {
                let (left, right) = (&sides.0, &sides.1);
                // a <= b differs from b < a.
                let comparison = match operator {
                    Operator::Equal | Operator::NotEqual => {
                        let mut sides = [format!("{left:?}"), format!("{right:?}")];
                        sides.sort();
                        format!("{sides:?}")
                    }
                    Operator::Less(signed) => format!("{signed:?} {left:?} {right:?}"),
                    Operator::LessOrEqual(signed) => format!("{signed:?} {right:?} {left:?}"),
                    _ => format!("{condition:?}"),
                };
                self.comparisons.insert(comparison);
                self.compared(left);
                self.compared(right);
            }
            // A bit is compared with zero.
            Value::Constant(_) => {}
            bit => {
                self.comparisons.insert(format!("{bit:?}"));
                self.compared(bit);
            }
        }
    }

    fn compared(&mut self, value: &Value) {
        if let Value::Slice { of, .. } = value
            && matches!(&**of, Value::Slot(slot) if self.own.contains(slot))
        {
            self.refuse(
                "a comparison with a part of an element: a stateful ALU compares the whole",
            );
        }
        self.operand(value);
    }

    /// Checks a stored or returned value: one operation with two operands.
    fn result(&mut self, value: &Value) {
        match value {
            Value::Predicate(conditions) => {
                self.condition(&conditions.0);
                self.condition(&conditions.1);
            }
            Value::Binary(operator, sides) if !matches!(operator, Operator::Concatenate(_)) => {
                if computes_deep(&sides.0) || computes_deep(&sides.1) {
                    self.refuse("an operation of more than two operands in a register action: a stateful ALU has one of two");
                }
                self.operand(value);
            }
            value => self.operand(value),
        }
    }

    /// Collects operands from the packet, and operations that the ALU does not support.
    fn operand(&mut self, value: &Value) {
        match value {
            Value::Constant(_) => {}
            Value::Slot(slot) if self.own.contains(slot) || self.parameters.contains(slot) => {}
            Value::Slot(_) => self.of_packet(value),
            Value::Slice { of, .. } => match &**of {
                Value::Slot(slot) if !self.own.contains(slot) => self.of_packet(value),
                of => self.operand(of),
            },
            Value::Complement(of, _)
            | Value::Negate(of, _)
            | Value::Not(of)
            | Value::Extend { of, .. } => self.operand(of),
            Value::Binary(operator, sides) => {
                match operator {
                    Operator::Multiply(_) => self
                        .refuse("a multiplication in a register action: a stateful ALU has none"),
                    Operator::ShiftLeft(_) | Operator::ShiftRight { .. } => {
                        self.refuse("a shift in a register action: a stateful ALU has none");
                    }
                    _ => {}
                }
                self.operand(&sides.0);
                self.operand(&sides.1);
            }
            Value::Conditional(of) => {
                self.condition(&of.0);
                self.operand(&of.1);
                self.operand(&of.2);
            }
            Value::Predicate(of) => {
                self.condition(&of.0);
                self.condition(&of.1);
            }
        }
    }

    fn of_packet(&mut self, value: &Value) {
        self.operands.insert(format!("{value:?}"));
    }

    fn refuse(&mut self, problem: &str) {
        self.problem.get_or_insert_with(|| problem.to_owned());
    }
}

/// Whether an operand is itself the result of a binary operation.
fn computes_deep(value: &Value) -> bool {
    match value {
        Value::Predicate(_) => false,
        Value::Conditional(_) => true,
        Value::Binary(operator, _) if !matches!(operator, Operator::Concatenate(_)) => true,
        _ => value.operands().any(computes_deep),
    }
}

/// Length of chains of dependent look-ups and registers, along the longest path of a value.
struct Chain<'a> {
    compiler: &'a Compiler,
    /// Stage from which on a value is available.
    ready: HashMap<Slot, usize>,
    longest: usize,
}

impl Chain<'_> {
    fn stage_of(&self, value: &Value) -> usize {
        match value {
            Value::Slot(slot) => self.ready.get(slot).copied().unwrap_or(0),
            _ => self.latest(value.operands()),
        }
    }

    /// Returns the stage from which on all these values are available.
    fn latest<'v>(&self, values: impl IntoIterator<Item = &'v Value>) -> usize {
        values.into_iter().map(|value| self.stage_of(value)).max().unwrap_or(0)
    }

    /// Visits steps. `from` is the stage of their conditions, or of the table whose action they
    /// are.
    fn steps(&mut self, steps: &[Step], from: usize) {
        for step in steps {
            match step {
                Step::Assign(slot, value) => {
                    let stage = self.stage_of(value).max(from);
                    self.ready.insert(*slot, stage);
                }
                Step::AssignSlice { slot, value, .. } => {
                    let stage =
                        self.stage_of(value).max(from).max(self.stage_of(&Value::Slot(*slot)));
                    self.ready.insert(*slot, stage);
                }
                Step::If(condition, then, otherwise) => {
                    let from = from.max(self.stage_of(condition));
                    let before = self.ready.clone();
                    self.steps(then, from);
                    let after = std::mem::replace(&mut self.ready, before);
                    self.steps(otherwise, from);
                    for (slot, stage) in after {
                        let other = self.ready.entry(slot).or_insert(stage);
                        *other = stage.max(*other);
                    }
                }
                Step::Apply { table, hit } => {
                    let table = &self.compiler.program.tables[*table];
                    let key = self.latest(table.key.iter().map(|field| &field.value)).max(from);
                    // The result is available in the next stage. A table without a key may be
                    // merged with others.
                    let found = if table.key.is_empty() { key } else { self.take(key) };
                    self.ready.extend(hit.map(|hit| (hit, found)));
                    let before = self.ready.clone();
                    let mut after = before.clone();
                    for action in &table.actions {
                        self.ready.clone_from(&before);
                        self.steps(&self.compiler.program.actions[*action].steps, found);
                        for (slot, stage) in &self.ready {
                            let other = after.entry(*slot).or_insert(*stage);
                            *other = (*stage).max(*other);
                        }
                    }
                    self.ready = after;
                }
                Step::Run(action) => {
                    self.steps(&self.compiler.program.actions[*action].steps, from)
                }
                Step::Execute { action, index } => {
                    let action = &self.compiler.program.register_actions[*action];
                    let stage = self.latest(inputs(&action.steps)).max(self.stage_of(index));
                    let available = self.take(stage.max(from));
                    self.ready.extend(action.result.map(|result| (result, available)));
                }
                Step::Hash { input, to, .. } => {
                    let stage = self.latest(input.iter().map(|(value, _)| value)).max(from);
                    self.ready.insert(*to, stage);
                }
                Step::Count { .. } | Step::Digest { .. } | Step::Resubmit(_) | Step::Emit(_) => {}
            }
        }
    }

    /// Notes a look-up or register in this stage; its result is available in the next one.
    fn take(&mut self, stage: usize) -> usize {
        self.longest = self.longest.max(stage + 1);
        stage + 1
    }
}

/// Returns the values that a register action reads.
fn inputs(steps: &[Step]) -> Vec<&Value> {
    let mut values = Vec::new();
    for step in steps {
        match step {
            Step::If(condition, then, otherwise) => {
                values.push(condition);
                values.extend(inputs(then));
                values.extend(inputs(otherwise));
            }
            Step::Assign(_, value) | Step::AssignSlice { value, .. } => values.push(value),
            _ => {}
        }
    }
    values
}

//! Parser states.

use super::storage::{Scalar, Storage};
use super::{Binding, Compiler, Scope, UnsizedExpression, Within, limits};
use crate::ast::{self, ExpressionKind, StatementKind, TypeKind};
use crate::program::{self, ParserStep, Slot, State, Step, Target, Transition, Value};
use crate::source::{Place, Result};
use hashbrown::HashMap;
use std::rc::Rc;

/// Maximum width of a select key.
const MAX_SELECT: u32 = 128;
/// Bits that a Tofino parser can look ahead.
const MAX_LOOKAHEAD: i128 = 256;

/// Block, its path and its arguments.
type ParserCall = (Rc<ast::Block>, String, Vec<ast::Expression>);

impl Compiler {
    /// Compiles a parser, or one applied in another, and returns its first state. It continues at
    /// `accept`.
    pub(super) fn parser(
        &mut self,
        block: &Rc<ast::Block>,
        mut scope: Scope,
        accept: Target,
    ) -> Result<Target> {
        scope.within = Within::Parser;
        let mut targets: HashMap<String, Target> = HashMap::new();
        targets.insert("accept".to_owned(), accept);
        targets.insert("reject".to_owned(), Target::Reject);
        for local in &block.locals {
            match local {
                ast::Local::State(state) => {
                    let index = self.empty_state(&scope, &state.name);
                    if targets.insert(state.name.clone(), Target::State(index)).is_some() {
                        return state.place.fail(format!("state {} is defined twice", state.name));
                    }
                }
                ast::Local::Instance(instance) => {
                    let binding = self.instance(&scope, instance)?;
                    scope.names.insert(instance.name.clone(), binding);
                }
                ast::Local::Variable(variable) => {
                    if variable.value.is_some() && !variable.constant {
                        return variable.place.fail("unsupported initial value: assign in a state");
                    }
                    self.variable(&mut scope, variable)?;
                }
                ast::Local::Action(_) | ast::Local::Table(_) => {
                    return block.place.fail("a parser has no actions and tables");
                }
            }
        }
        for local in &block.locals {
            if let ast::Local::State(state) = local {
                self.state(state, &mut scope, &targets)?;
            }
        }
        targets
            .get("start")
            .copied()
            .ok_or_else(|| block.place.error(format!("parser {} has no state start", block.name)))
    }

    fn empty_state(&mut self, scope: &Scope, name: &str) -> usize {
        let name = self.full_name(scope, name);
        self.program.states.push(State {
            name,
            steps: Vec::new(),
            transition: Transition::To(Target::Reject),
        });
        self.program.states.len() - 1
    }

    fn complete(&mut self, index: usize, steps: Vec<ParserStep>, transition: Transition) {
        let state = &mut self.program.states[index];
        (state.steps, state.transition) = (steps, transition);
    }

    fn state(
        &mut self,
        state: &ast::State,
        scope: &mut Scope,
        targets: &HashMap<String, Target>,
    ) -> Result<()> {
        let Some(Target::State(mut index)) = targets.get(&state.name).copied() else {
            return state.place.fail("a state cannot be called accept or reject");
        };
        self.walked.clear();
        let mut steps = Vec::new();
        for statement in &state.body {
            if let Some((block, path, arguments)) = self.parser_call(scope, statement)? {
                let continuation = self.empty_state(scope, &state.name);
                let inner = self.bind(scope, &block, path, &arguments, &statement.place)?;
                let first = self.parser(&block, inner, Target::State(continuation))?;
                self.complete(index, std::mem::take(&mut steps), Transition::To(first));
                index = continuation;
                self.walked.clear();
            } else {
                self.parser_statement(scope, statement, &mut steps)?;
            }
        }
        let to = |name: &str, place: &Place| {
            targets.get(name).copied().ok_or_else(|| place.error(format!("no state {name}")))
        };
        let transition = match &state.transition {
            ast::Transition::To(place, name) => Transition::To(to(name, place)?),
            ast::Transition::Select { keys, cases } => {
                let mut values = Vec::new();
                for key in keys {
                    let typed = match self.is_zero(scope, key)? {
                        Some(is_zero) => UnsizedExpression::Bool(is_zero),
                        None => self.expression(scope, key)?,
                    };
                    values.push(self.with_width(typed, &key.place)?);
                }
                let widths: Vec<u32> = values.iter().map(|(_, width)| *width).collect();
                if widths.iter().sum::<u32>() > MAX_SELECT {
                    return state
                        .place
                        .fail(format!("unsupported select on more than {MAX_SELECT} bits"));
                }
                let mut compiled = Vec::new();
                for case in cases {
                    let (value, mask) = self.masked(scope, &case.key, &widths, &case.place)?;
                    let (value, mask) = (value.low(), mask.low());
                    compiled.push(program::Case { value, mask, to: to(&case.to, &case.place)? });
                }
                Transition::Select { keys: values, cases: compiled }
            }
        };
        self.walked.clear();
        self.complete(index, steps, transition);
        Ok(())
    }

    /// Compiles `counter.is_zero()` in a select.
    fn is_zero(&self, scope: &Scope, key: &ast::Expression) -> Result<Option<Value>> {
        let ExpressionKind::Call { callee, arguments, .. } = &key.kind else { return Ok(None) };
        let ExpressionKind::Member(of, method) = &callee.kind else { return Ok(None) };
        let Some(Binding::ParserCounter(slot)) = self.binding(scope, of) else { return Ok(None) };
        match (method.as_str(), arguments.as_slice()) {
            ("is_zero", []) => Ok(Some(Value::Not(Box::new(Value::Slot(slot))))),
            _ => key.place.fail(format!("unsupported {method} of a parser's counter in a select")),
        }
    }

    /// Compiles an operation of the parser counter, which has 8 bits with a sign. Setting it to a
    /// field is not supported: the compiler does not specify when the chip reads the field.
    fn counter_call(
        &mut self,
        scope: &Scope,
        slot: Slot,
        method: &str,
        argument: &ast::Expression,
    ) -> Result<ParserStep> {
        let number = match (method, &argument.kind) {
            ("set" | "increment" | "decrement", ExpressionKind::Number { .. }) => {
                self.number(scope, argument)?
            }
            _ => {
                return argument.place.fail(format!(
                    "unsupported {method} of a parser's counter by other than a number"
                ));
            }
        };
        match (method, u8::try_from(number)) {
            ("set", Ok(number @ 0..=127)) => Ok(ParserStep::SetCounter(slot, number)),
            ("increment", Ok(number @ 0..=127)) => Ok(ParserStep::AddToCounter(slot, number)),
            ("decrement", Ok(number @ 0..=127)) => {
                Ok(ParserStep::AddToCounter(slot, number.wrapping_neg()))
            }
            _ => argument.place.fail(format!("{number} is beyond a parser's counter")),
        }
    }

    /// Returns the parser applied in a state, if any.
    fn parser_call(&self, scope: &Scope, statement: &ast::Statement) -> Result<Option<ParserCall>> {
        if let StatementKind::Call(call) = &statement.kind
            && let ExpressionKind::Call { callee, arguments, .. } = &call.kind
            && let ExpressionKind::Member(of, method) = &callee.kind
            && method == "apply"
            && let Some(Binding::Block { block, path, .. }) = self.binding(scope, of)
        {
            if !block.parser {
                return statement.place.fail("a control cannot be applied in a parser");
            }
            return Ok(Some((block, path, arguments.clone())));
        }
        Ok(None)
    }

    fn parser_statement(
        &mut self,
        scope: &mut Scope,
        statement: &ast::Statement,
        steps: &mut Vec<ParserStep>,
    ) -> Result<()> {
        let place = &statement.place;
        match &statement.kind {
            StatementKind::Call(call) => {
                if let ExpressionKind::Call { callee, arguments, .. } = &call.kind
                    && let ExpressionKind::Member(of, method) = &callee.kind
                    && let [argument] = arguments.as_slice()
                {
                    let step = match self.binding(scope, of) {
                        Some(Binding::Packet) => {
                            Some(self.packet_call(scope, method, argument, place)?)
                        }
                        Some(Binding::ParserCounter(slot)) => {
                            Some(self.counter_call(scope, slot, method, argument)?)
                        }
                        _ => None,
                    };
                    if let Some(step) = step {
                        steps.push(step);
                        return Ok(());
                    }
                }
            }
            StatementKind::Assign(left, right) => {
                if let Some(lookahead) = self.lookahead(scope, right)? {
                    let Some(to) = self.storage(scope, left)? else {
                        return left.place.fail("cannot be assigned to");
                    };
                    return lookahead.steps(self, &to, &left.place, steps);
                }
            }
            StatementKind::Local(variable) => {
                if let Some(value) = &variable.value
                    && let Some(lookahead) = self.lookahead(scope, value)?
                {
                    let kind = self.kind(scope, &variable.kind)?;
                    let to = self.allocate(&kind)?;
                    lookahead.steps(self, &to, &variable.place, steps)?;
                    scope.names.insert(variable.name.clone(), Binding::Storage(to));
                    return Ok(());
                }
            }
            StatementKind::If(..) => {
                return place.fail("unsupported if in a parser: select a state");
            }
            _ => {}
        }
        let inner = self.collect(|compiler| compiler.statement(scope, statement))?;
        limits::check_parser(&inner, place)?;
        steps.extend(inner.into_iter().map(ParserStep::Step));
        Ok(())
    }

    fn packet_call(
        &mut self,
        scope: &Scope,
        method: &str,
        argument: &ast::Expression,
        place: &Place,
    ) -> Result<ParserStep> {
        match method {
            "extract" => match self.storage_to_extract(scope, argument)? {
                Some(Storage::Stack { walked: Some((stack, _)), .. }) => {
                    self.walked.insert(stack);
                    Ok(ParserStep::ExtractNext(stack))
                }
                Some(Storage::Header { index, .. }) => Ok(ParserStep::Extract(index)),
                _ => place.fail("extract takes a header"),
            },
            "advance" => match self.number(scope, argument)? {
                bits if bits >= 0 && bits % 8 == 0 => Ok(ParserStep::Advance(bits as usize / 8)),
                bits => place
                    .fail(format!("unsupported advance by {bits} bits, which are no whole bytes")),
            },
            _ => place.fail(format!("unsupported packet method {method}")),
        }
    }

    /// Returns the target of an extraction: a header, or the stack whose next element it names.
    fn storage_to_extract(
        &mut self,
        scope: &Scope,
        argument: &ast::Expression,
    ) -> Result<Option<Storage>> {
        if let ExpressionKind::Member(of, name) = &argument.kind
            && name == "next"
            && let Some(stack @ Storage::Stack { walked: Some(_), .. }) = self.storage(scope, of)?
        {
            return Ok(Some(stack));
        }
        match self.storage(scope, argument)? {
            Some(Storage::Stack { .. }) => argument.place.fail("extract takes a header"),
            storage => Ok(storage),
        }
    }

    /// Compiles `packet.lookahead<T>()` of a header or a number, or a slice of a number.
    fn lookahead(&mut self, scope: &Scope, right: &ast::Expression) -> Result<Option<Lookahead>> {
        let (call, slice) = match &right.kind {
            ExpressionKind::Slice { of, high, low } => (&**of, Some((high, low))),
            _ => (right, None),
        };
        let ExpressionKind::Call { callee, types, .. } = &call.kind else {
            return Ok(None);
        };
        let ExpressionKind::Member(of, method) = &callee.kind else {
            return Ok(None);
        };
        if method != "lookahead" || !matches!(self.binding(scope, of), Some(Binding::Packet)) {
            return Ok(None);
        }
        let place = &right.place;
        let [kind] = types.as_slice() else {
            return place.fail("lookahead names one type");
        };
        let total = match (&kind.kind, slice) {
            (TypeKind::Bits { width, signed: false }, _) => self.number(scope, width)?,
            (TypeKind::Named { name, .. }, None)
                if self.records.get(name).is_some_and(|record| record.header) =>
            {
                return Ok(Some(Lookahead::Header(name.clone())));
            }
            _ => return place.fail("unsupported lookahead of other than bit<N> or a header"),
        };
        if !(1..=MAX_LOOKAHEAD).contains(&total) {
            return place
                .fail(format!("lookahead of {total} bits: the parser sees {MAX_LOOKAHEAD}"));
        }
        let (high, low) = match slice {
            Some((high, low)) => (self.number(scope, high)?, self.number(scope, low)?),
            None => (total - 1, 0),
        };
        if !(0 <= low && low <= high && high < total) {
            return place.fail(format!("slice [{high}:{low}] of {total} bits"));
        }
        let width = (high - low + 1) as u32;
        let skip = (total - 1 - high) as u32;
        if skip % 8 + width > MAX_SELECT {
            return place.fail("unsupported lookahead: so wide and not on a byte boundary");
        }
        Ok(Some(Lookahead::Bits { skip, width, need: (total as usize).div_ceil(8) }))
    }

    /// Rejects loops. The chip supports them only if a header stack bounds them, and the compiler
    /// few in which some state does not extract the next element: it runs out of match registers
    /// for them.
    pub(super) fn refuse_loops(&self, place: &Place) -> Result<()> {
        let successors = |index: usize| -> Vec<usize> {
            let targets = match &self.program.states[index].transition {
                Transition::To(to) => vec![*to],
                Transition::Select { cases, .. } => cases.iter().map(|case| case.to).collect(),
            };
            targets
                .into_iter()
                .filter_map(|to| if let Target::State(state) = to { Some(state) } else { None })
                .collect()
        };
        let walks = |index: usize| {
            self.program.states[index]
                .steps
                .iter()
                .any(|step| matches!(step, ParserStep::ExtractNext(_)))
        };
        // Removes states that lead only to removed ones, and to themselves if that is bounded. The
        // rest leads to another loop.
        let mut done = vec![false; self.program.states.len()];
        loop {
            let is_ready = |state: usize| {
                successors(state).iter().all(|&next| done[next] || next == state && walks(state))
            };
            let ready: Vec<usize> =
                (0..done.len()).filter(|&state| !done[state] && is_ready(state)).collect();
            if ready.is_empty() {
                break;
            }
            ready.into_iter().for_each(|state| done[state] = true);
        }
        if done.iter().all(|&done| done) {
            return Ok(());
        }
        place.fail("unsupported loop of parser states, other than of one that extracts the next element of a stack")
    }
}

/// Target of a lookahead.
enum Lookahead {
    /// `width` bits from `skip` bits ahead. `need` bytes must be left.
    Bits { skip: u32, width: u32, need: usize },
    /// Header of this type.
    Header(String),
}

impl Lookahead {
    fn steps(
        self,
        compiler: &Compiler,
        to: &Storage,
        place: &Place,
        steps: &mut Vec<ParserStep>,
    ) -> Result<()> {
        match (self, to) {
            (
                Lookahead::Bits { skip, width, need },
                Storage::Scalar(Scalar { slot, width: field, signed: false, boolean: false }),
            ) if *field == width => {
                steps.push(ParserStep::Lookahead { to: *slot, skip, width, need });
                Ok(())
            }
            (Lookahead::Bits { width, .. }, _) => {
                place.fail(format!("lookahead of {width} bits needs a field of as many"))
            }
            (Lookahead::Header(name), Storage::Header { index, valid, .. }) => {
                let header = &compiler.program.headers[*index];
                if header.name != name {
                    return place.fail(format!("lookahead of a {name} into a {}", header.name));
                }
                if header.bytes as i128 * 8 > MAX_LOOKAHEAD {
                    return place.fail(format!(
                        "lookahead of {} bits: the parser sees {MAX_LOOKAHEAD}",
                        header.bytes * 8
                    ));
                }
                let field = |field: &program::Field| ParserStep::Lookahead {
                    to: field.slot,
                    skip: field.offset,
                    width: field.width,
                    need: header.bytes,
                };
                steps.extend(header.fields.iter().map(field));
                steps.push(ParserStep::Step(Step::Assign(*valid, Value::Constant(1))));
                Ok(())
            }
            (Lookahead::Header(name), _) => {
                place.fail(format!("lookahead of a {name} needs a header"))
            }
        }
    }
}

/// Joins the values of a key, starting with the most significant bits.
pub(crate) fn packed(values: impl Iterator<Item = (u128, u32)>) -> u128 {
    values.fold(0, |key: u128, (value, width)| key.checked_shl(width).unwrap_or(0) | value)
}

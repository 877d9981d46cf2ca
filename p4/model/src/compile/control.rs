//! Controls, actions and tables.

use super::storage::{Scalar, Storage};
use super::{Binding, Compiler, Scope, UnsizedExpression, Within, limits};
use crate::ast::{self, ExpressionKind, StatementKind};
use crate::matching::{KeyBits, MAX_KEY};
use crate::program::{self, ConstantEntry, KeyField, MatchKind, Parameter, Step, Value, mask};
use crate::source::{Place, Result};
use std::rc::Rc;

const DEFAULT_SIZE: usize = 512;
/// Size of the data that a resubmitted packet carries instead of port metadata.
const RESUBMIT_BYTES: usize = 8;

impl Compiler {
    /// Declares a control's locals and compiles its body.
    pub(super) fn control(&mut self, block: &ast::Block, mut scope: Scope) -> Result<Vec<Step>> {
        self.collect(|compiler| {
            for local in &block.locals {
                compiler.local(&mut scope, local)?;
            }
            compiler.statements(&mut scope, &block.body)
        })
    }

    /// Returns the steps of a part of the program.
    pub(super) fn collect(
        &mut self,
        compile: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Vec<Step>> {
        let outer = std::mem::take(&mut self.steps);
        compile(self)?;
        Ok(std::mem::replace(&mut self.steps, outer))
    }

    fn local(&mut self, scope: &mut Scope, local: &ast::Local) -> Result<()> {
        match local {
            ast::Local::Variable(variable) => self.variable(scope, variable),
            ast::Local::Instance(instance) => {
                let binding = self.instance(scope, instance)?;
                scope.names.insert(instance.name.clone(), binding);
                Ok(())
            }
            ast::Local::Action(action) => {
                let index = self.action(scope, action)?;
                scope.names.insert(action.name.clone(), Binding::Action(index));
                Ok(())
            }
            ast::Local::Table(table) => {
                let index = self.table(scope, table)?;
                scope.names.insert(table.name.clone(), Binding::Table(index));
                Ok(())
            }
            ast::Local::State(state) => state.place.fail("a state belongs in a parser"),
        }
    }

    pub(super) fn variable(&mut self, scope: &mut Scope, variable: &ast::Variable) -> Result<()> {
        let binding = if variable.constant {
            Binding::Constant(self.constant(scope, variable)?)
        } else if matches!(scope.within, Within::RegisterAction(_)) {
            return variable
                .place
                .fail("unsupported variable in a register action: the chip's ALU has none");
        } else {
            let kind = self.kind(scope, &variable.kind)?;
            let storage = self.allocate(&kind)?;
            if let Some(value) = &variable.value {
                self.assign_to(scope, &storage, value)?;
            }
            Binding::Storage(storage)
        };
        scope.names.insert(variable.name.clone(), binding);
        Ok(())
    }

    fn action(&mut self, scope: &Scope, action: &ast::Action) -> Result<usize> {
        let mut inner = Scope { within: Within::Action, ..scope.clone() };
        let mut parameters = Vec::new();
        for parameter in &action.parameters {
            let kind = self.kind(scope, &parameter.kind)?;
            let storage = self.allocate(&kind)?;
            let Some(Scalar { slot, width, .. }) = storage.scalar() else {
                return parameter.place.fail("an action's parameters are numbers");
            };
            parameters.push(Parameter { name: parameter.name.as_str().into(), slot, width });
            inner.names.insert(parameter.name.clone(), Binding::Storage(storage));
        }
        let before = std::mem::take(&mut self.work);
        self.action_data = parameters.iter().map(|parameter| parameter.slot).collect();
        let steps = self.collect(|compiler| compiler.statements(&mut inner, &action.body))?;
        self.action_data.clear();
        let work = std::mem::replace(&mut self.work, before);
        let name = format!("{}.{}", scope.path, action.name).into();
        self.program.actions.push(program::Action { name, parameters, steps });
        let index = self.program.actions.len() - 1;
        self.work_of_action.insert(index, work);
        Ok(index)
    }

    fn no_action(&mut self) -> usize {
        let known = self.program.actions.iter().position(|action| &*action.name == "NoAction");
        known.unwrap_or_else(|| {
            self.program.actions.push(program::Action {
                name: "NoAction".into(),
                parameters: Vec::new(),
                steps: Vec::new(),
            });
            self.program.actions.len() - 1
        })
    }

    fn action_named(&mut self, scope: &Scope, name: &str, place: &Place) -> Result<usize> {
        match scope.names.get(name) {
            Some(Binding::Action(index)) => Ok(*index),
            None if name == "NoAction" => Ok(self.no_action()),
            _ => place.fail(format!("unknown action {name}")),
        }
    }

    fn table(&mut self, scope: &Scope, table: &ast::Table) -> Result<usize> {
        let mut key = Vec::new();
        for element in &table.key {
            let kind = match element.kind.as_str() {
                "exact" => MatchKind::Exact,
                "lpm" => MatchKind::Lpm,
                "ternary" => MatchKind::Ternary,
                other => {
                    return element
                        .place
                        .fail(format!("unsupported match kind {other}: exact, lpm, ternary"));
                }
            };
            let typed = self.expression(scope, &element.value)?;
            let (value, width) = self.with_width(typed, &element.place)?;
            let name = element.name.clone().unwrap_or_else(|| self.spelled(scope, &element.value));
            key.push(KeyField { name, kind, width, value });
        }
        let total: u32 = key.iter().map(|field| field.width).sum();
        if total > MAX_KEY {
            return table.place.fail(format!("unsupported key of {total} bits: at most {MAX_KEY}"));
        }
        if key.iter().filter(|field| field.kind == MatchKind::Lpm).count() > 1 {
            return table.place.fail("a table has at most one lpm field");
        }
        let mut actions = Vec::new();
        for (place, name) in &table.actions {
            actions.push(self.action_named(scope, name, place)?);
        }
        let mut implicit_default = false;
        let (default, constant_default) = match &table.default {
            Some((expression, constant)) => {
                (self.bound_action(scope, expression, &actions)?, *constant)
            }
            None => {
                let nothing = self.no_action();
                implicit_default = !actions.contains(&nothing);
                if implicit_default {
                    actions.push(nothing);
                }
                ((nothing, Vec::new()), false)
            }
        };
        let size = match &table.size {
            None => DEFAULT_SIZE,
            Some(size) => {
                let number = self.number(scope, size)?;
                usize::try_from(number)
                    .map_err(|_| size.place.error(format!("unsupported size {number}")))?
            }
        };
        if !table.entries.is_empty() && key.iter().any(|field| field.kind == MatchKind::Lpm) {
            return table
                .place
                .fail("an lpm table cannot have const entries: the controller fills it");
        }
        let mut entries = Vec::new();
        for entry in &table.entries {
            let (value, mask) = self.key_set(scope, &entry.key, &key, &entry.place)?;
            let (action, data) = self.bound_action(scope, &entry.action, &actions)?;
            entries.push(ConstantEntry { value, mask, action, data });
        }
        if entries.len() > size {
            return table.place.fail(format!("{} entries in a table of {size}", entries.len()));
        }
        let compiled = program::Table {
            name: self.full_name(scope, &table.name),
            annotations: table.annotations.clone(),
            size,
            key,
            actions,
            implicit_default,
            default,
            constant_default,
            constant_entries: !table.entries.is_empty(),
            entries,
        };
        limits::check_table(&compiled, &table.place)?;
        self.check_default(&compiled, &table.place)?;
        self.program.tables.push(compiled);
        Ok(self.program.tables.len() - 1)
    }

    /// Spells an expression as the compiler does in names.
    fn spelled(&mut self, scope: &Scope, expression: &ast::Expression) -> String {
        match &expression.kind {
            ExpressionKind::Name(name) => name.clone(),
            ExpressionKind::Member(of, name) => format!("{}.{name}", self.spelled(scope, of)),
            ExpressionKind::Index(of, index) => {
                format!("{}[{}]", self.spelled(scope, of), self.spelled_number(scope, index))
            }
            ExpressionKind::Slice { of, high, low } => {
                let of = self.spelled(scope, of);
                let high = self.spelled_number(scope, high);
                format!("{of}[{high}:{}]", self.spelled_number(scope, low))
            }
            ExpressionKind::Call { callee, .. } => match &callee.kind {
                ExpressionKind::Member(of, method) if method == "isValid" => {
                    format!("{}.$valid$", self.spelled(scope, of))
                }
                _ => "expression".to_owned(),
            },
            ExpressionKind::Conditional(condition, then, otherwise) => {
                match self.expression(scope, condition) {
                    Ok(UnsizedExpression::Bool(Value::Constant(0))) => {
                        self.spelled(scope, otherwise)
                    }
                    Ok(UnsizedExpression::Bool(Value::Constant(_))) => self.spelled(scope, then),
                    _ => "expression".to_owned(),
                }
            }
            ExpressionKind::Number { .. } | ExpressionKind::Binary(..) => {
                self.spelled_number(scope, expression)
            }
            _ => "expression".to_owned(),
        }
    }

    /// Spells a number known at compile time.
    fn spelled_number(&mut self, scope: &Scope, expression: &ast::Expression) -> String {
        let number = self.number(scope, expression);
        number.map_or_else(|_| "expression".to_owned(), |number| number.to_string())
    }

    fn key_set(
        &mut self,
        scope: &Scope,
        set: &[ast::Expression],
        key: &[KeyField],
        place: &Place,
    ) -> Result<(KeyBits, KeyBits)> {
        let widths: Vec<u32> = key.iter().map(|field| field.width).collect();
        let (value, masks) = self.masked(scope, set, &widths, place)?;
        let exact = KeyBits::join(key.iter().map(|field| {
            (if field.kind == MatchKind::Exact { mask(field.width) } else { 0 }, field.width)
        }));
        if masks.under(&exact) == exact {
            Ok((value, masks))
        } else {
            place.fail("an exact field needs a whole value")
        }
    }

    /// Joins values and masks, starting with the most significant bits.
    pub(super) fn masked(
        &mut self,
        scope: &Scope,
        set: &[ast::Expression],
        widths: &[u32],
        place: &Place,
    ) -> Result<(KeyBits, KeyBits)> {
        if let [ast::Expression { kind: ExpressionKind::Any, .. }] = set {
            return Ok(Default::default());
        }
        if set.len() != widths.len() {
            return place.fail(format!("{} values for a key of {}", set.len(), widths.len()));
        }
        let (mut value, mut masks) = (KeyBits::default(), KeyBits::default());
        for (element, width) in set.iter().zip(widths) {
            let (one, ones) = match &element.kind {
                ExpressionKind::Any => (0, 0),
                ExpressionKind::Mask(value, mask) => {
                    let mask = self.key_constant(scope, mask, *width)?;
                    (self.key_constant(scope, value, *width)? & mask, mask)
                }
                _ => (self.key_constant(scope, element, *width)?, mask(*width)),
            };
            value = value.with(one, *width);
            masks = masks.with(ones, *width);
        }
        Ok((value, masks))
    }

    /// Compiles an action with its data, as in entries and defaults.
    fn bound_action(
        &mut self,
        scope: &Scope,
        expression: &ast::Expression,
        among: &[usize],
    ) -> Result<(usize, Vec<u128>)> {
        let place = &expression.place;
        let (name, arguments) = match &expression.kind {
            ExpressionKind::Name(name) => (name, [].as_slice()),
            ExpressionKind::Call { callee, arguments, .. } => match &callee.kind {
                ExpressionKind::Name(name) => (name, arguments.as_slice()),
                _ => return place.fail("expected an action"),
            },
            _ => return place.fail("expected an action"),
        };
        let action = self.action_named(scope, name, place)?;
        if !among.contains(&action) && name != "NoAction" {
            return place.fail(format!("{name} is not among the table's actions"));
        }
        let widths: Vec<u32> = self.program.actions[action]
            .parameters
            .iter()
            .map(|parameter| parameter.width)
            .collect();
        if arguments.len() != widths.len() {
            return place.fail(format!(
                "{name} takes {} values, {} given",
                widths.len(),
                arguments.len()
            ));
        }
        let mut data = Vec::new();
        for (argument, width) in arguments.iter().zip(widths) {
            data.push(self.key_constant(scope, argument, width)?);
        }
        Ok((action, data))
    }

    pub(super) fn statements(
        &mut self,
        scope: &mut Scope,
        statements: &[ast::Statement],
    ) -> Result<()> {
        for statement in statements {
            self.statement(scope, statement)?;
        }
        Ok(())
    }

    pub(super) fn statement(
        &mut self,
        scope: &mut Scope,
        statement: &ast::Statement,
    ) -> Result<()> {
        let before = self.steps.len();
        self.statement_unchecked(scope, statement)?;
        let is_simple =
            matches!(statement.kind, StatementKind::Assign(..) | StatementKind::Local(_));
        let is_call = matches!(statement.kind, StatementKind::Call(_));
        match scope.within {
            Within::Control if is_simple => {
                self.check_instructions(before, &statement.place)?;
                self.work.next();
            }
            Within::Action if is_simple || is_call => {
                self.check_instructions(before, &statement.place)?
            }
            _ => {}
        }
        Ok(())
    }

    fn statement_unchecked(&mut self, scope: &mut Scope, statement: &ast::Statement) -> Result<()> {
        match &statement.kind {
            StatementKind::Assign(left, right) => self.assign(scope, left, right),
            StatementKind::Call(call) => self.call(scope, call, None),
            StatementKind::Block(statements) => {
                let mut inner = scope.clone();
                self.statements(&mut inner, statements)?;
                adopt_applied(scope, &inner);
                Ok(())
            }
            StatementKind::Local(variable) => self.variable(scope, variable),
            StatementKind::If(condition, then, otherwise) => {
                let condition = self.condition(scope, condition)?;
                // The chip's compiler drops the branch that is never taken.
                if let Value::Constant(holds) = condition {
                    let taken = if holds == 0 { otherwise } else { then };
                    return self.statements(scope, taken);
                }
                if !matches!(scope.within, Within::RegisterAction(_)) {
                    limits::check_condition(&condition, &statement.place)?;
                }
                if scope.within == Within::Control {
                    self.work.next();
                }
                let before = self.work.clone();
                self.conditions += 1;
                let yes = self.collect(|compiler| compiler.statements(scope, then))?;
                let then = std::mem::replace(&mut self.work, before);
                let no = self.collect(|compiler| compiler.statements(scope, otherwise))?;
                self.conditions -= 1;
                self.work.or(then);
                self.steps.push(Step::If(condition, yes, no));
                Ok(())
            }
        }
    }

    /// Compiles a condition, which may be whether a table matched.
    fn condition(&mut self, scope: &mut Scope, condition: &ast::Expression) -> Result<Value> {
        if let ExpressionKind::Member(of, outcome) = &condition.kind
            && (outcome == "hit" || outcome == "miss")
            && let ExpressionKind::Call { callee, .. } = &of.kind
            && let ExpressionKind::Member(table, method) = &callee.kind
            && method == "apply"
            && let Some(Binding::Table(table)) = self.binding(scope, table)
        {
            self.only_within(scope, &[Within::Control], "a table", &condition.place)?;
            let hit = self.slot();
            self.reach(&self.reached_by_table(table), &condition.place)?;
            self.steps.push(Step::Apply { table, hit: Some(hit) });
            let hit = Value::Slot(hit);
            return Ok(if outcome == "hit" { hit } else { Value::Not(Box::new(hit)) });
        }
        let condition = &self.effects_first(scope, condition)?;
        let typed = self.expression(scope, condition)?;
        self.boolean(typed, &condition.place)
    }

    /// Replaces calls with effects in an expression by their results.
    fn effects_first(
        &mut self,
        scope: &mut Scope,
        expression: &ast::Expression,
    ) -> Result<ast::Expression> {
        let mut expression = expression.clone();
        self.hoist(scope, &mut expression)?;
        Ok(expression)
    }

    fn hoist(&mut self, scope: &mut Scope, expression: &mut ast::Expression) -> Result<()> {
        if !is_effect(expression) {
            return match &mut expression.kind {
                ExpressionKind::Unary(_, of)
                | ExpressionKind::Cast(_, of)
                | ExpressionKind::Slice { of, .. } => self.hoist(scope, of),
                ExpressionKind::Binary(operator, left, right) if !decides_early(*operator) => {
                    self.hoist(scope, left)?;
                    self.hoist(scope, right)
                }
                _ => Ok(()),
            };
        }
        let ExpressionKind::Call { callee, .. } = &expression.kind else {
            return Ok(());
        };
        let owner = if let ExpressionKind::Member(of, _) = &callee.kind {
            self.binding(scope, of)
        } else {
            None
        };
        let like = match owner {
            Some(Binding::RegisterAction(action)) => self.result(action),
            Some(Binding::Hash(hash)) => {
                let width = self.program.hashes[hash].width;
                Some(Scalar { slot: 0, width, signed: false, boolean: false })
            }
            _ => None,
        };
        let Some(like) = like else {
            return expression
                .place
                .fail("unsupported call inside an expression: it has no result");
        };
        let result = Storage::Scalar(Scalar { slot: self.slot(), ..like });
        self.call(scope, expression, Some(&result))?;
        let name = format!("result {}", self.program.slots);
        scope.names.insert(name.clone(), Binding::Storage(result));
        expression.kind = ExpressionKind::Name(name);
        Ok(())
    }

    fn assign(
        &mut self,
        scope: &mut Scope,
        left: &ast::Expression,
        right: &ast::Expression,
    ) -> Result<()> {
        if let ExpressionKind::Slice { of, high, low } = &left.kind {
            let (high, low) = (self.number(scope, high)?, self.number(scope, low)?);
            let Some(scalar) = self.storage(scope, of)?.and_then(|storage| storage.scalar()) else {
                return left.place.fail("only a number can be assigned to in part");
            };
            if !(0 <= low && low <= high && high < i128::from(scalar.width)) {
                return left.place.fail(format!("slice [{high}:{low}] of {} bits", scalar.width));
            }
            let width = (high - low + 1) as u32;
            let part = Scalar { slot: self.slot(), width, signed: false, boolean: false };
            self.assign_to(scope, &Storage::Scalar(part), right)?;
            let value = Value::Slot(part.slot);
            self.steps.push(Step::AssignSlice {
                slot: scalar.slot,
                low: low as u32,
                mask: mask(width),
                value,
            });
            return Ok(());
        }
        match self.storage(scope, left)? {
            Some(storage) => self.assign_to(scope, &storage, right),
            None => left.place.fail("cannot be assigned to"),
        }
    }

    fn assign_to(
        &mut self,
        scope: &mut Scope,
        target: &Storage,
        right: &ast::Expression,
    ) -> Result<()> {
        if is_effect(right) {
            return self.call(scope, right, Some(target));
        }
        let place = &right.place;
        let Some(scalar) = target.scalar() else {
            let Some(source) = self.storage(scope, right)? else {
                return place.fail("unsupported value for a header or struct: copy another");
            };
            let (to, from) = (target.slots(), source.slots());
            if to.len() != from.len() || to.iter().zip(&from).any(|((_, to), (_, from))| to != from)
            {
                return place.fail("headers or structs of different types");
            }
            let copies = to
                .into_iter()
                .zip(from)
                .map(|((to, _), (from, _))| Step::Assign(to, Value::Slot(from)));
            self.steps.extend(copies);
            return Ok(());
        };
        let right = &self.effects_first(scope, right)?;
        let typed = self.expression(scope, right)?;
        let step = self.typed_assignment(scalar, typed, place)?;
        self.steps.push(step);
        Ok(())
    }

    pub(super) fn typed_assignment(
        &self,
        to: Scalar,
        typed: UnsizedExpression,
        place: &Place,
    ) -> Result<Step> {
        let value = if to.boolean {
            self.boolean(typed, place)?
        } else {
            self.coerce(typed, to.width, to.signed, place)?
        };
        Ok(Step::Assign(to.slot, value))
    }

    /// Compiles a call with an effect. Its result is assigned to `target`, if any.
    fn call(
        &mut self,
        scope: &mut Scope,
        call: &ast::Expression,
        target: Option<&Storage>,
    ) -> Result<()> {
        let place = &call.place;
        let ExpressionKind::Call { callee, arguments, .. } = &call.kind else {
            return place.fail("expected a call");
        };
        let (of, method) = match &callee.kind {
            ExpressionKind::Name(name) if target.is_none() => {
                let action = self.action_named(scope, name, place)?;
                return self.run(scope, action, arguments, place);
            }
            ExpressionKind::Member(of, method) => (of, method.as_str()),
            _ => return place.fail("unsupported call"),
        };
        if target.is_none()
            && let (Some(Storage::Header { valid, .. }), "setValid" | "setInvalid", []) =
                (self.storage(scope, of)?, method, arguments.as_slice())
        {
            self.steps.push(Step::Assign(valid, Value::Constant(u128::from(method == "setValid"))));
            return Ok(());
        }
        let ExpressionKind::Name(owner) = &of.kind else {
            return place.fail(format!("unsupported call of {method}"));
        };
        match (self.binding(scope, of), method, arguments.as_slice(), target) {
            (Some(Binding::Table(table)), "apply", [], None) => {
                self.only_within(scope, &[Within::Control], "a table", place)?;
                self.reach(&self.reached_by_table(table), place)?;
                self.steps.push(Step::Apply { table, hit: None });
                Ok(())
            }
            (Some(Binding::Block { block, path, applied }), "apply", arguments, None)
                if !block.parser =>
            {
                self.only_within(scope, &[Within::Control, Within::Deparser], "a control", place)?;
                if applied {
                    return place
                        .fail(format!("unsupported: control {owner} is applied in two places"));
                }
                let binding =
                    Binding::Block { block: block.clone(), path: path.clone(), applied: true };
                scope.names.insert(owner.clone(), binding);
                self.inline(scope, &block, path, arguments, place)
            }
            (Some(Binding::RegisterAction(action)), "execute", [index], target) => {
                self.only_within(scope, &[Within::Control, Within::Action], "a register", place)?;
                let register = self.program.register_actions[action].register;
                let index = self.index(scope, index, self.index_widths[register])?;
                self.reach(&[limits::Unit::Array(register)].into(), place)?;
                self.steps.push(Step::Execute { action, index });
                match (target, self.result(action)) {
                    (None, _) => Ok(()),
                    (Some(target), Some(result)) => self.deliver(target, result, place),
                    (Some(_), None) => place.fail(format!("register action {owner} has no result")),
                }
            }
            (Some(Binding::Hash(hash)), "get", [input], Some(target)) => {
                self.only_within(scope, &[Within::Control, Within::Action], "a hash", place)?;
                let fields = self.fields(scope, input)?;
                let names = match &input.kind {
                    ExpressionKind::List(list) => {
                        list.iter().map(|field| self.spelled(scope, field)).collect()
                    }
                    _ => vec![self.spelled(scope, input)],
                };
                self.hash_input(hash, names, &fields, place)?;
                let width = self.program.hashes[hash].width;
                self.hash(width, place)?;
                let result = Scalar { slot: self.slot(), width, signed: false, boolean: false };
                self.steps.push(Step::Hash { hash, input: fields, to: result.slot });
                self.deliver(target, result, place)
            }
            (Some(Binding::Counter(counter)), "count", [index], None) => {
                self.only_within(scope, &[Within::Control, Within::Action], "a counter", place)?;
                let index = self.index(scope, index, self.index_widths[counter])?;
                self.reach(&[limits::Unit::Array(counter)].into(), place)?;
                self.steps.push(Step::Count { counter, index });
                Ok(())
            }
            (Some(Binding::Packet), "emit", [what], None) => {
                self.only_within(scope, &[Within::Deparser], "emit", place)?;
                match self.storage(scope, what)? {
                    Some(storage) => {
                        self.steps.extend(storage.headers().into_iter().map(Step::Emit))
                    }
                    None => return place.fail("emit takes headers"),
                }
                Ok(())
            }
            (Some(Binding::Digest(digest)), "pack", [list], None) => {
                self.only_within(scope, &[Within::Deparser], "a digest", place)?;
                self.check_conditional("a digest", place)?;
                let fields = self.fields(scope, list)?;
                let widths = fields.iter().map(|(_, width)| *width);
                if !widths.eq(self.program.digests[digest].fields.iter().map(|(_, width)| *width)) {
                    return place.fail("values do not fit the digest's struct");
                }
                self.steps.push(Step::Digest { digest, fields });
                Ok(())
            }
            (Some(Binding::Resubmit), "emit", [header], None) => {
                self.only_within(scope, &[Within::Deparser], "resubmit", place)?;
                self.check_conditional("a resubmission", place)?;
                match self.storage(scope, header)? {
                    Some(Storage::Header { index, .. })
                        if self.program.headers[index].bytes == RESUBMIT_BYTES =>
                    {
                        self.steps.push(Step::Resubmit(index));
                        Ok(())
                    }
                    _ => place.fail(format!(
                        "a resubmitted packet carries one header of exactly {RESUBMIT_BYTES} bytes"
                    )),
                }
            }
            (None, ..) => place.fail(format!("unknown name {owner}")),
            _ => place.fail(format!(
                "unsupported call of {owner}.{method} here, or with {} arguments",
                arguments.len()
            )),
        }
    }

    /// Compiles an index of this width.
    fn index(&mut self, scope: &Scope, index: &ast::Expression, width: u32) -> Result<Value> {
        let typed = self.expression(scope, index)?;
        let value = self.coerce(typed, width, false, &index.place)?;
        limits::check_index(&value, &index.place)?;
        self.address(&value);
        Ok(value)
    }

    /// Assigns the result of a call.
    fn deliver(&mut self, target: &Storage, result: Scalar, place: &Place) -> Result<()> {
        match target.scalar() {
            Some(scalar) => {
                let step = self.typed_assignment(scalar, result.typed(), place)?;
                self.steps.push(step);
                Ok(())
            }
            None => place.fail("a number assigned to a header or struct"),
        }
    }

    fn run(
        &mut self,
        scope: &Scope,
        action: usize,
        arguments: &[ast::Expression],
        place: &Place,
    ) -> Result<()> {
        self.only_within(scope, &[Within::Control, Within::Action], "an action", place)?;
        let parameters = self.program.actions[action].parameters.clone();
        if arguments.len() != parameters.len() {
            return place.fail(format!(
                "the action takes {} values, {} given",
                parameters.len(),
                arguments.len()
            ));
        }
        for (argument, parameter) in arguments.iter().zip(&parameters) {
            let typed = self.expression(scope, argument)?;
            let value = match typed {
                UnsizedExpression::Bool(value) if parameter.width == 1 => value,
                typed => self.coerce(typed, parameter.width, false, &argument.place)?,
            };
            self.steps.push(Step::Assign(parameter.slot, value));
        }
        let work = self.work_of_action.get(&action).cloned().unwrap_or_default();
        self.run_within(scope.within == Within::Action, &work, place)?;
        self.steps.push(Step::Run(action));
        Ok(())
    }

    /// Inlines a control: parameters that name storage are bound to it, other values are copied.
    fn inline(
        &mut self,
        scope: &Scope,
        block: &Rc<ast::Block>,
        path: String,
        arguments: &[ast::Expression],
        place: &Place,
    ) -> Result<()> {
        let mut inner = self.bind(scope, block, path, arguments, place)?;
        for (parameter, argument) in block.parameters.iter().zip(arguments) {
            if !inner.names.contains_key(&parameter.name)
                || self.storage(scope, argument)?.is_none() && !self.is_packet(scope, argument)
            {
                let kind = self.kind(scope, &parameter.kind)?;
                let storage = self.allocate(&kind)?;
                self.assign_to(&mut scope.clone(), &storage, argument)?;
                inner.names.insert(parameter.name.clone(), Binding::Storage(storage));
            }
        }
        let inlined = self.control(block, inner)?;
        self.steps.extend(inlined);
        Ok(())
    }

    fn is_packet(&self, scope: &Scope, expression: &ast::Expression) -> bool {
        matches!(self.binding(scope, expression), Some(Binding::Packet))
    }

    /// Returns a scope with the parameters bound whose arguments name storage or the packet.
    pub(super) fn bind(
        &mut self,
        scope: &Scope,
        block: &ast::Block,
        path: String,
        arguments: &[ast::Expression],
        place: &Place,
    ) -> Result<Scope> {
        if arguments.len() != block.parameters.len() {
            let (given, wanted) = (arguments.len(), block.parameters.len());
            return place.fail(format!("{} takes {wanted} arguments, {given} given", block.name));
        }
        let mut inner = Scope { names: self.constants.clone(), path, within: scope.within };
        for (parameter, argument) in block.parameters.iter().zip(arguments) {
            if self.is_packet(scope, argument) {
                inner.names.insert(parameter.name.clone(), Binding::Packet);
            } else if let Some(storage) = self.storage(scope, argument)? {
                inner.names.insert(parameter.name.clone(), Binding::Storage(storage));
            }
        }
        Ok(inner)
    }

    fn only_within(
        &self,
        scope: &Scope,
        allowed: &[Within],
        what: &str,
        place: &Place,
    ) -> Result<()> {
        if allowed.contains(&scope.within) {
            return Ok(());
        }
        let here = match scope.within {
            Within::Control => "a control",
            Within::Action => "an action",
            Within::RegisterAction(_) => "a register action",
            Within::Parser => "a parser",
            Within::Deparser => "a deparser",
        };
        place.fail(format!("{what} cannot be used in {here}"))
    }
}

/// Marks controls applied in a nested block as applied.
fn adopt_applied(outer: &mut Scope, inner: &Scope) {
    for (name, binding) in &mut outer.names {
        if let Binding::Block { applied, .. } = binding
            && let Some(Binding::Block { applied: true, .. }) = inner.names.get(name)
        {
            *applied = true;
        }
    }
}

/// Whether an operator may skip its right side.
fn decides_early(operator: ast::Binary) -> bool {
    matches!(operator, ast::Binary::BothTrue | ast::Binary::OneTrue)
}

fn is_effect(expression: &ast::Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Call { callee, .. } => {
            matches!(&callee.kind, ExpressionKind::Member(_, method) if method == "execute" || method == "get")
        }
        _ => false,
    }
}

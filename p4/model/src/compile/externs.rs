//! Instances of the architecture's externs.

use super::storage::{Scalar, Storage};
use super::{Binding, Compiler, Kind, Scope, Within, limits};
use crate::ast::{self, ExpressionKind, TypeKind};
use crate::crc::Crc;
use crate::program::{
    Algorithm, Array, Digest, Hash, HashInput, Operator, Quantity, RegisterAction,
    RegisterParameter, Step, Value,
};
use crate::source::{Place, Result};
use std::rc::Rc;
use std::sync::Arc;

/// Element widths that a stateful ALU supports.
const REGISTER_WIDTHS: [u32; 4] = [1, 8, 16, 32];
const LARGEST_ARRAY: i128 = 1 << 24;
const DEEPEST_BLOCK: usize = 16;

/// Declared CRC polynomial.
pub(super) struct Polynomial {
    crc: Crc,
}

impl Compiler {
    /// Declares an instance and returns its binding.
    pub(super) fn instance(&mut self, scope: &Scope, instance: &ast::Instance) -> Result<Binding> {
        let place = &instance.place;
        let TypeKind::Named { name: kind, arguments: types } = &instance.kind.kind else {
            return place.fail("unsupported instance");
        };
        let name = self.full_name(scope, &instance.name);
        match (kind.as_str(), types.as_slice(), instance.arguments.as_slice()) {
            ("Register", [element, index], [size, initial @ ..]) => {
                let (index, _) = self.bits(scope, index)?;
                self.index_widths.push(index);
                self.register(scope, name, element, size, initial.first())
            }
            ("RegisterAction", [_, _, ..], [register]) => {
                self.register_action(scope, instance, register)
            }
            ("RegisterParam", [kind], [initial]) => {
                let (width, signed) = self.bits(scope, kind)?;
                let typed = self.expression(scope, initial)?;
                let Value::Constant(initial) = self.coerce(typed, width, signed, place)? else {
                    return place.fail("expected a constant");
                };
                let slot = self.slot();
                self.program.parameters.push(RegisterParameter {
                    name,
                    slot,
                    width,
                    signed,
                    initial,
                    register: None,
                });
                Ok(Binding::RegisterParameter(self.program.parameters.len() - 1))
            }
            ("Counter", [_, index], [size, kind]) => {
                let (index, _) = self.bits(scope, index)?;
                self.index_widths.push(index);
                let size = self.size(scope, size)?;
                let counts = quantities(kind)?;
                let fields = counts.iter().map(|count| (count.name().to_owned(), 64)).collect();
                let initial = vec![0; counts.len()];
                self.program.arrays.push(Array { name, size, fields, initial, counts });
                Ok(Binding::Counter(self.program.arrays.len() - 1))
            }
            ("CRCPolynomial", [width], [coefficient, reversed, msb, extended, initial, xor]) => {
                let (width, _) = self.bits(scope, width)?;
                if !width.is_multiple_of(8) || width > 64 {
                    return place.fail(format!("unsupported polynomial of {width} bits"));
                }
                let mut value = |expression: &ast::Expression| {
                    Ok(self.key_constant(scope, expression, width)? as u64)
                };
                let (coefficient, initial, xor) =
                    (value(coefficient)?, value(initial)?, value(xor)?);
                let [reversed, msb, extended] = [flag(reversed)?, flag(msb)?, flag(extended)?];
                if msb || extended {
                    return place.fail("unsupported polynomial with msb or extended set");
                }
                Ok(Binding::Polynomial(Rc::new(Polynomial {
                    crc: Crc::new(width, coefficient, reversed, initial, xor),
                })))
            }
            ("Hash", [width], [algorithm, polynomial @ ..]) => {
                let (width, _) = self.bits(scope, width)?;
                let algorithm = self.algorithm(scope, algorithm, polynomial)?;
                self.program.hashes.push(Hash { name, algorithm, width, input: Vec::new() });
                Ok(Binding::Hash(self.program.hashes.len() - 1))
            }
            ("Digest", [record], []) => {
                let Kind::Record(record) = self.kind(scope, record)? else {
                    return place.fail("a digest's type is a struct");
                };
                let mut fields = Vec::new();
                for (field, kind) in &record.fields {
                    fields.push((field.clone(), self.bits(scope, kind)?.0));
                }
                limits::check_digest(&fields, place)?;
                self.program.digests.push(Digest { name, fields });
                Ok(Binding::Digest(self.program.digests.len() - 1))
            }
            ("Resubmit", [], []) => Ok(Binding::Resubmit),
            ("ParserCounter", [], [])
                if scope.within == Within::Parser && self.parser_counter.is_none() =>
            {
                let slot = self.slot();
                self.parser_counter = Some(slot);
                Ok(Binding::ParserCounter(slot))
            }
            ("ParserCounter", ..) => place.fail("unsupported ParserCounter: a parser has one"),
            (kind, [], []) if self.blocks.contains_key(kind) => {
                if scope.path.matches('.').count() == DEEPEST_BLOCK {
                    return place.fail(format!(
                        "blocks are nested more than {DEEPEST_BLOCK} deep: does {kind} hold itself?"
                    ));
                }
                let block = self.blocks[kind].clone();
                Ok(Binding::Block {
                    block,
                    path: format!("{}.{}", scope.path, instance.name),
                    applied: false,
                })
            }
            _ => place.fail(format!(
                "unsupported extern {kind}, or with other types or arguments than the model knows"
            )),
        }
    }

    fn bits(&mut self, scope: &Scope, kind: &ast::Type) -> Result<(u32, bool)> {
        match self.kind(scope, kind)? {
            Kind::Bits { width, signed } => Ok((width, signed)),
            _ => kind.place.fail("expected bit<…> or int<…>"),
        }
    }

    fn size(&mut self, scope: &Scope, size: &ast::Expression) -> Result<usize> {
        match self.number(scope, size)? {
            number @ 1..=LARGEST_ARRAY => Ok(number as usize),
            number => size.place.fail(format!("unsupported size {number}")),
        }
    }

    fn register(
        &mut self,
        scope: &Scope,
        name: Arc<str>,
        element: &ast::Type,
        size: &ast::Expression,
        initial: Option<&ast::Expression>,
    ) -> Result<Binding> {
        let place = &element.place;
        let mut kinds = Vec::new();
        // Field names omit the name of the pipeline, with which the full name starts.
        let owner = name.split_once('.').map_or(&*name, |(_, owner)| owner);
        let fields: Vec<(String, u32)> = match self.kind(scope, element)? {
            Kind::Bits { width, signed } => {
                kinds.push((width, signed));
                vec![(format!("{owner}.f1"), width)]
            }
            Kind::Record(record) if !record.header => {
                let mut fields = Vec::new();
                for (field, kind) in &record.fields {
                    let (width, signed) = self.bits(scope, kind)?;
                    fields.push((format!("{owner}.{field}"), width));
                    kinds.push((width, signed));
                }
                fields
            }
            _ => return place.fail("unsupported register element"),
        };
        let pair = matches!(fields.as_slice(), [_] | [_, _]);
        let same = kinds.windows(2).all(|pair| pair[0] == pair[1]);
        if !pair || !same || fields.iter().any(|(_, width)| !REGISTER_WIDTHS.contains(width)) {
            return place.fail("a register element is 1, 8, 16 or 32 bits, or a pair of one type: a stateful ALU has no more");
        }
        let values = match initial {
            None => vec![0; fields.len()],
            Some(expression) => {
                let list = match &expression.kind {
                    ExpressionKind::List(list) => list.as_slice(),
                    _ => std::slice::from_ref(expression),
                };
                if list.len() != fields.len() {
                    return place.fail("initial value does not fit the register's element");
                }
                let mut values = Vec::new();
                for (value, (width, signed)) in list.iter().zip(kinds) {
                    let typed = self.expression(scope, value)?;
                    let Value::Constant(constant) =
                        self.coerce(typed, width, signed, &value.place)?
                    else {
                        return value.place.fail("expected a constant");
                    };
                    values.push(constant as u64);
                }
                values
            }
        };
        let size = self.size(scope, size)?;
        limits::check_register(&name, size, &fields, place)?;
        self.program.arrays.push(Array { name, size, fields, initial: values, counts: &[] });
        Ok(Binding::Register(self.program.arrays.len() - 1))
    }

    fn register_action(
        &mut self,
        scope: &Scope,
        instance: &ast::Instance,
        register: &ast::Expression,
    ) -> Result<Binding> {
        let place = &instance.place;
        let Some(Binding::Register(register)) = self.binding(scope, register) else {
            return place.fail("a register action belongs to a register");
        };
        self.check_register_actions(register, place)?;
        let [function] = instance.functions.as_slice() else {
            return place.fail("a register action has one function, apply");
        };
        let mut inner = Scope { within: Within::RegisterAction(register), ..scope.clone() };
        let (element, result) = match function.parameters.as_slice() {
            [element] => (element, None),
            [element, result] => (element, Some(result)),
            _ => {
                return function
                    .place
                    .fail("unsupported parameters: the element, and at most one result");
            }
        };
        if function.name != "apply" {
            return function.place.fail(format!(
                "unsupported function {}: a register action has apply",
                function.name
            ));
        }
        let kind = self.kind(scope, &element.kind)?;
        let storage = self.allocate(&kind)?;
        let slots: Vec<_> = storage.slots();
        let fields = &self.program.arrays[register].fields;
        if slots.len() != fields.len()
            || slots.iter().zip(fields).any(|((_, width), (_, field))| width != field)
        {
            return element
                .place
                .fail("the parameter's type is not that of the register's element");
        }
        inner.names.insert(element.name.clone(), Binding::Storage(storage));
        let mut result_slot = None;
        if let Some(result) = result {
            let kind = self.kind(scope, &result.kind)?;
            let storage = self.allocate(&kind)?;
            let Some(scalar) = storage.scalar() else {
                return result.place.fail("a register action's result is a number");
            };
            inner.names.insert(result.name.clone(), Binding::Storage(storage));
            result_slot = Some(scalar);
        }
        let steps = self.collect(|compiler| compiler.statements(&mut inner, &function.body))?;
        if compares_beyond(&steps) {
            return function.place.fail(
                "a stateful ALU compares an unsigned number with no constant above 2^31, since its constants have 32 bits with a sign: \
                 cast both to int<32>",
            );
        }
        let element: Vec<_> = slots.into_iter().map(|(slot, _)| slot).collect();
        let result = result_slot.map(|scalar| scalar.slot);
        let own: Vec<_> = element.iter().copied().chain(result).collect();
        self.check_register_action(&steps, &own, &function.place)?;
        self.program.register_actions.push(RegisterAction { register, element, result, steps });
        self.results.push(result_slot);
        Ok(Binding::RegisterAction(self.program.register_actions.len() - 1))
    }

    fn algorithm(
        &mut self,
        scope: &Scope,
        name: &ast::Expression,
        polynomial: &[ast::Expression],
    ) -> Result<Algorithm> {
        let place = &name.place;
        let crc = |width, polynomial, initial, xor| {
            Algorithm::Crc(Box::new(Crc::new(width, polynomial, true, initial, xor)))
        };
        match (member_of("HashAlgorithm_t", name), polynomial) {
            (Some("CUSTOM"), [polynomial]) => match self.binding(scope, polynomial) {
                Some(Binding::Polynomial(polynomial)) => {
                    Ok(Algorithm::Crc(Box::new(polynomial.crc.clone())))
                }
                _ => place.fail("CUSTOM takes a CRCPolynomial"),
            },
            (Some("IDENTITY"), []) => Ok(Algorithm::Identity),
            (Some("XOR8"), []) => Ok(Algorithm::Xor(8)),
            (Some("XOR16"), []) => Ok(Algorithm::Xor(16)),
            (Some("XOR32"), []) => Ok(Algorithm::Xor(32)),
            (Some("CRC16"), []) => Ok(crc(16, 0x8005, 0, 0)),
            (Some("CRC32"), []) => {
                Ok(crc(32, 0x04c1_1db7, u64::from(u32::MAX), u64::from(u32::MAX)))
            }
            _ => place.fail(
                "unsupported hash algorithm: CUSTOM, IDENTITY, XOR8, XOR16, XOR32, CRC16, CRC32",
            ),
        }
    }

    /// Returns the joined values of a hash or digest, with their widths.
    pub(super) fn fields(
        &mut self,
        scope: &Scope,
        expression: &ast::Expression,
    ) -> Result<Vec<(Value, u32)>> {
        let list = match &expression.kind {
            ExpressionKind::List(list) => list.as_slice(),
            _ => std::slice::from_ref(expression),
        };
        let mut fields = Vec::new();
        for value in list {
            match self.storage(scope, value)? {
                Some(storage @ (Storage::Header { .. } | Storage::Struct(_))) => {
                    let skip = usize::from(matches!(storage, Storage::Header { .. }));
                    fields.extend(
                        storage
                            .slots()
                            .into_iter()
                            .skip(skip)
                            .map(|(slot, width)| (Value::Slot(slot), width)),
                    );
                }
                _ => {
                    let typed = self.expression(scope, value)?;
                    fields.push(self.with_width(typed, &value.place)?);
                }
            }
        }
        Ok(fields)
    }

    /// Checks the input of a hash, and stores it for the control plane.
    pub(super) fn hash_input(
        &mut self,
        hash: usize,
        names: Vec<String>,
        fields: &[(Value, u32)],
        place: &Place,
    ) -> Result<()> {
        let total: u32 = fields.iter().map(|(_, width)| width).sum();
        let hash = &mut self.program.hashes[hash];
        match hash.algorithm {
            Algorithm::Crc(_) if !total.is_multiple_of(8) => {
                return place
                    .fail(format!("unsupported CRC of {total} bits, which are no whole bytes"));
            }
            Algorithm::Identity if total > 128 => {
                return place.fail(format!("unsupported identity of {total} bits"));
            }
            Algorithm::Xor(width) if !fill_words(fields, width) => {
                return place
                    .fail(format!("unsupported XOR{width} of other than {width}-bit words"));
            }
            _ => {}
        }
        let input: Vec<HashInput> = names
            .into_iter()
            .zip(fields)
            .map(|(name, (value, width))| match value {
                Value::Constant(constant) => HashInput::Constant(*constant, *width),
                _ => HashInput::Field(name, *width),
            })
            .collect();
        if !hash.input.is_empty() && hash.input != input {
            return place.fail("a hash has one input: use an instance for each");
        }
        hash.input = input;
        Ok(())
    }

    /// Returns the result of a register action, if it has one.
    pub(super) fn result(&self, action: usize) -> Option<Scalar> {
        self.results.get(action).copied().flatten()
    }
}

/// Whether consecutive values fill words of this width without crossing their boundaries.
fn fill_words(fields: &[(Value, u32)], word: u32) -> bool {
    let mut free = 0;
    let fit = fields.iter().all(|(_, width)| {
        free = if free == 0 { word } else { free };
        let fits = *width <= free;
        free = free.saturating_sub(*width);
        fits
    });
    fit && free == 0
}

/// Whether conditions compare an unsigned number with a constant too large for the ALU.
fn compares_beyond(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::If(condition, then, otherwise) => {
            is_beyond(condition) || compares_beyond(then) || compares_beyond(otherwise)
        }
        _ => false,
    })
}

fn is_beyond(condition: &Value) -> bool {
    let too_large = |side: &Value| matches!(side, Value::Constant(constant) if *constant > 1 << 31);
    match condition {
        Value::Binary(Operator::Less(None) | Operator::LessOrEqual(None), sides) => {
            too_large(&sides.0) || too_large(&sides.1)
        }
        Value::Binary(Operator::BothTrue | Operator::OneTrue, sides) => {
            is_beyond(&sides.0) || is_beyond(&sides.1)
        }
        Value::Not(condition) => is_beyond(condition),
        _ => false,
    }
}

fn flag(expression: &ast::Expression) -> Result<bool> {
    match expression.kind {
        ExpressionKind::Bool(value) => Ok(value),
        _ => expression.place.fail("expected true or false"),
    }
}

fn member_of<'a>(owner: &str, expression: &'a ast::Expression) -> Option<&'a str> {
    match &expression.kind {
        ExpressionKind::Member(of, member) => match &of.kind {
            ExpressionKind::Name(name) if name == owner => Some(member),
            _ => None,
        },
        _ => None,
    }
}

/// Returns what a counter counts, in the order of the schema.
fn quantities(expression: &ast::Expression) -> Result<&'static [Quantity]> {
    match member_of("CounterType_t", expression) {
        Some("PACKETS") => Ok(&[Quantity::Packets]),
        Some("BYTES") => Ok(&[Quantity::Bytes]),
        Some("PACKETS_AND_BYTES") => Ok(&[Quantity::Bytes, Quantity::Packets]),
        _ => expression.place.fail("expected CounterType_t.PACKETS, BYTES or PACKETS_AND_BYTES"),
    }
}

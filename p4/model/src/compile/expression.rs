//! Expressions. Widths are checked; numbers without a width take that of the other side.

use super::storage::{MAX_WIDTH, Storage};
use super::{Binding, Compiler, Kind, Scope, UnsizedExpression, Within, limits};
use crate::ast::{self, Binary, ExpressionKind, Unary};
use crate::execute::evaluate;
use crate::program::{Operator, Value, mask};
use crate::source::{Place, Result};

impl Compiler {
    /// Evaluates a number known at compile time.
    pub(super) fn number(&mut self, scope: &Scope, expression: &ast::Expression) -> Result<i128> {
        match self.expression(scope, expression)? {
            UnsizedExpression::Number(number) => Ok(number),
            UnsizedExpression::Bits { value: Value::Constant(value), signed: false, .. } => {
                Ok(value as i128)
            }
            _ => expression.place.fail("expected a number known at compile time"),
        }
    }

    pub(super) fn boolean(&self, typed: UnsizedExpression, place: &Place) -> Result<Value> {
        match typed {
            UnsizedExpression::Bool(value) => Ok(value),
            _ => place.fail("expected a bool: compare with a number"),
        }
    }

    /// Converts a number without a width, or a value of this type, to the given type.
    pub(super) fn coerce(
        &self,
        typed: UnsizedExpression,
        width: u32,
        signed: bool,
        place: &Place,
    ) -> Result<Value> {
        match typed {
            UnsizedExpression::Number(number) => {
                let smallest = if signed { -1_i128.wrapping_shl(width - 1) } else { 0 };
                let bits = if signed { width - 1 } else { width };
                let fits =
                    number >= smallest && (bits >= 127 || number < 1_i128.wrapping_shl(bits));
                if fits {
                    Ok(Value::Constant(number as u128 & mask(width)))
                } else {
                    place.fail(format!("{number} does not fit {width} bits"))
                }
            }
            UnsizedExpression::Bits { value, width: found, signed: found_sign } => {
                if found == width && found_sign == signed {
                    return Ok(value);
                }
                let name =
                    |width, signed| format!("{}<{width}>", if signed { "int" } else { "bit" });
                place.fail(format!(
                    "{} where {} is needed: cast it",
                    name(found, found_sign),
                    name(width, signed)
                ))
            }
            UnsizedExpression::Bool(_) => {
                place.fail(format!("a bool where {width} bits are needed"))
            }
        }
    }

    /// Compiles a constant of a key. A bool is one bit.
    pub(super) fn key_constant(
        &mut self,
        scope: &Scope,
        expression: &ast::Expression,
        width: u32,
    ) -> Result<u128> {
        let typed = self.expression(scope, expression)?;
        let value = match typed {
            UnsizedExpression::Bool(value) if width == 1 => value,
            typed => self.coerce(typed, width, false, &expression.place)?,
        };
        match value {
            Value::Constant(constant) => Ok(constant),
            _ => expression.place.fail("expected a constant"),
        }
    }

    /// Returns a value with its width. A bool is one bit.
    pub(super) fn with_width(
        &self,
        typed: UnsizedExpression,
        place: &Place,
    ) -> Result<(Value, u32)> {
        match typed {
            UnsizedExpression::Bits { value, width, .. } => Ok((value, width)),
            UnsizedExpression::Bool(value) => Ok((value, 1)),
            UnsizedExpression::Number(_) => place.fail("a number needs a width here, such as 8w1"),
        }
    }

    /// Returns the storage that an expression names, if it does.
    pub(super) fn storage(
        &mut self,
        scope: &Scope,
        expression: &ast::Expression,
    ) -> Result<Option<Storage>> {
        match &expression.kind {
            ExpressionKind::Name(name) => match scope.names.get(name) {
                Some(Binding::Storage(storage)) => Ok(Some(storage.clone())),
                _ => Ok(None),
            },
            ExpressionKind::Member(of, name) => {
                let Some(of) = self.storage(scope, of)? else {
                    return Ok(None);
                };
                match of.member(name) {
                    Some(storage) => {
                        let storage = storage.clone();
                        let read = storage.scalar().map(|scalar| scalar.slot);
                        self.program.reads_parser_error |= read == Some(self.program.intrinsic.parser_error);
                        Ok(Some(storage))
                    }
                    None => match &of {
                        Storage::Stack { walked: Some((stack, last)), .. } if name == "last" && self.walked.contains(stack) => {
                            Ok(Some(Storage::clone(last)))
                        }
                        Storage::Stack { .. } if name == "last" => expression
                            .place
                            .fail("unsupported last: the state has not extracted the next element of the stack"),
                        Storage::Stack { .. } => {
                            expression.place.fail(format!("unsupported stack member {name}: index with a number"))
                        }
                        _ => expression.place.fail(format!("no field {name}")),
                    },
                }
            }
            ExpressionKind::Index(of, index) => {
                let Some(Storage::Stack { elements, .. }) = self.storage(scope, of)? else {
                    return expression.place.fail("only header stacks can be indexed");
                };
                let index = self.number(scope, index)?;
                let element =
                    usize::try_from(index).ok().and_then(|index| elements.get(index)).cloned();
                match element {
                    Some(element) => Ok(Some(element)),
                    None => expression
                        .place
                        .fail(format!("index {index} in a stack of {}", elements.len())),
                }
            }
            ExpressionKind::Conditional(condition, then, otherwise) => {
                match self.expression(scope, condition)? {
                    UnsizedExpression::Bool(Value::Constant(0)) => self.storage(scope, otherwise),
                    UnsizedExpression::Bool(Value::Constant(_)) => self.storage(scope, then),
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    pub(super) fn expression(
        &mut self,
        scope: &Scope,
        expression: &ast::Expression,
    ) -> Result<UnsizedExpression> {
        let place = &expression.place;
        match &expression.kind {
            ExpressionKind::Number { value, width: None } => match i128::try_from(*value) {
                Ok(number) => Ok(UnsizedExpression::Number(number)),
                Err(_) => place.fail("unsupported number of 128 bits"),
            },
            ExpressionKind::Number { value, width: Some((width, signed)) } => {
                if *width == 0 || *width > MAX_WIDTH || *value > mask(*width) {
                    return place.fail(format!("{value} does not fit {width} bits"));
                }
                Ok(UnsizedExpression::Bits {
                    value: Value::Constant(*value),
                    width: *width,
                    signed: *signed,
                })
            }
            ExpressionKind::Bool(value) => {
                Ok(UnsizedExpression::Bool(Value::Constant(u128::from(*value))))
            }
            ExpressionKind::Name(_) | ExpressionKind::Member(..) | ExpressionKind::Index(..) => {
                self.named(scope, expression)
            }
            ExpressionKind::Slice { of, high, low } => self.slice(scope, of, high, low, place),
            ExpressionKind::Unary(operator, of) => self.unary(scope, *operator, of, place),
            ExpressionKind::Binary(operator, left, right) => {
                let left = self.expression(scope, left)?;
                let right = self.expression(scope, right)?;
                self.binary(*operator, left, right, place)
            }
            ExpressionKind::Conditional(condition, then, otherwise) => {
                let condition = self.expression(scope, condition)?;
                let condition = self.boolean(condition, place)?;
                if let Value::Constant(holds) = condition {
                    return self.expression(scope, if holds == 0 { otherwise } else { then });
                }
                if !matches!(scope.within, Within::RegisterAction(_)) {
                    limits::check_condition(&condition, place)?;
                }
                let (then, otherwise) =
                    (self.expression(scope, then)?, self.expression(scope, otherwise)?);
                let (then, otherwise, like) = self.alike(then, otherwise, place)?;
                Ok(like.with(Value::Conditional(Box::new((condition, then, otherwise)))))
            }
            ExpressionKind::Cast(kind, of) => self.cast(scope, kind, of, place),
            ExpressionKind::Call { callee, arguments, .. } => {
                self.pure_call(scope, callee, arguments, place)
            }
            ExpressionKind::List(_) => place.fail("unsupported list here"),
            ExpressionKind::Text(_) => place.fail("a text where a number is needed"),
            ExpressionKind::Mask(..) | ExpressionKind::Any => {
                place.fail("a mask or `_` belongs in a select or in entries")
            }
        }
    }

    fn named(&mut self, scope: &Scope, expression: &ast::Expression) -> Result<UnsizedExpression> {
        if let Some(storage) = self.storage(scope, expression)? {
            return match storage.scalar() {
                Some(scalar) => Ok(scalar.typed()),
                None => expression.place.fail("a header or struct where a number is needed"),
            };
        }
        if let ExpressionKind::Name(name) = &expression.kind {
            return match scope.names.get(name).or_else(|| self.constants.get(name)) {
                Some(Binding::Constant(typed)) => Ok(typed.clone()),
                Some(_) => expression.place.fail(format!("{name} is not a value")),
                None => expression.place.fail(format!("unknown name {name}")),
            };
        }
        if let ExpressionKind::Member(of, member) = &expression.kind
            && let ExpressionKind::Name(name) = &of.kind
            && let Some(Binding::Constant(typed)) = self.constants.get(&format!("{name}.{member}"))
        {
            return Ok(typed.clone());
        }
        expression.place.fail("unsupported expression")
    }

    fn slice(
        &mut self,
        scope: &Scope,
        of: &ast::Expression,
        high: &ast::Expression,
        low: &ast::Expression,
        place: &Place,
    ) -> Result<UnsizedExpression> {
        let (high, low) = (self.number(scope, high)?, self.number(scope, low)?);
        let typed = self.expression(scope, of)?;
        let UnsizedExpression::Bits { value, width, .. } = typed else {
            return place.fail("only numbers with a width can be sliced");
        };
        if !(0 <= low && low <= high && high < i128::from(width)) {
            return place.fail(format!("slice [{high}:{low}] of {width} bits"));
        }
        let slice_width = (high - low + 1) as u32;
        let value = Value::Slice { of: Box::new(value), low: low as u32, mask: mask(slice_width) };
        Ok(UnsizedExpression::Bits { value: folded(value), width: slice_width, signed: false })
    }

    fn unary(
        &mut self,
        scope: &Scope,
        operator: Unary,
        of: &ast::Expression,
        place: &Place,
    ) -> Result<UnsizedExpression> {
        let typed = self.expression(scope, of)?;
        match (operator, typed) {
            (Unary::Not, typed) => Ok(UnsizedExpression::Bool(folded(Value::Not(Box::new(
                self.boolean(typed, place)?,
            ))))),
            (Unary::Negate, UnsizedExpression::Number(number)) => {
                Ok(UnsizedExpression::Number(number.wrapping_neg()))
            }
            (Unary::Negate, UnsizedExpression::Bits { value, width, signed }) => {
                Ok(UnsizedExpression::Bits {
                    value: folded(Value::Negate(Box::new(value), mask(width))),
                    width,
                    signed,
                })
            }
            (Unary::Complement, UnsizedExpression::Bits { value, width, signed }) => {
                Ok(UnsizedExpression::Bits {
                    value: folded(Value::Complement(Box::new(value), mask(width))),
                    width,
                    signed,
                })
            }
            (Unary::Complement, UnsizedExpression::Number(_)) => {
                place.fail("~ needs a number with a width")
            }
            (_, UnsizedExpression::Bool(_)) => place.fail("arithmetic on a bool"),
        }
    }

    fn binary(
        &mut self,
        operator: Binary,
        left: UnsizedExpression,
        right: UnsizedExpression,
        place: &Place,
    ) -> Result<UnsizedExpression> {
        if let (UnsizedExpression::Number(left), UnsizedExpression::Number(right)) = (&left, &right)
        {
            return fold(operator, *left, *right, place);
        }
        match operator {
            Binary::BothTrue | Binary::OneTrue => {
                let (left, right) = (self.boolean(left, place)?, self.boolean(right, place)?);
                if let Value::Constant(left) = left {
                    let decides = (left != 0) == (operator == Binary::OneTrue);
                    return Ok(UnsizedExpression::Bool(if decides {
                        Value::Constant(left)
                    } else {
                        right
                    }));
                }
                let sides = Box::new((left, right));
                let operator = if operator == Binary::BothTrue {
                    Operator::BothTrue
                } else {
                    Operator::OneTrue
                };
                return Ok(UnsizedExpression::Bool(Value::Binary(operator, sides)));
            }
            Binary::Concatenate => {
                let (left, left_width) = self.with_width(left, place)?;
                let (right, right_width) = self.with_width(right, place)?;
                let width = left_width + right_width;
                if width > MAX_WIDTH {
                    return place.fail(format!(
                        "unsupported concatenation of {width} bits: values have at most {MAX_WIDTH}"
                    ));
                }
                let value =
                    Value::Binary(Operator::Concatenate(right_width), Box::new((left, right)));
                return Ok(UnsizedExpression::Bits { value: folded(value), width, signed: false });
            }
            Binary::ShiftLeft | Binary::ShiftRight => {
                let UnsizedExpression::Bits { value, width, signed } = left else {
                    return place.fail("a shifted number needs a width");
                };
                let by = match right {
                    UnsizedExpression::Number(by) if by >= 0 => Value::Constant(by as u128),
                    UnsizedExpression::Bits { value, signed: false, .. } => value,
                    _ => return place.fail("shift by a negative or signed number"),
                };
                let operator = match operator {
                    Binary::ShiftLeft => Operator::ShiftLeft(mask(width)),
                    _ => Operator::ShiftRight { width, signed },
                };
                limits::check_operator(&operator, &value, &by, width, place)?;
                return Ok(UnsizedExpression::Bits {
                    value: folded(Value::Binary(operator, Box::new((value, by)))),
                    width,
                    signed,
                });
            }
            _ => {}
        }
        let (left, right, like) = self.alike(left, right, place)?;
        self.alike_binary(operator, left, right, like, place)
    }

    fn alike_binary(
        &self,
        operator: Binary,
        left: Value,
        right: Value,
        like: Like,
        place: &Place,
    ) -> Result<UnsizedExpression> {
        let (width, signed) = match like {
            Like::Bits { width, signed } => (width, signed),
            Like::Bool if matches!(operator, Binary::Equal | Binary::NotEqual) => (1, false),
            Like::Bool => return place.fail("arithmetic on a bool"),
        };
        let ordered = signed.then_some(width);
        let sides = |swap: bool| {
            Box::new(if swap {
                (right.clone(), left.clone())
            } else {
                (left.clone(), right.clone())
            })
        };
        let (operator, swap, boolean) = match operator {
            Binary::Equal => (Operator::Equal, false, true),
            Binary::NotEqual => (Operator::NotEqual, false, true),
            Binary::Less => (Operator::Less(ordered), false, true),
            Binary::LessOrEqual => (Operator::LessOrEqual(ordered), false, true),
            Binary::Greater => (Operator::Less(ordered), true, true),
            Binary::GreaterOrEqual => (Operator::LessOrEqual(ordered), true, true),
            Binary::Add => (Operator::Add(mask(width)), false, false),
            Binary::Subtract => (Operator::Subtract(mask(width)), false, false),
            Binary::AddSaturating => (Operator::AddSaturating { width, signed }, false, false),
            Binary::SubtractSaturating => {
                (Operator::SubtractSaturating { width, signed }, false, false)
            }
            Binary::Multiply => (Operator::Multiply(mask(width)), false, false),
            Binary::And => (Operator::And, false, false),
            Binary::Or => (Operator::Or, false, false),
            Binary::Xor => (Operator::Xor, false, false),
            _ => return place.fail("division is unsupported: the chip has none"),
        };
        limits::check_operator(&operator, &left, &right, width, place)?;
        let value = folded(Value::Binary(operator, sides(swap)));
        Ok(if boolean {
            UnsizedExpression::Bool(value)
        } else {
            UnsizedExpression::Bits { value, width, signed }
        })
    }

    /// Converts both sides to the type of the one that has one.
    fn alike(
        &self,
        left: UnsizedExpression,
        right: UnsizedExpression,
        place: &Place,
    ) -> Result<(Value, Value, Like)> {
        match (&left, &right) {
            (UnsizedExpression::Bool(left), UnsizedExpression::Bool(right)) => {
                Ok((left.clone(), right.clone(), Like::Bool))
            }
            (UnsizedExpression::Bits { width, signed, .. }, _)
            | (UnsizedExpression::Number(_), UnsizedExpression::Bits { width, signed, .. }) => {
                let (width, signed) = (*width, *signed);
                let left = self.coerce(left, width, signed, place)?;
                let right = self.coerce(right, width, signed, place)?;
                Ok((left, right, Like::Bits { width, signed }))
            }
            _ => place.fail("the two sides have different types, or no width"),
        }
    }

    fn cast(
        &mut self,
        scope: &Scope,
        kind: &ast::Type,
        of: &ast::Expression,
        place: &Place,
    ) -> Result<UnsizedExpression> {
        let typed = self.expression(scope, of)?;
        match (self.kind(scope, kind)?, typed) {
            (Kind::Bits { width, signed }, UnsizedExpression::Number(number)) => {
                Ok(UnsizedExpression::Bits {
                    value: Value::Constant(number as u128 & mask(width)),
                    width,
                    signed,
                })
            }
            (
                Kind::Bits { width, signed },
                UnsizedExpression::Bits { value, width: from, signed: from_signed },
            ) => {
                let value = match value {
                    Value::Constant(constant) if !from_signed => {
                        Value::Constant(constant & mask(width))
                    }
                    value if width < from => {
                        Value::Slice { of: Box::new(value), low: 0, mask: mask(width) }
                    }
                    value if width > from && from_signed => {
                        Value::Extend { of: Box::new(value), from, mask: mask(width) }
                    }
                    value => value,
                };
                Ok(UnsizedExpression::Bits { value, width, signed })
            }
            (Kind::Bits { width: 1, signed: false }, UnsizedExpression::Bool(value)) => {
                Ok(UnsizedExpression::Bits { value, width: 1, signed: false })
            }
            (
                Kind::Bool,
                UnsizedExpression::Bits { value, width: 1, .. } | UnsizedExpression::Bool(value),
            ) => Ok(UnsizedExpression::Bool(value)),
            _ => place.fail("unsupported cast"),
        }
    }

    /// Compiles calls without an effect: `isValid`, `max`, `min`, `predicate`, `read`.
    fn pure_call(
        &mut self,
        scope: &Scope,
        callee: &ast::Expression,
        arguments: &[ast::Expression],
        place: &Place,
    ) -> Result<UnsizedExpression> {
        match (&callee.kind, arguments) {
            (ExpressionKind::Member(of, method), []) if method == "isValid" => {
                match self.storage(scope, of)? {
                    Some(Storage::Header { valid, .. }) => {
                        Ok(UnsizedExpression::Bool(Value::Slot(valid)))
                    }
                    _ => place.fail("isValid of something other than a header"),
                }
            }
            (ExpressionKind::Member(of, method), []) if method == "read" => {
                match self.binding(scope, of) {
                    Some(Binding::RegisterParameter(index)) => {
                        let Within::RegisterAction(register) = scope.within else {
                            return place.fail("a register parameter is read in a register action");
                        };
                        let parameter = &mut self.program.parameters[index];
                        if *parameter.register.get_or_insert(register) != register {
                            return place.fail(
                                "a register parameter belongs to one register: give each its own",
                            );
                        }
                        Ok(UnsizedExpression::Bits {
                            value: Value::Slot(parameter.slot),
                            width: parameter.width,
                            signed: parameter.signed,
                        })
                    }
                    _ => place.fail("unsupported read: only register parameters are read"),
                }
            }
            (ExpressionKind::Member(of, method), [low, high])
                if method == "predicate" && is_this(of) =>
            {
                if !matches!(scope.within, Within::RegisterAction(_)) {
                    return place.fail("predicate outside a register action");
                }
                let (low, high) = (self.expression(scope, low)?, self.expression(scope, high)?);
                let conditions = (self.boolean(low, place)?, self.boolean(high, place)?);
                Ok(UnsizedExpression::Bits {
                    value: Value::Predicate(Box::new(conditions)),
                    width: 4,
                    signed: false,
                })
            }
            (ExpressionKind::Name(name), [check, message @ ..])
                if name == "static_assert" && message.len() < 2 =>
            {
                let typed = self.expression(scope, check)?;
                let message = match message.first().map(|message| &message.kind) {
                    Some(ExpressionKind::Text(message)) => message,
                    None => "static_assert failed",
                    Some(_) => return place.fail("the message of static_assert is a text"),
                };
                match self.boolean(typed, place)? {
                    Value::Constant(0) => place.fail(message),
                    Value::Constant(_) => Ok(UnsizedExpression::Bool(Value::Constant(1))),
                    _ => place.fail("expected a constant"),
                }
            }
            (ExpressionKind::Name(name), [left, right]) if name == "max" || name == "min" => {
                let (left, right) = (self.expression(scope, left)?, self.expression(scope, right)?);
                let (left, right, like) = self.alike(left, right, place)?;
                let Like::Bits { width, signed } = like else {
                    return place.fail(format!("{name} of bools"));
                };
                let ordered = signed.then_some(width);
                let operator = if name == "max" {
                    Operator::Maximum(ordered)
                } else {
                    Operator::Minimum(ordered)
                };
                Ok(like.with(Value::Binary(operator, Box::new((left, right)))))
            }
            (ExpressionKind::Member(_, method), _)
                if ["execute", "get", "apply", "lookahead"].contains(&method.as_str()) =>
            {
                place.fail(format!(
                    "unsupported {method} inside an expression: assign its result first"
                ))
            }
            (ExpressionKind::Member(_, name) | ExpressionKind::Name(name), _) => {
                place.fail(format!("unsupported call of {name} with {} arguments", arguments.len()))
            }
            _ => place.fail("unsupported call"),
        }
    }

    pub(super) fn binding(&self, scope: &Scope, expression: &ast::Expression) -> Option<Binding> {
        match &expression.kind {
            ExpressionKind::Name(name) => scope.names.get(name).cloned(),
            _ => None,
        }
    }
}

/// Computes a value whose operands are constants, as the chip's compiler does.
fn folded(value: Value) -> Value {
    let constant = |value: &Value| matches!(value, Value::Constant(_));
    let folds = match &value {
        Value::Binary(_, sides) => constant(&sides.0) && constant(&sides.1),
        Value::Slice { of, .. }
        | Value::Complement(of, _)
        | Value::Negate(of, _)
        | Value::Not(of) => constant(of),
        _ => false,
    };
    if folds { Value::Constant(evaluate(&value, &[])) } else { value }
}

fn is_this(expression: &ast::Expression) -> bool {
    matches!(&expression.kind, ExpressionKind::Name(name) if name == "this")
}

#[derive(Clone, Copy)]
enum Like {
    Bits { width: u32, signed: bool },
    Bool,
}

impl Like {
    fn with(self, value: Value) -> UnsizedExpression {
        match self {
            Like::Bits { width, signed } => UnsizedExpression::Bits { value, width, signed },
            Like::Bool => UnsizedExpression::Bool(value),
        }
    }
}

fn fold(operator: Binary, left: i128, right: i128, place: &Place) -> Result<UnsizedExpression> {
    let shift = u32::try_from(right).ok();
    let number = match operator {
        Binary::Add => left.checked_add(right),
        Binary::Subtract => left.checked_sub(right),
        Binary::Multiply => left.checked_mul(right),
        Binary::Divide => left.checked_div(right),
        Binary::Remainder => left.checked_rem(right),
        Binary::And => Some(left & right),
        Binary::Or => Some(left | right),
        Binary::Xor => Some(left ^ right),
        Binary::ShiftLeft => shift.and_then(|by| left.checked_shl(by)),
        Binary::ShiftRight => shift.and_then(|by| left.checked_shr(by)),
        _ => {
            let holds = match operator {
                Binary::Equal => left == right,
                Binary::NotEqual => left != right,
                Binary::Less => left < right,
                Binary::LessOrEqual => left <= right,
                Binary::Greater => left > right,
                Binary::GreaterOrEqual => left >= right,
                _ => return place.fail("operator on numbers without a width"),
            };
            return Ok(UnsizedExpression::Bool(Value::Constant(u128::from(holds))));
        }
    };
    number
        .map(UnsizedExpression::Number)
        .ok_or_else(|| place.error("the number is not representable"))
}

//! Syntax tree of P4.

use crate::source::Place;

#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) place: Place,
    pub(crate) kind: ExpressionKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ExpressionKind {
    Number {
        value: u128,
        width: Option<(u32, bool)>,
    },
    Bool(bool),
    Text(String),
    Name(String),
    Member(Box<Expression>, String),
    Index(Box<Expression>, Box<Expression>),
    Slice {
        of: Box<Expression>,
        high: Box<Expression>,
        low: Box<Expression>,
    },
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    Conditional(Box<Expression>, Box<Expression>, Box<Expression>),
    Cast(Type, Box<Expression>),
    List(Vec<Expression>),
    Call {
        callee: Box<Expression>,
        types: Vec<Type>,
        arguments: Vec<Expression>,
    },
    /// `value &&& mask`.
    Mask(Box<Expression>, Box<Expression>),
    /// `_` or `default`.
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Negate,
    Complement,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Subtract,
    AddSaturating,
    SubtractSaturating,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Concatenate,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    BothTrue,
    OneTrue,
}

#[derive(Clone, Debug)]
pub(crate) struct Type {
    pub(crate) place: Place,
    pub(crate) kind: TypeKind,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeKind {
    Bits {
        width: Box<Expression>,
        signed: bool,
    },
    /// `int` without a width, of constants only.
    Integer,
    Bool,
    Void,
    Named {
        name: String,
        arguments: Vec<Type>,
    },
    Stack(Box<Type>, Box<Expression>),
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) place: Place,
    pub(crate) kind: Type,
    pub(crate) name: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) place: Place,
    pub(crate) kind: StatementKind,
}

#[derive(Clone, Debug)]
pub(crate) enum StatementKind {
    Assign(Expression, Expression),
    Call(Expression),
    If(Expression, Vec<Statement>, Vec<Statement>),
    Block(Vec<Statement>),
    Local(Variable),
}

#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) place: Place,
    pub(crate) constant: bool,
    pub(crate) kind: Type,
    pub(crate) name: String,
    pub(crate) value: Option<Expression>,
}

/// Header or struct.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) header: bool,
    pub(crate) fields: Vec<(String, Type)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Action {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyElement {
    pub(crate) place: Place,
    pub(crate) value: Expression,
    pub(crate) kind: String,
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) key: Vec<Expression>,
    pub(crate) action: Expression,
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) annotations: Vec<String>,
    pub(crate) key: Vec<KeyElement>,
    pub(crate) actions: Vec<(Place, String)>,
    pub(crate) default: Option<(Expression, bool)>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) size: Option<Expression>,
}

#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) place: Place,
    pub(crate) kind: Type,
    pub(crate) arguments: Vec<Expression>,
    pub(crate) name: String,
    pub(crate) functions: Vec<Function>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) body: Vec<Statement>,
    pub(crate) transition: Transition,
}

#[derive(Clone, Debug)]
pub(crate) enum Transition {
    To(Place, String),
    Select { keys: Vec<Expression>, cases: Vec<Case> },
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) place: Place,
    pub(crate) key: Vec<Expression>,
    pub(crate) to: String,
}

#[derive(Clone, Debug)]
pub(crate) enum Local {
    Variable(Variable),
    Action(Action),
    Table(Table),
    Instance(Instance),
    State(State),
}

/// Parser or control.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) parser: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) locals: Vec<Local>,
    pub(crate) body: Vec<Statement>,
}

#[derive(Clone, Debug)]
pub(crate) enum Declaration {
    Constant(Variable),
    Alias(String, Type),
    /// Enumeration of numbers: its name, their type, and their names and values.
    Enumeration(String, Type, Vec<Variable>),
    Record(Record),
    Block(Block),
    Instance(Instance),
}

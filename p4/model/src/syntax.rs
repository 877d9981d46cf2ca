//! Parser of P4: recursive descent over the part of P4_16 that the model executes.

use crate::ast::*;
use crate::source::{Place, Result};
use crate::token::{Kind, Token, number};
use hashbrown::HashSet;

const NO_TYPES: [&str; 12] = [
    "apply",
    "if",
    "else",
    "return",
    "exit",
    "transition",
    "switch",
    "true",
    "false",
    "action",
    "table",
    "state",
];

/// Extern types of the architecture. Whether one is supported is decided where it is used.
const BUILT_IN: [&str; 27] = [
    "packet_in",
    "packet_out",
    "Register",
    "RegisterAction",
    "RegisterParam",
    "DirectRegister",
    "DirectRegisterAction",
    "Counter",
    "DirectCounter",
    "Meter",
    "DirectMeter",
    "Lpf",
    "DirectLpf",
    "Wred",
    "DirectWred",
    "Hash",
    "CRCPolynomial",
    "Random",
    "Checksum",
    "Mirror",
    "Digest",
    "Resubmit",
    "ActionProfile",
    "ActionSelector",
    "ParserCounter",
    "Pipeline",
    "Switch",
];

/// Operators by precedence, lowest first. `>>` is two tokens.
const LEVELS: [&[(&str, Binary)]; 10] = [
    &[("||", Binary::OneTrue)],
    &[("&&", Binary::BothTrue)],
    &[("==", Binary::Equal), ("!=", Binary::NotEqual)],
    &[
        ("<=", Binary::LessOrEqual),
        (">=", Binary::GreaterOrEqual),
        ("<", Binary::Less),
        (">", Binary::Greater),
    ],
    &[("|", Binary::Or)],
    &[("^", Binary::Xor)],
    &[("&", Binary::And)],
    &[("<<", Binary::ShiftLeft), (">>", Binary::ShiftRight)],
    &[
        ("++", Binary::Concatenate),
        ("|+|", Binary::AddSaturating),
        ("|-|", Binary::SubtractSaturating),
        ("+", Binary::Add),
        ("-", Binary::Subtract),
    ],
    &[("*", Binary::Multiply), ("/", Binary::Divide), ("%", Binary::Remainder)],
];

/// Parses the declarations of a preprocessed source. `known` has the names of types declared
/// elsewhere, and gains those declared here.
pub(crate) fn declarations(
    tokens: &[Token],
    known: &mut HashSet<String>,
) -> Result<Vec<Declaration>> {
    let mut syntax = Syntax { tokens, at: 0, types: known };
    let mut found = Vec::new();
    loop {
        syntax.annotations()?;
        if syntax.at == tokens.len() {
            return Ok(found);
        }
        if let Some(declaration) = syntax.declaration()? {
            found.push(declaration);
        }
    }
}

/// Annotations of one item.
#[derive(Default)]
struct Annotations {
    name: Option<String>,
    user: Vec<String>,
}

struct Syntax<'a> {
    tokens: &'a [Token],
    at: usize,
    types: &'a mut HashSet<String>,
}

impl Syntax<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn sees(&self, text: &str) -> bool {
        self.peek().is_some_and(|token| token.is(text))
    }

    fn sees_next(&self, text: &str) -> bool {
        self.tokens.get(self.at + 1).is_some_and(|token| token.is(text))
    }

    fn place(&self) -> Place {
        let place = self.peek().or(self.tokens.last()).map(|token| token.place.clone());
        place.unwrap_or(Place { file: "empty source".into(), line: 1 })
    }

    fn fail<T>(&self, expected: &str) -> Result<T> {
        match self.peek() {
            Some(found) => {
                found.place.fail(format!("expected {expected}, found {:?}", &*found.text))
            }
            None => self.place().fail(format!("expected {expected}, found the end of the source")),
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.sees(text);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.take(text) { Ok(()) } else { self.fail(&format!("{text:?}")) }
    }

    fn name(&mut self) -> Result<String> {
        match self.peek() {
            Some(token) if token.kind == Kind::Name => {
                let name = token.text.to_string();
                self.at += 1;
                Ok(name)
            }
            _ => self.fail("a name"),
        }
    }

    /// Skips annotations and returns those that matter to the control plane: the text of `@name`,
    /// and each `@user_annotation` as the compiler writes it.
    fn annotations(&mut self) -> Result<Annotations> {
        let mut found = Annotations::default();
        while self.sees("@") {
            let line = self.place();
            self.at += 1;
            let name = self.name()?;
            if name == "pragma" {
                while self.peek().is_some_and(|token| token.place == line) {
                    self.at += 1;
                }
            } else if self.take("(") {
                let mut texts = Vec::new();
                let mut depth = 1;
                while depth > 0 {
                    let Some(token) = self.peek() else {
                        return self.fail("the end of an annotation");
                    };
                    match &*token.text {
                        "(" => depth += 1,
                        ")" => depth -= 1,
                        text if token.kind == Kind::Text => texts.push(text.to_owned()),
                        _ => {}
                    }
                    self.at += 1;
                }
                match name.as_str() {
                    "name" => found.name = texts.pop(),
                    "user_annotation" => {
                        let quoted: Vec<String> =
                            texts.iter().map(|text| format!("\"{text}\"")).collect();
                        found.user.push(format!("@user_annotation({})", quoted.join(", ")));
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    fn declaration(&mut self) -> Result<Option<Declaration>> {
        let place = self.place();
        let Some(token) = self.peek() else {
            return self.fail("a declaration");
        };
        match &*token.text {
            ";" => {
                self.at += 1;
                Ok(None)
            }
            "const" => Ok(Some(Declaration::Constant(self.constant()?))),
            "typedef" | "type" => {
                self.at += 1;
                let kind = self.parse_type()?;
                let name = self.name()?;
                self.expect(";")?;
                self.types.insert(name.clone());
                Ok(Some(Declaration::Alias(name, kind)))
            }
            "enum" => Ok(Some(self.enumeration()?)),
            "header" | "struct" => {
                let header = self.sees("header");
                self.at += 1;
                let name = self.name()?;
                let fields = self.fields()?;
                self.types.insert(name.clone());
                Ok(Some(Declaration::Record(Record { place, name, header, fields })))
            }
            "parser" | "control" => Ok(Some(Declaration::Block(self.block()?))),
            word @ ("extern" | "package" | "error" | "match_kind" | "header_union" | "action" | "table") => place
                .fail(format!("unsupported declaration {word:?}: the model knows const, typedef, enum, header, struct, parser, control")),
            _ => {
                let kind = self.parse_type()?;
                match self.instance_or_variable(kind, false)? {
                    Local::Instance(instance) => Ok(Some(Declaration::Instance(instance))),
                    _ => place.fail("unsupported variable outside parsers and controls"),
                }
            }
        }
    }

    fn fields(&mut self) -> Result<Vec<(String, Type)>> {
        self.expect("{")?;
        let mut fields = Vec::new();
        loop {
            self.annotations()?;
            if self.take("}") {
                return Ok(fields);
            }
            let kind = self.parse_type()?;
            self.declared(&kind)?;
            let name = self.name()?;
            self.expect(";")?;
            fields.push((name, kind));
        }
    }

    /// Parses an enumeration of numbers, such as `enum bit<8> name { member = 1 }`.
    fn enumeration(&mut self) -> Result<Declaration> {
        self.expect("enum")?;
        if !self.sees("bit") {
            return self.fail("bit<N>, since an enum without numbers is unsupported,");
        }
        let kind = self.parse_type()?;
        let name = self.name()?;
        self.expect("{")?;
        let mut members = Vec::new();
        while !self.take("}") {
            let place = self.place();
            let member = format!("{name}.{}", self.name()?);
            self.expect("=")?;
            let value = Some(self.expression()?);
            let kind = kind.clone();
            members.push(Variable { place, constant: true, kind, name: member, value });
            if !self.sees("}") {
                self.expect(",")?;
            }
        }
        self.types.insert(name.clone());
        Ok(Declaration::Enumeration(name, kind, members))
    }

    fn constant(&mut self) -> Result<Variable> {
        let place = self.place();
        self.expect("const")?;
        let kind = self.parse_type()?;
        let name = self.name()?;
        self.expect("=")?;
        let value = Some(self.expression()?);
        self.expect(";")?;
        Ok(Variable { place, constant: true, kind, name, value })
    }

    fn parse_type(&mut self) -> Result<Type> {
        let place = self.place();
        let name = self.name()?;
        let kind = match name.as_str() {
            "bit" | "int" => {
                let width = if self.take("<") {
                    // In angle brackets, operators are only allowed inside further brackets.
                    let width = self.primary()?;
                    self.expect(">")?;
                    Some(width)
                } else if name == "bit" {
                    Some(Expression {
                        place: place.clone(),
                        kind: ExpressionKind::Number { value: 1, width: None },
                    })
                } else {
                    None
                };
                match width {
                    Some(width) => TypeKind::Bits { width: Box::new(width), signed: name == "int" },
                    None => TypeKind::Integer,
                }
            }
            "bool" => TypeKind::Bool,
            "void" => TypeKind::Void,
            "varbit" | "tuple" | "string" | "error" => {
                return place.fail(format!("unsupported type {name}"));
            }
            _ => TypeKind::Named { arguments: self.type_arguments()?, name },
        };
        let kind = Type { place: place.clone(), kind };
        if self.sees("[") {
            self.at += 1;
            let size = self.expression()?;
            self.expect("]")?;
            return Ok(Type { place, kind: TypeKind::Stack(Box::new(kind), Box::new(size)) });
        }
        Ok(kind)
    }

    fn type_arguments(&mut self) -> Result<Vec<Type>> {
        let mut arguments = Vec::new();
        if self.take("<") {
            loop {
                arguments.push(self.parse_type()?);
                if !self.take(",") {
                    break;
                }
            }
            self.expect(">")?;
        }
        Ok(arguments)
    }

    fn parameters(&mut self) -> Result<Vec<Parameter>> {
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.take(")") {
            self.annotations()?;
            let place = self.place();
            if self.sees("in") || self.sees("out") || self.sees("inout") {
                self.at += 1;
            }
            let kind = self.parse_type()?;
            self.declared(&kind)?;
            parameters.push(Parameter { place, kind, name: self.name()? });
            if !self.sees(")") {
                self.expect(",")?;
            }
        }
        Ok(parameters)
    }

    fn block(&mut self) -> Result<Block> {
        let place = self.place();
        let parser = self.sees("parser");
        self.at += 1;
        let name = self.name()?;
        if self.sees("<") {
            return self.fail("no type parameters, which are unsupported here,");
        }
        let parameters = self.parameters()?;
        if self.sees("(") {
            return self.place().fail("unsupported constructor parameters");
        }
        self.types.insert(name.clone());
        self.expect("{")?;
        let mut locals = Vec::new();
        let mut body = Vec::new();
        loop {
            let annotations = self.annotations()?;
            if self.take("}") {
                return Ok(Block { place, name, parser, parameters, locals, body });
            }
            if self.sees("apply") {
                self.at += 1;
                body = self.statements()?;
            } else {
                locals.push(self.local(annotations.user)?);
            }
        }
    }

    fn local(&mut self, annotations: Vec<String>) -> Result<Local> {
        let place = self.place();
        if self.sees("const") {
            return Ok(Local::Variable(self.constant()?));
        }
        if self.take("action") {
            let name = self.name()?;
            let parameters = self.parameters()?;
            return Ok(Local::Action(Action { name, parameters, body: self.statements()? }));
        }
        if self.take("table") {
            return Ok(Local::Table(self.table(place, annotations)?));
        }
        if self.take("state") {
            return Ok(Local::State(self.state(place)?));
        }
        let kind = self.parse_type()?;
        self.instance_or_variable(kind, true)
    }

    /// Checks that a type is declared earlier, as the chip's compiler requires.
    fn declared(&self, kind: &Type) -> Result<()> {
        match &kind.kind {
            TypeKind::Named { name, .. }
                if !self.types.contains(name) && !BUILT_IN.contains(&name.as_str()) =>
            {
                kind.place.fail(format!("type {name} is not declared above"))
            }
            TypeKind::Stack(element, _) => self.declared(element),
            _ => Ok(()),
        }
    }

    fn instance_or_variable(&mut self, kind: Type, inside: bool) -> Result<Local> {
        let place = kind.place.clone();
        if self.take("(") {
            self.declared(&kind)?;
            let arguments = self.list(")")?;
            let name = self.name()?;
            let mut functions = Vec::new();
            if self.take("=") {
                self.expect("{")?;
                while !self.take("}") {
                    functions.push(self.function()?);
                }
            }
            self.expect(";")?;
            return Ok(Local::Instance(Instance { place, kind, arguments, name, functions }));
        }
        if !inside {
            return self.fail("\"(\"");
        }
        let name = self.name()?;
        let value = if self.take("=") { Some(self.expression()?) } else { None };
        self.expect(";")?;
        Ok(Local::Variable(Variable { place, constant: false, kind, name, value }))
    }

    fn function(&mut self) -> Result<Function> {
        self.annotations()?;
        let place = self.place();
        let kind = self.parse_type()?;
        if !matches!(kind.kind, TypeKind::Void) {
            return place.fail("unsupported function that returns a value");
        }
        let name = self.name()?;
        let parameters = self.parameters()?;
        Ok(Function { place, name, parameters, body: self.statements()? })
    }

    fn table(&mut self, place: Place, annotations: Vec<String>) -> Result<Table> {
        let mut table = Table {
            place,
            name: self.name()?,
            annotations,
            key: Vec::new(),
            actions: Vec::new(),
            default: None,
            entries: Vec::new(),
            size: None,
        };
        self.expect("{")?;
        loop {
            self.annotations()?;
            if self.take("}") {
                return Ok(table);
            }
            let constant = self.take("const");
            let place = self.place();
            let property = self.name()?;
            self.expect("=")?;
            match property.as_str() {
                "key" => table.key = self.key()?,
                "actions" => table.actions = self.actions()?,
                "entries" if constant => table.entries = self.entries()?,
                "entries" => return place.fail("unsupported initial entries that are not const"),
                "default_action" => {
                    table.default = Some((self.expression()?, constant));
                    self.expect(";")?;
                }
                "size" => {
                    table.size = Some(self.expression()?);
                    self.expect(";")?;
                }
                _ => return place.fail(format!("unsupported table property {property}")),
            }
        }
    }

    fn key(&mut self) -> Result<Vec<KeyElement>> {
        self.expect("{")?;
        let mut key = Vec::new();
        while !self.take("}") {
            let place = self.place();
            let value = self.expression()?;
            self.expect(":")?;
            let kind = self.name()?;
            let name = self.annotations()?.name;
            self.expect(";")?;
            key.push(KeyElement { place, value, kind, name });
        }
        Ok(key)
    }

    fn actions(&mut self) -> Result<Vec<(Place, String)>> {
        self.expect("{")?;
        let mut actions = Vec::new();
        loop {
            self.annotations()?;
            if self.take("}") {
                return Ok(actions);
            }
            let place = self.place();
            actions.push((place, self.name()?));
            if self.take("(") {
                self.expect(")")?;
            }
            self.expect(";")?;
        }
    }

    fn entries(&mut self) -> Result<Vec<Entry>> {
        self.expect("{")?;
        let mut entries = Vec::new();
        while !self.take("}") {
            let place = self.place();
            let key = self.key_set()?;
            self.expect(":")?;
            let action = self.expression()?;
            self.expect(";")?;
            entries.push(Entry { place, key, action });
        }
        Ok(entries)
    }

    /// Parses one value or mask, or several in brackets.
    fn key_set(&mut self) -> Result<Vec<Expression>> {
        if self.sees("(") {
            let start = self.at;
            self.at += 1;
            let list = self.list(")")?;
            // An operator after the bracket belongs to a single value.
            if self.sees(":") {
                return Ok(list);
            }
            self.at = start;
        }
        Ok(vec![self.masked()?])
    }

    fn masked(&mut self) -> Result<Expression> {
        let place = self.place();
        if self.take("default") || self.take("_") {
            return Ok(Expression { place, kind: ExpressionKind::Any });
        }
        let value = self.expression()?;
        if self.take("&&&") {
            let mask = self.expression()?;
            return Ok(Expression {
                place,
                kind: ExpressionKind::Mask(Box::new(value), Box::new(mask)),
            });
        }
        if self.sees("..") {
            return place.fail("unsupported range");
        }
        Ok(value)
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expression>> {
        let mut list = Vec::new();
        while !self.take(end) {
            list.push(self.masked()?);
            if !self.sees(end) {
                self.expect(",")?;
            }
        }
        Ok(list)
    }

    fn state(&mut self, place: Place) -> Result<State> {
        let name = self.name()?;
        self.expect("{")?;
        let mut body = Vec::new();
        while !self.sees("transition") {
            if self.sees("}") {
                self.at += 1;
                // A state without a transition rejects.
                let transition = Transition::To(place.clone(), "reject".to_owned());
                return Ok(State { place, name, body, transition });
            }
            body.push(self.statement()?);
        }
        self.at += 1;
        let transition = if self.take("select") {
            self.expect("(")?;
            let keys = self.list(")")?;
            Transition::Select { keys, cases: self.cases()? }
        } else {
            let at = self.place();
            let to = self.name()?;
            self.expect(";")?;
            Transition::To(at, to)
        };
        self.expect("}")?;
        Ok(State { place, name, body, transition })
    }

    fn cases(&mut self) -> Result<Vec<Case>> {
        self.expect("{")?;
        let mut cases = Vec::new();
        while !self.take("}") {
            let place = self.place();
            let key = self.key_set()?;
            self.expect(":")?;
            let to = self.name()?;
            self.expect(";")?;
            cases.push(Case { place, key, to });
        }
        Ok(cases)
    }

    fn statements(&mut self) -> Result<Vec<Statement>> {
        self.expect("{")?;
        let mut statements = Vec::new();
        while !self.take("}") {
            statements.push(self.statement()?);
        }
        Ok(statements)
    }

    fn statement(&mut self) -> Result<Statement> {
        self.annotations()?;
        let place = self.place();
        let kind = if self.sees("{") {
            StatementKind::Block(self.statements()?)
        } else if self.take(";") {
            StatementKind::Block(Vec::new())
        } else if self.take("if") {
            self.expect("(")?;
            let condition = self.expression()?;
            self.expect(")")?;
            let then = vec![self.statement()?];
            let otherwise = if self.take("else") { vec![self.statement()?] } else { Vec::new() };
            StatementKind::If(condition, then, otherwise)
        } else if self.sees("const") {
            StatementKind::Local(self.constant()?)
        } else if self.sees_variable() {
            let kind = self.parse_type()?;
            match self.instance_or_variable(kind, true)? {
                Local::Variable(variable) => StatementKind::Local(variable),
                _ => return place.fail("unsupported instance inside a block"),
            }
        } else if let Some(word) = ["return", "exit", "switch", "for", "while", "break", "continue"]
            .iter()
            .find(|word| self.sees(word))
        {
            return place.fail(format!("unsupported statement {word:?}"));
        } else {
            let left = self.expression()?;
            if self.take("=") {
                let right = self.expression()?;
                self.expect(";")?;
                return Ok(Statement { place, kind: StatementKind::Assign(left, right) });
            }
            self.expect(";")?;
            StatementKind::Call(left)
        };
        Ok(Statement { place, kind })
    }

    fn sees_variable(&self) -> bool {
        let Some(first) = self.peek() else { return false };
        if first.kind != Kind::Name || NO_TYPES.contains(&&*first.text) {
            return false;
        }
        let next_is_name =
            self.tokens.get(self.at + 1).is_some_and(|token| token.kind == Kind::Name);
        ["bit", "int"].contains(&&*first.text) && self.sees_next("<") || next_is_name
    }

    fn expression(&mut self) -> Result<Expression> {
        let place = self.place();
        let condition = self.binary(0)?;
        if self.take("?") {
            let then = self.expression()?;
            self.expect(":")?;
            let otherwise = self.expression()?;
            let kind = ExpressionKind::Conditional(
                Box::new(condition),
                Box::new(then),
                Box::new(otherwise),
            );
            return Ok(Expression { place, kind });
        }
        Ok(condition)
    }

    fn operator(&mut self, operators: &[(&str, Binary)]) -> Option<Binary> {
        let shift =
            self.sees(">") && self.peek().is_some_and(|token| token.joined) && self.sees_next(">");
        let (text, operator) = operators
            .iter()
            .find(|(text, _)| if shift { *text == ">>" } else { self.sees(text) })?;
        self.at += if shift { 2 } else { usize::from(!text.is_empty()) };
        Some(*operator)
    }

    fn binary(&mut self, level: usize) -> Result<Expression> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        loop {
            let place = self.place();
            let Some(operator) = self.operator(operators) else {
                return Ok(left);
            };
            let right = self.binary(level + 1)?;
            left = Expression {
                place,
                kind: ExpressionKind::Binary(operator, Box::new(left), Box::new(right)),
            };
        }
    }

    fn unary(&mut self) -> Result<Expression> {
        let place = self.place();
        let operators = [("-", Unary::Negate), ("~", Unary::Complement), ("!", Unary::Not)];
        if let Some((_, operator)) = operators.into_iter().find(|(text, _)| self.sees(text)) {
            self.at += 1;
            let of = Box::new(self.unary()?);
            return Ok(Expression { place, kind: ExpressionKind::Unary(operator, of) });
        }
        if self.sees("(") && self.sees_cast() {
            self.at += 1;
            let kind = self.parse_type()?;
            self.expect(")")?;
            let of = Box::new(self.unary()?);
            return Ok(Expression { place, kind: ExpressionKind::Cast(kind, of) });
        }
        let first = self.primary()?;
        self.postfix(first)
    }

    fn sees_cast(&self) -> bool {
        let Some(inner) = self.tokens.get(self.at + 1) else { return false };
        let closes = self.tokens.get(self.at + 2).is_some_and(|token| token.is(")"));
        inner.kind == Kind::Name
            && (["bit", "int"].contains(&&*inner.text)
                || closes && (&*inner.text == "bool" || self.types.contains(&*inner.text)))
    }

    fn primary(&mut self) -> Result<Expression> {
        let place = self.place();
        let Some(token) = self.peek().cloned() else {
            return self.fail("a value");
        };
        let kind = match (token.kind, &*token.text) {
            (Kind::Number, _) => {
                self.at += 1;
                let (value, width) = number(&token)?;
                ExpressionKind::Number { value, width }
            }
            (_, "true" | "false") => {
                self.at += 1;
                ExpressionKind::Bool(token.is("true"))
            }
            (Kind::Symbol, "(") => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            (Kind::Symbol, "{") => {
                self.at += 1;
                ExpressionKind::List(self.list("}")?)
            }
            (Kind::Name, _) => ExpressionKind::Name(self.name()?),
            (Kind::Text, text) => {
                self.at += 1;
                ExpressionKind::Text(text.to_owned())
            }
            _ => return self.fail("a value"),
        };
        Ok(Expression { place, kind })
    }

    fn postfix(&mut self, mut left: Expression) -> Result<Expression> {
        loop {
            let place = self.place();
            let kind = if self.take(".") {
                ExpressionKind::Member(Box::new(left), self.name()?)
            } else if self.take("[") {
                let first = self.expression()?;
                let kind = if self.take(":") {
                    let low = Box::new(self.expression()?);
                    ExpressionKind::Slice { of: Box::new(left), high: Box::new(first), low }
                } else {
                    ExpressionKind::Index(Box::new(left), Box::new(first))
                };
                self.expect("]")?;
                kind
            } else if self.sees("(") || self.sees("<") {
                let Some(types) = self.types_before_call() else {
                    return Ok(left);
                };
                let arguments = self.list(")")?;
                ExpressionKind::Call { callee: Box::new(left), types, arguments }
            } else {
                return Ok(left);
            };
            left = Expression { place, kind };
        }
    }

    /// Parses the type arguments and the opening bracket of a call. Consumes nothing if this is a
    /// comparison.
    fn types_before_call(&mut self) -> Option<Vec<Type>> {
        let start = self.at;
        let types = self.type_arguments();
        match types {
            Ok(types) if self.take("(") => Some(types),
            _ => {
                self.at = start;
                None
            }
        }
    }
}

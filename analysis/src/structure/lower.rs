//! Lowers the SWC tree to the core language.

mod call;
mod class;
mod expr;
mod function;
mod loops;
mod operator;
mod pattern;
mod scope;
mod stmt;
mod uses;
mod zones;

use swc_atoms::Atom;
use swc_common::{Span, Spanned};
use swc_ecma_ast as ast;

use self::scope::{Frame, Label};
use super::core::{
    ARGUMENTS, Block, Branch, Core, FuncForm, FuncId, Function, Inst, Key, MADE, Mark, Op, RESULT,
    Region, Scalar, Slot, Sum, TARGET, THIS, WHOLE,
};
use super::domain::kept;
use crate::wrapper::offset;

/// Lowers a program, which is the body of a function.
pub(super) fn lower(main: &ast::Function) -> Core {
    let mut lower = Lower {
        core: Core {
            functions: Vec::new(),
            converts: false,
            accessors: false,
            symbols: false,
            hooks: false,
            orders: false,
            ends_at_return: true,
            unknown_names: Vec::new(),
            foreign_arguments: None,
            called_on: Vec::new(),
        },
        frames: Vec::new(),
        next: 1,
        declares: false,
        executors: Vec::new(),
    };
    lower.main(main);
    lower.core
}

struct Lower {
    core: Core,
    /// The functions around the current position, the innermost last.
    frames: Vec<Frame>,
    /// The number of the next instruction.
    next: u32,
    /// Whether an assignment initializes a declaration, which is allowed for constants.
    declares: bool,
    /// The positions of the functions that are passed to `new Promise(…)`.
    executors: Vec<u32>,
}

/// Returns whether a well-known symbol can change what the engine's functions do.
fn is_hook(symbol: &str) -> bool {
    !matches!(
        symbol,
        "iterator"
            | "asyncIterator"
            | "toPrimitive"
            | "hasInstance"
            | "toStringTag"
            | "for"
            | "keyFor"
    )
}

/// Returns whether a function of the engine reveals the order of properties.
fn sees_order(name: &str) -> bool {
    matches!(
        name,
        "keys"
            | "values"
            | "entries"
            | "stringify"
            | "ownKeys"
            | "getOwnPropertyNames"
            | "getOwnPropertyDescriptors"
            | "assign"
    )
}

/// Returns whether the engine calls methods of this name implicitly.
fn is_called_by_engine(name: &str) -> bool {
    matches!(name, "toString" | "valueOf" | "toJSON" | "then" | "return") || name.starts_with("@@")
}

impl Lower {
    fn frame(&mut self) -> &mut Frame {
        // The program itself is a frame, and is left last.
        self.frames.last_mut().expect("lowering is always inside a function")
    }

    fn emit(&mut self, span: Span, op: Op) {
        let (at, end) = (offset(span.lo), offset(span.hi));
        let id = self.next;
        self.next += 1;
        self.frame().out.push(Inst { at, end, id, op });
    }

    /// Returns a new slot.
    fn fresh(&mut self) -> Slot {
        self.frame().fresh()
    }

    fn constant(&mut self, span: Span, value: Scalar) -> Slot {
        let to = self.fresh();
        self.emit(span, Op::Const { to, value });
        to
    }

    fn undefined(&mut self, span: Span) -> Slot {
        self.constant(span, Scalar::Undefined)
    }

    fn compute(&mut self, span: Span, how: Sum, of: Vec<Slot>) -> Slot {
        let to = self.fresh();
        self.emit(span, Op::Compute { to, how, of });
        to
    }

    /// Collects what `make` emits into a separate block.
    fn block<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> (Block, T) {
        // The instructions are large: appended to those around them and then cut off, they are not moved again and
        // again as their block grows.
        let first = self.frame().out.len();
        let made = make(self);
        (self.frame().out.drain(first..).collect(), made)
    }

    /// Wraps what `make` emits in a block that appears in the plan's structure.
    fn marked<T>(&mut self, span: Span, mark: Mark, make: impl FnOnce(&mut Self) -> T) -> T {
        let (body, made) = self.block(make);
        self.emit(span, Op::Marked { mark, body });
        made
    }

    /// Wraps what `make` emits as a branch of the enclosing construct.
    fn branch<T>(&mut self, span: Span, branch: Branch, make: impl FnOnce(&mut Self) -> T) -> T {
        self.marked(span, Mark::Way(branch), make)
    }

    /// Runs `make` in a new scope.
    fn scoped<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        self.frame().scopes.push(Default::default());
        let made = make(self);
        self.frame().scopes.pop();
        made
    }

    /// Runs `make`, and before it begins the temporal dead zones of those variables of the innermost scope that
    /// `make` uses before their declaration.
    fn with_dead_zones(&mut self, span: Span, make: impl FnOnce(&mut Self)) {
        let first = self.frame().out.len();
        make(self);
        let frame = self.frame();
        if frame.zones.early.is_empty() {
            return;
        }
        let mut early: Vec<Slot> = frame.scopes.last().map_or_else(Vec::new, |scope| {
            scope.values().filter(|slot| frame.zones.early.contains(slot)).copied().collect()
        });
        early.sort_unstable();
        let rest = frame.out.split_off(first);
        for slot in early {
            self.emit(span, Op::Declare { slot });
        }
        self.frame().out.extend(rest);
    }

    fn region(&mut self) -> Region {
        let frame = self.frame();
        frame.regions += 1;
        frame.regions
    }

    /// Finds a variable: the number of functions up, and its slot there.
    fn lookup(&mut self, name: &Atom) -> Option<(u32, Slot)> {
        for (up, frame) in self.frames.iter_mut().rev().enumerate() {
            let found = frame.find(name);
            if let Some(slot) = found {
                if up > 0 {
                    frame.capture(slot);
                }
                frame.zones.used(slot);
                return Some((up as u32, slot));
            }
        }
        None
    }

    /// Reads a name.
    fn read(&mut self, span: Span, name: &Atom) -> Slot {
        let found = self.lookup(name);
        // At the top level, `arguments` are those of the wrapper around the program.
        if let Some((up, ARGUMENTS)) = found
            && up as usize + 1 == self.frames.len()
        {
            self.core.foreign_arguments.get_or_insert(offset(span.lo));
        }
        match found {
            Some((0, slot)) => {
                // A copy, because the variable may change before the value is used.
                let to = self.fresh();
                self.emit(span, Op::Copy { to, from: slot });
                to
            }
            Some((up, slot)) => {
                let to = self.fresh();
                self.emit(span, Op::Outer { to, up, slot });
                to
            }
            None if &**name == "undefined" => self.undefined(span),
            None => {
                let to = self.fresh();
                let leads = matches!(&**name, "Symbol" | "globalThis");
                self.core.symbols |= leads;
                self.core.hooks |= &**name == "Symbol";
                if !name.is_ascii() {
                    // No global has a non-ASCII name. `mсp` with a Cyrillic letter is probably meant as `mcp`.
                    self.core.unknown_names.push((offset(span.lo), name.clone()));
                }
                self.emit(span, Op::Global { to, name: name.clone() });
                to
            }
        }
    }

    /// Writes a name.
    fn write(&mut self, span: Span, name: &Atom, from: Slot) {
        if self.declares
            && let Some(slot) = self.frame().own(name)
        {
            self.frame().zones.end(slot);
            self.emit(span, Op::Copy { to: slot, from });
            return;
        }
        // Assigning to a constant throws a `TypeError`.
        if self.is_constant(name) {
            let from = self.undefined(span);
            self.emit(span, Op::Throw { from });
            return;
        }
        let op = match self.lookup(name) {
            Some((0, slot)) => {
                if self.frame().zones.is_open(slot) {
                    // An assignment before the declaration fails as a read does.
                    let to = self.fresh();
                    self.emit(span, Op::Copy { to, from: slot });
                }
                Op::Copy { to: slot, from }
            }
            Some((up, slot)) => Op::SetOuter { up, slot, from },
            None => Op::SetGlobal { name: name.clone(), from },
        };
        self.emit(span, op);
    }

    /// Returns whether a name is that of a constant.
    fn is_constant(&self, name: &Atom) -> bool {
        for frame in self.frames.iter().rev() {
            if let Some(slot) = frame.scopes.iter().rev().find_map(|scope| scope.get(name)) {
                return frame.constants.contains(slot);
            }
        }
        false
    }

    /// Lowers a use of `Symbol` that shows which symbol is meant, so `hooks` need not be set.
    fn with_symbol<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.core.hooks;
        let made = make(self);
        self.core.hooks = before;
        made
    }

    /// Returns whether an expression is the engine's `Symbol`.
    fn is_symbol(&mut self, expr: &ast::Expr) -> bool {
        matches!(bare(expr), ast::Expr::Ident(name) if &*name.sym == "Symbol")
            && self.lookup(&"Symbol".into()).is_none()
    }

    /// Reads a variable that the lowering itself declared.
    fn read_own(&mut self, span: Span, name: &str) -> Slot {
        self.read(span, &name.into())
    }

    fn name_key(&mut self, name: &Atom) -> Key {
        self.record_name_read(name);
        self.defined_key(name)
    }

    /// Records the name of a property that is read: some of them give access to symbols.
    fn record_name_read(&mut self, name: &str) {
        self.core.hooks |= matches!(name, "getOwnPropertySymbols" | "ownKeys");
    }

    /// Lowers a literal property name.
    fn defined_key(&mut self, name: &Atom) -> Key {
        self.core.hooks |= name.strip_prefix("@@").is_some_and(is_hook);
        self.core.orders |= sees_order(name);
        self.core.converts |= is_called_by_engine(name);
        Key::Name(kept(name))
    }

    /// Lowers the name of one of the engine's symbols.
    fn symbol_key(&mut self, symbol: &str) -> Key {
        let name = format!("@@{symbol}");
        self.core.hooks |= is_hook(symbol);
        self.core.converts |= is_called_by_engine(&name);
        Key::Name(name.into())
    }

    /// Lowers the key of a computed member.
    fn computed_key(&mut self, key: &ast::Expr) -> Key {
        match bare(key) {
            ast::Expr::Lit(ast::Lit::Str(text)) => match text.value.as_str() {
                Some(text) => self.name_key(&text.into()),
                None => Key::Slot(self.expr(key)),
            },
            ast::Expr::Lit(ast::Lit::Num(number)) if is_index(number.value) => {
                Key::Name(format!("{}", number.value as u64).into())
            }
            ast::Expr::Member(member) if self.is_symbol(&member.obj) => match &member.prop {
                ast::MemberProp::Ident(name) => self.symbol_key(&name.sym),
                _ => Key::Slot(self.expr(key)),
            },
            // The key is converted at run time, which may call a `toString` of the program.
            _ => {
                self.core.converts = true;
                Key::Slot(self.expr(key))
            }
        }
    }

    /// Lowers the name of a property in a literal, a class or a pattern.
    fn prop_key(&mut self, name: &ast::PropName) -> Key {
        match name {
            ast::PropName::Ident(name) => self.defined_key(&name.sym),
            ast::PropName::Str(text) => match text.value.as_str() {
                Some(text) => self.defined_key(&text.into()),
                None => Key::Slot(self.undefined(text.span)),
            },
            ast::PropName::Num(number) if is_index(number.value) => {
                Key::Name(format!("{}", number.value as u64).into())
            }
            ast::PropName::Num(number) => {
                let value = Scalar::Number(number.value.to_bits());
                Key::Slot(self.constant(number.span, value))
            }
            ast::PropName::BigInt(number) => Key::Name(number.value.to_string().into()),
            ast::PropName::Computed(computed) => self.computed_key(&computed.expr),
        }
    }
}

fn is_index(value: f64) -> bool {
    value.fract() == 0.0 && (0.0..1e15).contains(&value)
}

/// Returns an expression without the parentheses and casts around it.
pub(super) fn bare(expr: &ast::Expr) -> &ast::Expr {
    use ast::Expr;
    let mut expr = expr;
    loop {
        expr = match expr {
            Expr::Paren(inner) => &inner.expr,
            Expr::TsAs(cast) => &cast.expr,
            Expr::TsSatisfies(cast) => &cast.expr,
            Expr::TsNonNull(cast) => &cast.expr,
            Expr::TsConstAssertion(cast) => &cast.expr,
            Expr::TsTypeAssertion(cast) => &cast.expr,
            Expr::TsInstantiation(cast) => &cast.expr,
            _ => return expr,
        };
    }
}

#[cfg(test)]
mod tests;

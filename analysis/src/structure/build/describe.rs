//! What an expression is made of: which objects it gives, and where they are in it.

use smallvec::{SmallVec, smallvec};
use swc_atoms::Atom;
use swc_ecma_ast::{
    AssignTarget, Callee, Expr, ExprOrSpread, MemberProp, ObjectLit, OptChainBase, Prop, PropName,
    PropOrSpread, SimpleAssignTarget,
};

use super::Builder;
use super::alias::{Link, Place, Root, ways_of_part};
use super::class::makers;
use super::expr::bare;
use super::feed::Slot;
use super::function::FuncBody;
use super::path::{Path, Step};
use super::value::{Form, Value};

/// An expression that gives an object, or a part of one.
struct Piece<'a> {
    expr: &'a Expr,
    /// Where in the object that is described it is.
    own: Path,
    /// Which part of what the expression gives is meant.
    path: Path,
    copied: bool,
}

/// What is still to be looked at.
type Open<'a> = SmallVec<[Piece<'a>; 2]>;

impl Piece<'_> {
    /// Returns what the whole has by what this has.
    fn has(&self, link: &Link) -> Option<Link> {
        let link = link.of_part(&self.path)?;
        // What is in a copy is the same.
        let copied = link.copied || self.copied && link.own.is_whole();
        Some(Link { own: self.own.and(&link.own), copied, to: link.to })
    }
}

/// How what a method gives has the parts of what it is called on.
enum Gives {
    /// It gives the object itself.
    Itself,
    /// It gives a part of it.
    Part,
    /// It gives a list of its parts.
    Parts,
    /// It gives a list of pairs, which have its parts.
    Pairs,
}

fn gives(method: &str) -> Option<Gives> {
    Some(match method {
        "sort" | "reverse" | "fill" | "set" | "add" => Gives::Itself,
        "get" | "at" | "find" | "findLast" | "pop" | "shift" => Gives::Part,
        "filter" | "slice" | "concat" | "flat" | "splice" | "toSorted" | "toReversed"
        | "values" => Gives::Parts,
        "entries" => Gives::Pairs,
        _ => return None,
    })
}

impl<'a> Builder<'a> {
    /// Returns where an expression gets its object from, or a part of it.
    pub(super) fn places(&mut self, expr: &'a Expr, part: &Path) -> Vec<Place> {
        let links = self.describe(expr, part.clone());
        links.iter().filter_map(|link| link.follow(&Path::default())).collect()
    }

    /// Returns what the parts of the object of an expression are, too, or those of a
    /// part of it.
    pub(super) fn describe(&mut self, expr: &'a Expr, part: Path) -> Vec<Link> {
        let mut found = Vec::new();
        if self.gives_no_object(expr) {
            return found;
        }
        let mut open: Open<'a> =
            smallvec![Piece { expr, own: Path::default(), path: part, copied: false }];
        while let Some(piece) = open.pop() {
            let expr = bare(piece.expr);
            let root = match expr {
                Expr::This(_) => Root::This(self.arguments_owner()),
                Expr::Ident(name) => match self.lookup(&name.sym) {
                    Some(binding) => Root::Name(binding),
                    None if &*name.sym == "args" => Root::Input,
                    None => continue,
                },
                Expr::Arrow(arrow) => Root::Func(self.func_of(FuncBody::Arrow(arrow))),
                Expr::Fn(function) => {
                    Root::Func(self.func_of(FuncBody::Function(&function.function)))
                }
                _ => {
                    self.parts_of(expr, &piece, &mut open, &mut found);
                    continue;
                }
            };
            let to = Place { root, path: piece.path };
            found.push(Link { own: piece.own, copied: piece.copied, to });
        }
        found
    }

    /// Returns whether it is plain that an expression gives no object that others have.
    fn gives_no_object(&self, expr: &Expr) -> bool {
        let mut expr = bare(expr);
        while let Expr::Await(awaited) = expr {
            expr = bare(&awaited.arg);
        }
        match expr {
            Expr::Lit(_) | Expr::Tpl(_) | Expr::Unary(_) | Expr::Update(_) | Expr::Class(_) => true,
            Expr::Bin(binary) => !binary.op.may_short_circuit(),
            // The result of a tool is new.
            Expr::Call(call) => {
                let Callee::Expr(callee) = &call.callee else { return true };
                let Expr::Member(action) = bare(callee) else { return false };
                let Expr::Member(namespace) = bare(&action.obj) else { return false };
                let Expr::Ident(name) = bare(&namespace.obj) else { return false };
                &*name.sym == "mcp" && self.lookup("mcp").is_none()
            }
            _ => false,
        }
    }

    fn parts_of(
        &mut self,
        expr: &'a Expr,
        piece: &Piece<'a>,
        open: &mut Open<'a>,
        found: &mut Vec<Link>,
    ) {
        let same = |expr: &'a Expr| Piece {
            expr,
            own: piece.own.clone(),
            path: piece.path.clone(),
            copied: piece.copied,
        };
        match expr {
            Expr::Member(member) => open.push(of_member(&member.obj, &member.prop, piece)),
            Expr::OptChain(chain) => match &*chain.base {
                OptChainBase::Member(member) => {
                    open.push(of_member(&member.obj, &member.prop, piece));
                }
                OptChainBase::Call(call) => {
                    self.of_call(&call.callee, &call.args, piece, open, found);
                }
            },
            Expr::Await(awaited) => open.push(same(&awaited.arg)),
            Expr::Assign(assign) => {
                open.push(same(&assign.right));
                match &assign.left {
                    AssignTarget::Simple(SimpleAssignTarget::Member(member)) => {
                        open.push(of_member(&member.obj, &member.prop, piece));
                    }
                    AssignTarget::Simple(SimpleAssignTarget::Ident(name)) => {
                        let binding = self.lookup(&name.id.sym);
                        found.extend(binding.map(|binding| Link {
                            own: piece.own.clone(),
                            copied: piece.copied,
                            to: Place { root: Root::Name(binding), path: piece.path.clone() },
                        }));
                    }
                    _ => {}
                }
            }
            Expr::Seq(sequence) => open.extend(sequence.exprs.last().map(|last| same(last))),
            Expr::Cond(choice) => open.extend([same(&choice.cons), same(&choice.alt)]),
            Expr::Bin(binary) if binary.op.may_short_circuit() => {
                open.extend([same(&binary.left), same(&binary.right)]);
            }
            Expr::Array(array) => {
                let mut known = true;
                for (index, item) in array.elems.iter().enumerate() {
                    let Some(item) = item else { continue };
                    let step = if known { Step::name(&index.to_string()) } else { Step::Any };
                    if item.spread.is_some() {
                        known = false;
                        let all = Path::of(Step::Any);
                        open.extend(of_part(&item.expr, piece, &all, &all));
                    } else {
                        let whole = Path::default();
                        open.extend(of_part(&item.expr, piece, &Path::of(step), &whole));
                    }
                }
            }
            Expr::Object(object) => {
                of_object(object, piece, open);
                for name in shorthands(object) {
                    let Some(binding) = self.lookup(name) else { continue };
                    let to = Place { root: Root::Name(binding), path: Path::default() };
                    let link = Link { own: Path::of(Step::name(name)), copied: false, to };
                    found.extend(piece.has(&link));
                }
            }
            Expr::New(new) => {
                // What it does with them is not known.
                let deep = Path::of(Step::Deep);
                for arg in new.args.iter().flatten() {
                    open.extend(of_part(&arg.expr, piece, &deep, &Path::default()));
                }
                self.feeds.by_functions = true;
                let made = self.seen_at(&new.callee).map_or_else(Vec::new, |class| makers(&class));
                for fed in made.iter().flat_map(|maker| &self.funcs[*maker as usize].feeds) {
                    if let (Slot::This, Some((part, link))) = (fed.slot, fed.joins()) {
                        let link = Link { own: part.clone(), ..link.clone() };
                        found.extend(piece.has(&link));
                    }
                }
            }
            Expr::Call(call) => {
                if let Callee::Expr(callee) = &call.callee {
                    self.of_call(callee, &call.args, piece, open, found);
                }
            }
            _ => {}
        }
    }

    fn of_call(
        &mut self,
        callee: &'a Expr,
        args: &'a [ExprOrSpread],
        piece: &Piece<'a>,
        open: &mut Open<'a>,
        found: &mut Vec<Link>,
    ) {
        let (any, whole) = (Path::of(Step::Any), Path::default());
        let funcs = match bare(callee) {
            Expr::Ident(_) => {
                self.seen_at(callee).map_or_else(Vec::new, |value| value.funcs().to_vec())
            }
            Expr::Member(member) => {
                if let MemberProp::Ident(method) = &member.prop {
                    if let Expr::Ident(object) = bare(&member.obj)
                        && self.lookup(&object.sym).is_none()
                    {
                        of_builtin(&object.sym, &method.sym, args, piece, open);
                        return;
                    }
                    let ways = gives(&method.sym).map(|gives| match gives {
                        Gives::Itself => (whole.clone(), whole),
                        Gives::Part => (whole, any),
                        Gives::Parts => (any.clone(), any),
                        Gives::Pairs => (any.then(Step::Any), any),
                    });
                    open.extend(
                        ways.and_then(|(own, path)| of_part(&member.obj, piece, &own, &path)),
                    );
                }
                self.seen_at(callee).map_or_else(Vec::new, |value| value.funcs().to_vec())
            }
            _ => return,
        };
        // It may give something else in the next round.
        self.feeds.by_functions |= !funcs.is_empty() || !self.is_settled(callee);
        let receiver = match bare(callee) {
            Expr::Member(member) => Some(&*member.obj),
            _ => None,
        };
        for func in funcs {
            for (func, link) in self.gives_of(func) {
                let Some(link) = link.of_part(&piece.path) else { continue };
                let own = piece.own.and(&link.own);
                let copied = piece.copied || link.copied;
                match self.slot_of(func, &link.to) {
                    Some((slot, path)) => {
                        let source = match slot {
                            Slot::This => receiver,
                            Slot::Param(index) | Slot::Rest(index) => {
                                args.get(index).and_then(plain)
                            }
                        };
                        open.extend(source.map(|expr| Piece { expr, own, path, copied }));
                    }
                    None => found.push(Link { own, copied, to: link.to }),
                }
            }
        }
    }

    /// Returns whether what is called is a method of something that never has functions
    /// of the program.
    fn is_settled(&self, callee: &'a Expr) -> bool {
        let mut expr = bare(callee);
        while let Expr::Member(member) = expr {
            expr = bare(&member.obj);
        }
        let Expr::Ident(name) = expr else { return false };
        let Some(binding) = self.lookup(&name.sym) else { return true };
        let value = self.read(binding);
        !value.is_loaded() && !matches!(value.form, Form::Never | Form::Object { .. })
    }

    /// Returns what a name, or a field of its object, has here.
    fn seen_at(&self, expr: &'a Expr) -> Option<Value> {
        let mut names: SmallVec<[Atom; 4]> = SmallVec::new();
        let mut expr = bare(expr);
        let mut value = loop {
            match expr {
                Expr::Ident(name) => break self.read(self.lookup(&name.sym)?),
                Expr::This(_) => break self.funcs[self.arguments_owner() as usize].this.clone(),
                Expr::Member(member) => {
                    let Step::Name(name) = step_of(&member.prop) else { return None };
                    names.push(name);
                    expr = bare(&member.obj);
                }
                _ => return None,
            }
        };
        while let Some(name) = names.pop() {
            let Form::Object { fields, .. } = &value.form else { return None };
            let (_, field) = fields.iter().rev().find(|(known, _)| **known == *name)?;
            value = field.clone();
        }
        Some(value)
    }
}

fn plain(arg: &ExprOrSpread) -> Option<&Expr> {
    arg.spread.is_none().then_some(&*arg.expr)
}

/// Returns the step to a member.
pub(super) fn step_of(prop: &MemberProp) -> Step {
    match prop {
        MemberProp::Ident(name) => Step::Name(name.sym.clone()),
        MemberProp::PrivateName(name) => Step::name(&format!("#{}", name.name)),
        MemberProp::Computed(computed) => match bare(&computed.expr) {
            Expr::Lit(swc_ecma_ast::Lit::Str(text)) => {
                text.value.as_str().map_or(Step::Any, Step::name)
            }
            Expr::Lit(swc_ecma_ast::Lit::Num(number)) => {
                super::scalar::number_text(number.value).map_or(Step::Any, |text| Step::name(&text))
            }
            _ => Step::Any,
        },
    }
}

/// Returns the step to what has a name in a literal or a pattern.
pub(super) fn step_to(name: &PropName) -> Step {
    match name {
        PropName::Ident(name) => Step::Name(name.sym.clone()),
        PropName::Str(text) => text.value.as_str().map_or(Step::Any, Step::name),
        _ => Step::Any,
    }
}

fn of_member<'a>(object: &'a Expr, prop: &MemberProp, piece: &Piece<'a>) -> Piece<'a> {
    Piece {
        expr: object,
        own: piece.own.clone(),
        path: Path::of(step_of(prop)).and(&piece.path),
        copied: piece.copied,
    }
}

/// Describes that what `piece` means has, at `own`, the part `path` of an expression.
fn of_part<'a>(expr: &'a Expr, piece: &Piece<'a>, own: &Path, path: &Path) -> Option<Piece<'a>> {
    let (own, path) = ways_of_part(own, path, &piece.path)?;
    // What is in a copy is the same.
    let copied = piece.copied && own.is_whole();
    Some(Piece { expr, own: piece.own.and(&own), path, copied })
}

fn of_object<'a>(object: &'a ObjectLit, piece: &Piece<'a>, open: &mut Open<'a>) {
    let whole = Path::default();
    for prop in &object.props {
        match prop {
            PropOrSpread::Spread(spread) => open.push(copy(&spread.expr, piece)),
            PropOrSpread::Prop(prop) => {
                if let Prop::KeyValue(pair) = &**prop {
                    let step = Path::of(step_to(&pair.key));
                    open.extend(of_part(&pair.value, piece, &step, &whole));
                }
            }
        }
    }
}

/// Returns the names that stand for fields and what is in them.
fn shorthands(object: &ObjectLit) -> impl Iterator<Item = &str> {
    object.props.iter().filter_map(|prop| match prop {
        PropOrSpread::Prop(prop) => match &**prop {
            Prop::Shorthand(name) => Some(&*name.sym),
            _ => None,
        },
        PropOrSpread::Spread(_) => None,
    })
}

/// Describes that what `piece` means is a copy of the object of an expression.
fn copy<'a>(expr: &'a Expr, piece: &Piece<'a>) -> Piece<'a> {
    Piece {
        expr,
        own: piece.own.clone(),
        path: piece.path.clone(),
        copied: piece.copied || piece.path.is_whole(),
    }
}

/// Describes what a function of the engine gives.
fn of_builtin<'a>(
    object: &str,
    method: &str,
    args: &'a [ExprOrSpread],
    piece: &Piece<'a>,
    open: &mut Open<'a>,
) {
    let (any, whole) = (Path::of(Step::Any), Path::default());
    let first = args.first().and_then(plain);
    let (own, path) = match (object, method) {
        ("Object", "freeze" | "seal" | "preventExtensions") => (whole.clone(), whole),
        ("Promise", "all" | "resolve") => (whole.clone(), whole),
        ("Promise", "race" | "any") => (whole, any),
        ("Object", "values") | ("Array", "from") => (any.clone(), any),
        ("Object", "entries") => (any.then(Step::Any), any),
        ("Object", "fromEntries") => (any.clone(), any.then(Step::Any)),
        ("Object", "assign") => {
            open.extend(first.and_then(|first| of_part(first, piece, &whole, &whole)));
            open.extend(args.iter().skip(1).filter_map(plain).map(|arg| copy(arg, piece)));
            return;
        }
        _ => return,
    };
    open.extend(first.and_then(|first| of_part(first, piece, &own, &path)));
}

//! Properties of statements: how they end, and which names they declare.

use swc_ecma_ast::{Decl, ModuleExportName, Stmt};

use crate::normal::scope::bound_by;

/// Skips white space and comments.
pub(super) fn trivia(mut text: &str) -> &str {
    loop {
        let trimmed = text.trim_start();
        text = if let Some(rest) = trimmed.strip_prefix("//") {
            rest.find('\n').map_or("", |at| &rest[at..])
        } else if let Some(rest) = trimmed.strip_prefix("/*") {
            rest.split_once("*/").map_or("", |(_, rest)| rest)
        } else {
            return trimmed;
        };
    }
}

/// Returns whether the next line cannot continue a statement.
pub(super) fn ends_closed(statement: &Stmt) -> bool {
    match statement {
        Stmt::Block(_) | Stmt::Try(_) | Stmt::Switch(_) | Stmt::Empty(_) => true,
        Stmt::Decl(declared) => !may_continue(declared),
        Stmt::If(choice) => ends_closed(choice.alt.as_deref().unwrap_or(&choice.cons)),
        Stmt::For(round) => ends_closed(&round.body),
        Stmt::ForIn(round) => ends_closed(&round.body),
        Stmt::ForOf(round) => ends_closed(&round.body),
        Stmt::While(round) => ends_closed(&round.body),
        Stmt::Labeled(labeled) => ends_closed(&labeled.body),
        _ => false,
    }
}

/// Returns whether the next line may continue a declaration that has no `;`.
pub(super) fn may_continue(declared: &Decl) -> bool {
    matches!(declared, Decl::Var(_) | Decl::TsTypeAlias(_) | Decl::Using(_))
}

/// Returns whether a declaration is ambient (`declare`).
pub(super) fn is_ambient(declared: &Decl) -> bool {
    match declared {
        Decl::Class(class) => class.declare,
        Decl::Fn(function) => function.declare,
        Decl::Var(var) => var.declare,
        Decl::TsModule(module) => module.declare,
        Decl::TsEnum(one) => one.declare,
        _ => false,
    }
}

/// Returns the names that a declaration declares.
pub(super) fn declared_names(declared: &Decl) -> Vec<String> {
    let mut found = Vec::new();
    match declared {
        Decl::Class(class) => found.push(&*class.ident.sym),
        Decl::Fn(function) => found.push(&*function.ident.sym),
        Decl::Var(var) => var.decls.iter().for_each(|one| bound_by(&one.name, &mut found)),
        Decl::Using(using) => using.decls.iter().for_each(|one| bound_by(&one.name, &mut found)),
        Decl::TsInterface(interface) => found.push(&*interface.id.sym),
        Decl::TsTypeAlias(alias) => found.push(&*alias.id.sym),
        Decl::TsEnum(one) => found.push(&*one.id.sym),
        Decl::TsModule(_) => {}
    }
    found.into_iter().map(str::to_owned).collect()
}

/// Returns the name under which something is exported.
pub(super) fn exported_name(name: &ModuleExportName) -> String {
    match name {
        ModuleExportName::Ident(name) => name.sym.to_string(),
        ModuleExportName::Str(text) => text.value.to_string_lossy().into_owned(),
    }
}

//! Reads the top-level statements of a file.

use std::collections::BTreeSet;

use swc_common::{Span, Spanned};
use swc_ecma_ast::{
    DefaultDecl, ExportSpecifier, ImportDecl, ImportPhase, ImportSpecifier, Module, ModuleDecl,
    ModuleItem, Stmt, Str,
};

use super::form::{declared_names, ends_closed, exported_name, is_ambient, may_continue, trivia};
use super::{DEFAULT, Edge, Edit, Export, Import, New, Unit};
use crate::bundle::path;
use crate::diagnostic::{Code, Finding};
use crate::wrapper;

/// Removes `import` and `export` from a file, and records what they declare.
pub(super) struct Reader {
    pub(super) is_entry: bool,
    pub(super) findings: Vec<Finding>,
    /// Names of ambient declarations (`declare`), which refer to globals.
    pub(super) ambient: BTreeSet<String>,
    pub(super) unit: Unit,
}

impl Reader {
    /// Reads all statements of the top level.
    pub(super) fn items(&mut self, module: &Module) {
        // A program that is one arrow function runs as its body, but a bundle with other files is not one.
        let mut statements = module.body.iter().filter_map(ModuleItem::as_stmt);
        if let (true, Some(Stmt::Expr(only)), None) =
            (self.is_entry, statements.next(), statements.next())
            && only.expr.is_arrow()
            && module.body.len() > 1
        {
            let message = "this function is never called, because the file also has an `import`; move its body to the top level";
            self.refuse(only.span, message);
        }
        let mut open: Option<u32> = None;
        for item in &module.body {
            let removed = self.item(item);
            if removed {
                // Without the removed statement, the next line could continue the one before it.
                if let Some(end) = open.take() {
                    self.edit(end, end, ";");
                }
            } else {
                open = self.open_end(item);
            }
        }
        if let Some(end) = open.filter(|_| !self.is_entry) {
            self.edit(end, end, ";");
        }
    }

    /// Reads one top-level statement; returns whether it is removed completely.
    fn item(&mut self, item: &ModuleItem) -> bool {
        match item {
            ModuleItem::Stmt(Stmt::Decl(declared)) if is_ambient(declared) => {
                self.ambient.extend(declared_names(declared));
                // Two files may both declare `mcp`.
                if !self.is_entry {
                    self.remove(item.span());
                }
                !self.is_entry
            }
            ModuleItem::Stmt(_) => false,
            ModuleItem::ModuleDecl(declared) => self.module_declaration(declared),
        }
    }

    fn module_declaration(&mut self, declared: &ModuleDecl) -> bool {
        if self.is_entry
            && !matches!(declared, ModuleDecl::Import(_) | ModuleDecl::TsImportEquals(_))
        {
            let message =
                "`export` is not supported in the entry file; return the result with `return`";
            self.refuse(declared.span(), message);
            return true;
        }
        match declared {
            ModuleDecl::Import(import) => {
                self.import(import);
                self.remove(import.span);
                true
            }
            ModuleDecl::ExportDecl(export) => {
                let names = declared_names(&export.decl);
                if is_ambient(&export.decl) {
                    self.ambient.extend(names.iter().cloned());
                    self.unit.exports.extend(names.into_iter().map(|name| (name, Export::Type)));
                    self.remove(export.span);
                    return true;
                }
                let at = wrapper::start(export.span);
                for name in names {
                    self.unit.exports.insert(name.clone(), Export::Own { name, at });
                }
                let rest = self.after(at, &["export"]);
                self.edit(at, rest, "");
                false
            }
            ModuleDecl::ExportDefaultDecl(export) => {
                let at = wrapper::start(export.span);
                let name = match &export.decl {
                    DefaultDecl::Fn(function) if function.function.body.is_none() => {
                        self.remove(export.span);
                        return true;
                    }
                    DefaultDecl::Fn(function) => function.ident.as_ref(),
                    DefaultDecl::Class(class) => class.ident.as_ref(),
                    DefaultDecl::TsInterfaceDecl(interface) => Some(&interface.id),
                };
                let rest = self.after(at, &["export", "default"]);
                match name {
                    Some(name) => {
                        self.edit(at, rest, "");
                        let name = name.sym.to_string();
                        self.unit.exports.insert("default".into(), Export::Own { name, at });
                    }
                    None => {
                        self.default_value(at, rest);
                        let end = self.end(export.span);
                        self.edit(end, end, ";");
                    }
                }
                false
            }
            ModuleDecl::ExportDefaultExpr(export) => {
                let at = wrapper::start(export.span);
                let rest = self.after(at, &["export", "default"]);
                self.default_value(at, rest);
                false
            }
            ModuleDecl::ExportNamed(export) => {
                // `export type { … } from` names no code, wherever it is.
                let edge = match &export.src {
                    Some(source) if !export.type_only => {
                        self.edge(source, export.with.is_some(), export.span)
                    }
                    _ => None,
                };
                for specifier in &export.specifiers {
                    self.exported(specifier, export.type_only, export.src.is_some(), edge);
                }
                self.remove(export.span);
                true
            }
            ModuleDecl::ExportAll(export) => {
                if !export.type_only
                    && let Some(edge) = self.edge(&export.src, export.with.is_some(), export.span)
                {
                    self.unit.stars.push(edge);
                }
                self.remove(export.span);
                true
            }
            ModuleDecl::TsImportEquals(_)
            | ModuleDecl::TsExportAssignment(_)
            | ModuleDecl::TsNamespaceExport(_) => {
                let message = "this form is not supported; write `import { … } from \"./file.ts\"` and `export { … }`";
                self.refuse(declared.span(), message);
                true
            }
        }
    }

    fn import(&mut self, import: &ImportDecl) {
        let only_types = !import.specifiers.is_empty()
            && import.specifiers.iter().all(ImportSpecifier::is_type_only);
        if import.type_only || only_types {
            let locals = import.specifiers.iter().map(|one| one.local().sym.to_string());
            self.unit.imports.extend(locals.map(|local| (local, Import::Type)));
            return;
        }
        if import.phase != ImportPhase::Evaluation {
            self.refuse(import.span, "write a plain `import { … } from \"./file.ts\"`");
            return;
        }
        let Some(edge) = self.edge(&import.src, import.with.is_some(), import.span) else { return };
        for specifier in &import.specifiers {
            let at = wrapper::start(specifier.span());
            let local = specifier.local().sym.to_string();
            let meaning = match specifier {
                ImportSpecifier::Named(named) => {
                    let name = named.imported.as_ref().map_or_else(|| local.clone(), exported_name);
                    match named.is_type_only {
                        true => Import::TypeOf { edge, name },
                        false => Import::Name { edge, name, at },
                    }
                }
                ImportSpecifier::Default(_) => Import::Name { edge, name: "default".into(), at },
                ImportSpecifier::Namespace(_) => Import::All { edge },
            };
            self.unit.imports.insert(local, meaning);
        }
    }

    fn exported(
        &mut self,
        specifier: &ExportSpecifier,
        type_only: bool,
        of_other: bool,
        edge: Option<usize>,
    ) {
        let at = wrapper::start(specifier.span());
        let (name, meaning) = match specifier {
            ExportSpecifier::Named(named) => {
                let original = exported_name(&named.orig);
                let name = named.exported.as_ref().map_or_else(|| original.clone(), exported_name);
                let meaning = match edge {
                    _ if type_only || named.is_type_only => Export::Type,
                    Some(edge) => Export::From { edge, name: original, at },
                    None if of_other => Export::Type,
                    None => Export::Own { name: original, at },
                };
                (name, meaning)
            }
            ExportSpecifier::Namespace(all) => {
                (exported_name(&all.name), edge.map_or(Export::Type, |edge| Export::All { edge }))
            }
            ExportSpecifier::Default(_) => {
                return self.refuse(specifier.span(), "write `export { default } from …`");
            }
        };
        self.unit.exports.insert(name, meaning);
    }

    /// Records an imported file.
    fn edge(&mut self, source: &Str, has_attributes: bool, span: Span) -> Option<usize> {
        let at = wrapper::start(source.span);
        if has_attributes {
            self.refuse(span, "import attributes are not supported; only programs can be imported");
            return None;
        }
        let specifier = source.value.to_string_lossy();
        match path::resolve(&self.unit.path, &specifier) {
            Ok(path) => {
                self.unit.edges.push(Edge { path, at });
                Some(self.unit.edges.len() - 1)
            }
            Err(message) => {
                self.findings.push(Finding::new(Code::UnsupportedSyntax, at, message));
                None
            }
        }
    }

    fn default_value(&mut self, at: u32, rest: u32) {
        let stem = self.unit.path.rsplit('/').next().unwrap_or_default();
        let stem = stem.split('.').next().unwrap_or_default();
        let mut preferred: String =
            stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if !preferred.starts_with(|c: char| c.is_ascii_alphabetic()) {
            preferred.insert(0, '_');
        }
        self.unit.own.insert(DEFAULT.into(), preferred + "_default");
        self.unit.exports.insert("default".into(), Export::Own { name: DEFAULT.into(), at });
        self.unit.edits.push(Edit { low: at, high: rest, to: New::Default });
    }

    fn refuse(&mut self, span: Span, message: &str) {
        let finding = Finding::new(Code::UnsupportedSyntax, wrapper::start(span), message);
        self.findings.push(finding);
    }

    fn edit(&mut self, low: u32, high: u32, to: &str) {
        self.unit.edits.push(Edit { low, high, to: New::Text(to.to_owned()) });
    }

    /// Removes a statement, and its lines if nothing else is on them.
    fn remove(&mut self, span: Span) {
        let (mut low, mut high) = (wrapper::start(span) as usize, self.end(span) as usize);
        let text = self.unit.text.as_str();
        let is_blank = |c: char| matches!(c, ' ' | '\t');
        let before = text[..low].trim_end_matches(is_blank);
        let after = text[high..].trim_start_matches(is_blank);
        if before.is_empty() || before.ends_with('\n') {
            let line_end = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n'));
            if let Some(rest) = line_end.or(after.is_empty().then_some(after)) {
                low = before.len();
                high = text.len() - rest.len();
            }
        }
        self.edit(low as u32, high as u32, "");
    }

    /// Returns the offset at which a span ends.
    fn end(&self, span: Span) -> u32 {
        wrapper::offset(span.hi).min(self.unit.text.len() as u32)
    }

    /// Returns the end of a statement that has no `;` and needs one if another statement follows.
    fn open_end(&self, item: &ModuleItem) -> Option<u32> {
        let is_closed = match item {
            ModuleItem::Stmt(statement) => ends_closed(statement),
            ModuleItem::ModuleDecl(ModuleDecl::ExportDecl(export)) => !may_continue(&export.decl),
            // An anonymous one gets its `;` together with its name.
            ModuleItem::ModuleDecl(ModuleDecl::ExportDefaultDecl(_)) => true,
            ModuleItem::ModuleDecl(_) => false,
        };
        let end = self.end(item.span());
        let (before, after) = self.unit.text.split_at(end as usize);
        let has_one = before.ends_with(';') || after.trim_start().starts_with(';');
        (!is_closed && !has_one).then_some(end)
    }

    /// Returns the offset after `words`, and after the white space and comments that follow each of them.
    fn after(&self, at: u32, words: &[&str]) -> u32 {
        let mut rest = &self.unit.text[at as usize..];
        for word in words {
            rest = trivia(rest.strip_prefix(word).unwrap_or(rest));
        }
        (self.unit.text.len() - rest.len()) as u32
    }
}

//! Parts of `args`, the input of the program.

use swc_atoms::Atom;

use crate::structure::{PathStep, parameter};

/// A set of parts of `args`; each is a field of it with all that is in the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Input(u64);

impl Input {
    /// All of it, in a value that is `args` itself: whoever takes a field of the
    /// value has that field only.
    pub(super) const ITSELF: Self = Self(1);
    /// Any part of it.
    const ANY: Self = Self(1 << 1);
    /// The first bit that stands for a field.
    const FIELDS: u32 = 2;

    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns what is in it and not in another.
    pub(super) fn beyond(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn at(place: usize) -> Self {
        Self(1 << (Self::FIELDS as usize + place))
    }

    fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns what flows into whatever is made from a value with this.
    pub(super) fn used(self) -> Self {
        if self.has(Self::ITSELF) { Self(self.beyond(Self::ITSELF).0 | Self::ANY.0) } else { self }
    }
}

/// How many fields are told apart; programs with more are rare.
const FIELDS: usize = (u64::BITS - Input::FIELDS) as usize;

/// The fields of `args` that a program names, in the order in which they are met.
#[derive(Default)]
pub(super) struct InputFields(Vec<Atom>);

impl InputFields {
    /// Returns what is left of the input of `args` itself when a field of it is taken.
    pub(super) fn taken(&mut self, from: Input, name: &Atom) -> Input {
        if !from.has(Input::ITSELF) {
            return from;
        }
        let mut left = from.beyond(Input::ITSELF);
        left.add(self.field(name));
        left
    }

    fn field(&mut self, name: &Atom) -> Input {
        if let Some(place) = self.0.iter().position(|known| known == name) {
            return Input::at(place);
        }
        if self.0.len() == FIELDS {
            return Input::ANY;
        }
        self.0.push(name.clone());
        Input::at(self.0.len() - 1)
    }

    /// Returns the parts as a program names them: `args.x`; `args` last, if any
    /// part may be meant.
    pub(super) fn names(&self, input: Input) -> Vec<String> {
        let fields = self.0.iter().enumerate();
        let mut names: Vec<String> = fields
            .filter(|(place, _)| input.has(Input::at(*place)))
            .map(|(_, name)| parameter(&[PathStep::of(name)]))
            .collect();
        if input.used().has(Input::ANY) {
            names.push(parameter(&[]));
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_told_apart_up_to_a_limit() {
        let mut fields = InputFields::default();
        let mut all = Input::default();
        for field in 0..FIELDS + 10 {
            let name: Atom = format!("f{field}").into();
            let taken = fields.taken(Input::ITSELF, &name);
            assert_eq!(fields.taken(Input::ITSELF, &name), taken, "{name}");
            let expected = if field < FIELDS { format!("args.{name}") } else { "args".into() };
            assert_eq!(fields.names(taken), [expected], "{name}");
            all.add(taken);
        }
        assert_eq!(fields.names(all).len(), FIELDS + 1);
    }

    #[test]
    fn only_args_itself_has_fields_to_take() {
        let mut fields = InputFields::default();
        let one = fields.taken(Input::ITSELF, &"one".into());
        assert_eq!(fields.taken(one, &"two".into()), one);
        let made = Input::ITSELF.used();
        assert_eq!(fields.taken(made, &"two".into()), made);
        assert_eq!(fields.names(made), ["args"]);
        assert_eq!(fields.names(Input::default()), [""; 0]);
    }
}

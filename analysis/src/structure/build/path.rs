//! Ways into objects: which part of an object is meant.

use smallvec::{SmallVec, smallvec};
use swc_atoms::Atom;

/// One step into an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// The part of this name; items have numbers.
    Name(Atom),
    /// A part of which the name is not known.
    Any,
    /// Any number of steps, also none. Nothing comes after it.
    Deep,
}

impl Step {
    pub(super) fn name(name: &str) -> Self {
        Self::Name(name.into())
    }

    fn may_be(&self, other: &Self) -> bool {
        self == other || *self == Self::Any || *other == Self::Any
    }
}

/// The steps from an object to a part of it; none for the object itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Path(SmallVec<[Step; 2]>);

/// The most steps that are told apart.
const STEPS: usize = 3;

impl Path {
    pub(super) fn of(step: Step) -> Self {
        Self(smallvec![step])
    }

    pub(super) fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&Step> {
        self.0.first()
    }

    /// Returns the way without its first step.
    pub(super) fn rest(&self) -> Self {
        Self(self.0.iter().skip(1).cloned().collect())
    }

    /// Returns the way that goes on with a step.
    pub(super) fn then(&self, step: Step) -> Self {
        self.and(&Self::of(step))
    }

    /// Returns the way that goes on with another.
    pub(super) fn and(&self, other: &Self) -> Self {
        if other.is_whole() || self.0.last() == Some(&Step::Deep) {
            return self.clone();
        }
        if self.is_whole() {
            return other.clone();
        }
        let mut steps: SmallVec<[Step; 2]> = self.0.iter().chain(&other.0).cloned().collect();
        if steps.len() > STEPS && steps.get(STEPS) != Some(&Step::Deep) {
            steps.truncate(STEPS);
            steps.push(Step::Deep);
        }
        Self(steps)
    }

    /// Returns what is left of the way beyond another, if it goes there.
    pub(super) fn beyond(&self, front: &Self) -> Option<Self> {
        if front.is_whole() {
            return Some(self.clone());
        }
        for (at, wanted) in front.0.iter().enumerate() {
            match (self.0.get(at)?, wanted) {
                (Step::Deep, _) | (_, Step::Deep) => return Some(Self::of(Step::Deep)),
                (step, wanted) if step.may_be(wanted) => {}
                _ => return None,
            }
        }
        Some(Self(self.0[front.0.len()..].into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        text.split('.').filter(|step| !step.is_empty()).fold(Path::default(), |path, step| {
            path.then(match step {
                "*" => Step::Any,
                "**" => Step::Deep,
                name => Step::name(name),
            })
        })
    }

    #[test]
    fn a_way_is_gone_step_by_step() {
        let cases = [
            ("a.b", "a", Some("b")),
            ("a.b", "", Some("a.b")),
            ("a", "a", Some("")),
            ("a", "b", None),
            ("a", "a.b", None),
            ("a", "*", Some("")),
            ("*", "a", Some("")),
            ("**", "a.b", Some("**")),
            ("a.**", "a", Some("**")),
            ("a.b", "**", Some("**")),
            ("", "**", None),
            ("a.**", "b", None),
        ];
        for (way, front, left) in cases {
            assert_eq!(path(way).beyond(&path(front)), left.map(path), "{way} beyond {front}");
        }
    }

    #[test]
    fn a_long_way_ends_deep() {
        assert_eq!(path("a.b.c.d.e"), path("a.b.c.**"));
        assert_eq!(path("a.b.c").and(&path("**")), path("a.b.c.**"));
        assert_eq!(path("a.**").and(&path("b")), path("a.**"));
    }
}

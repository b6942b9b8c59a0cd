//! Short lists that values share.

use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

/// A short list that is shared. With one item or two it takes one allocation, and
/// whoever holds it one word: values are copied a lot.
pub(super) type Few<T> = Rc<SmallVec<[T; 2]>>;

/// Returns the list of one item.
pub(super) fn one<T>(item: T) -> Few<T> {
    Rc::new(smallvec![item])
}

/// Joins two sorted lists; an unchanged one is shared.
pub(super) fn union<T: Ord + Clone>(left: &Few<T>, right: &Few<T>) -> Few<T> {
    if right.iter().all(|item| left.binary_search(item).is_ok()) {
        return left.clone();
    }
    let mut out: SmallVec<[T; 2]> = left.iter().chain(right.iter()).cloned().collect();
    out.sort();
    out.dedup();
    Rc::new(out)
}

/// Joins two sorted lists that may be empty.
pub(super) fn merged<T: Ord + Clone>(
    left: &Option<Few<T>>,
    right: &Option<Few<T>>,
) -> Option<Few<T>> {
    match (left, right) {
        (None, other) | (other, None) => other.clone(),
        (Some(left), Some(right)) => Some(union(left, right)),
    }
}

//! Ownership of objects. While only the variables of one turn of a loop, or of one call, hold the objects of an
//! allocation site, each object is gone when the next one is made. Then one abstract object stands for one
//! concrete object at a time, and writes to it are strong updates. Once something that lives longer holds it,
//! it is *kept*: it stands for all objects of its site, and writes are weak.
//!
//! Escape from the turn or the call is found as values are stored. It is not undone.

use super::*;
use crate::structure::core::Slot;
use crate::structure::domain::{Kind, Ref};

/// A turn of a loop that is being walked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The id of its level.
    level: u32,
    /// The index in the call stack of the function that has the loop.
    act: usize,
    /// The number of the loop in that function.
    serial: u32,
}

impl Solver<'_> {
    /// Records that a turn of a loop begins at the innermost level.
    pub(super) fn begin_turn(&mut self, serial: u32) {
        let level = self.levels.last().map_or(0, |level| level.id);
        let act = self.activations.len().saturating_sub(1);
        self.turns.push(Turn { level, act, serial });
    }

    /// Records that the walk of one of several items begins at the innermost level. What is made in it must not
    /// be held by the walk of another item.
    pub(super) fn begin_part_of_turn(&mut self) {
        let level = self.levels.last().map_or(0, |level| level.id);
        let (act, serial) = match self.turns.last() {
            Some(turn) => (turn.act, turn.serial),
            None => (self.activations.len().saturating_sub(1), u32::MAX),
        };
        self.turns.push(Turn { level, act, serial });
    }

    /// Returns whether nothing can read a cell once the current turn is over, so that it need not be passed to
    /// the next one.
    pub(super) fn ends_with_turn(&self, cell: CellId, serial: u32) -> bool {
        let known = &self.heap.cells[cell as usize];
        if !known.private {
            return false;
        }
        match known.object {
            Some(object) => {
                let turn = self.heap.objects[object as usize].turn;
                self.turns.last().is_some_and(|last| turn.0 >= last.level && turn.1 == self.round)
            }
            None => {
                let act = self.activations.len().saturating_sub(1);
                let owner = self.activations.iter().rposition(|act| {
                    let function = self.function(self.contexts[act.context as usize].func);
                    (act.base..act.base + function.slots).contains(&cell)
                });
                match owner {
                    // The frame was popped: the call is over.
                    None => true,
                    Some(owner) if owner == act => {
                        self.is_declared_in(act, cell - self.base(), serial)
                    }
                    Some(_) => false,
                }
            }
        }
    }

    /// Records that an object is made here, with its turn and time stamp.
    pub(super) fn made(&mut self, object: ObjId) {
        let turn = self.turns.last().map_or(0, |turn| turn.level);
        self.made += 1;
        let known = &mut self.heap.objects[object as usize];
        known.made = self.made;
        let before = std::mem::replace(&mut known.turn, (turn, self.round));
        // The site ran twice in one turn, so that two of its objects exist at once.
        if before == (turn, self.round) {
            if known.unique || !known.kept {
                known.unique = false;
                self.changed = true;
            }
            self.keep_object(object);
        }
    }

    /// Records that a variable of a call on the stack holds a value. An object that is held outside the turn
    /// that made it is kept.
    pub(super) fn hold_in_slot(&mut self, value: Value, act: usize, slot: Slot) {
        if self.dom.shape(value).refs.is_empty() {
            return;
        }
        let context = self.activations.get(act).map_or(0, |act| act.context);
        let known = &self.contexts[context as usize];
        if known.leaks && self.function(known.func).variables[slot as usize].captured {
            // A closure that outlives the call captures the variable.
            self.keep(value);
            return;
        }
        let shape = self.dom.shapes.kept(value.shape);
        for one in &shape.refs {
            let (Ref::Obj(object) | Ref::Data(object, _)) = one else { continue };
            let known = &self.heap.objects[*object as usize];
            // An object made outside any turn (0) needs no check: `made` notices if its site runs twice.
            if known.kept || known.turn.0 == 0 {
                continue;
            }
            let level = known.turn.0;
            let turn = self.turns.iter().rev().find(|turn| turn.level == level).copied();
            // The variable is local to that turn: it belongs to a callee, or is declared within the loop.
            let is_of_turn = turn.is_some_and(|turn| {
                act > turn.act || act == turn.act && self.is_declared_in(act, slot, turn.serial)
            });
            if !is_of_turn {
                self.keep_object(*object);
            }
        }
    }

    /// Returns whether a slot is declared within a loop of its function.
    fn is_declared_in(&self, act: usize, slot: Slot, serial: u32) -> bool {
        let Some(act) = self.activations.get(act) else { return false };
        let function = self.function(self.contexts[act.context as usize].func);
        let mut within = function.variables.get(slot as usize).map_or(0, |slot| slot.in_loop);
        while within != 0 {
            if within == serial {
                return true;
            }
            within = function.loops.get(within as usize).copied().unwrap_or(0);
        }
        false
    }

    /// Records that an object holds a value. It is kept if the holder is, or if the holder was made outside its
    /// turn.
    pub(super) fn hold_in_object(&mut self, value: Value, holder: ObjId) {
        if self.dom.shape(value).refs.is_empty() {
            return;
        }
        let shape = self.dom.shapes.kept(value.shape);
        let (kept, birth) =
            (self.heap.objects[holder as usize].kept, self.heap.objects[holder as usize].birth);
        for one in &shape.refs {
            let (Ref::Obj(object) | Ref::Data(object, _)) = one else { continue };
            let known = &self.heap.objects[*object as usize];
            if known.kept {
                continue;
            }
            let level = known.turn.0;
            let is_open = level == 0 || self.turns.iter().any(|turn| turn.level == level);
            // A holder whose innermost level is older than the turn was made before the turn began, and lives
            // on after it.
            if kept || !is_open || birth.level < level {
                self.keep_object(*object);
            }
        }
    }

    /// Marks the objects of a value as kept.
    pub(super) fn keep(&mut self, value: Value) {
        let shape = self.dom.shapes.kept(value.shape);
        for one in &shape.refs {
            if let Ref::Obj(object) | Ref::Data(object, _) = one {
                self.keep_object(*object);
            }
        }
    }

    /// Marks an object as kept, with everything that it leads to.
    pub(super) fn keep_object(&mut self, object: ObjId) {
        let mut open: SmallVec<[ObjId; 8]> = smallvec::smallvec![object];
        while let Some(object) = open.pop() {
            let known = &mut self.heap.objects[object as usize];
            if known.kept {
                continue;
            }
            known.kept = true;
            self.changed = true;
            let (kind, cells) = (known.kind, known.keys.clone());
            for (_, cell) in cells {
                let now = self.share(cell);
                for one in &self.dom.shapes.kept(now.shape).refs {
                    if let Ref::Obj(object) | Ref::Data(object, _) = one {
                        open.push(*object);
                    }
                }
            }
            if let Kind::Func { env, .. } = kind {
                self.leak(env, &mut open);
            }
        }
    }

    /// Marks a context, and those around it, as outlived by a closure: the captured variables and what they
    /// hold are kept.
    fn leak(&mut self, mut context: u32, open: &mut SmallVec<[ObjId; 8]>) {
        loop {
            let known = &mut self.contexts[context as usize];
            if std::mem::replace(&mut known.leaks, true) {
                return;
            }
            self.changed = true;
            let (base, func, env) = (known.base, known.func, known.env);
            let function = self.function(func);
            for slot in 0..function.slots {
                if function.variables[slot as usize].captured {
                    let now = self.share(base + slot);
                    for one in &self.dom.shapes.kept(now.shape).refs {
                        if let Ref::Obj(object) | Ref::Data(object, _) = one {
                            open.push(*object);
                        }
                    }
                }
            }
            if context == env {
                return;
            }
            context = env;
        }
    }

    /// Makes a cell visible to other functions. What it has now becomes part of what was ever written to it.
    fn share(&mut self, cell: CellId) -> Value {
        let known = &mut self.heap.cells[cell as usize];
        known.private = false;
        let now = known.now;
        let ever = self.dom.join(known.ever, now);
        self.heap.cells[cell as usize].ever = ever;
        now
    }
}

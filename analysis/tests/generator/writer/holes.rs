//! Expands the marks of a template.

use super::super::program::Part;
use super::{FALSE, Frame, Kind, Known, OBJECTS, SPACES, Slot, TRUE, Writer};

impl Writer {
    pub(in super::super) fn expand(&mut self, template: &'static str) -> Vec<Slot> {
        let mut slots = vec![Slot::default(); 10];
        let mut names: [Option<String>; 10] = Default::default();
        let start_live = self.live;
        let start = self.open.len();
        let by_name = ["[@v", "[@k", "@^1["].iter().any(|part| template.contains(part));
        let mut rest = template.chars().peekable();
        let digit = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let found = rest.peek().and_then(|next| next.to_digit(10));
            if found.is_some() {
                rest.next();
            }
            found.unwrap_or(0) as usize
        };
        while let Some(letter) = rest.next() {
            match letter {
                '~' => {}
                '$' if rest.peek().is_some_and(char::is_ascii_digit) => {
                    let index = digit(&mut rest);
                    let name = self.unique_name(&mut names, index);
                    self.text(&name);
                }
                '@' => {
                    let mark = rest.next().expect("a mark has a letter");
                    match mark {
                        '[' => {
                            let frame = rest.next().expect("`@[` is followed by a letter");
                            let label = self.unique_name(&mut names, 9);
                            self.enter(frame, label, start_live);
                        }
                        ']' => self.pop(),
                        '~' => {
                            let hole = rest.next().expect("`@~` is followed by a letter");
                            let index = digit(&mut rest);
                            self.parts.push(Part::default());
                            self.fill(hole, index, &mut slots, by_name);
                            let part = self.parts.pop().expect("the part was pushed above");
                            let target = self.parts.last_mut().expect("a part is open");
                            target.tools.extend(part.tools);
                            target.constructs.extend(part.constructs);
                            slots[index].unwritten = part.pieces;
                        }
                        'T' | 'N' | 'M' => {
                            let mut tools = Vec::new();
                            let mut space = String::new();
                            while rest.peek().is_some_and(char::is_ascii_digit) {
                                let index = digit(&mut rest);
                                tools.extend(slots[index].tools.clone());
                                space.clone_from(&slots[index].space);
                            }
                            rest.next();
                            let index = digit(&mut rest);
                            let name = self.unique_name(&mut names, index);
                            let known = match mark {
                                'T' => Known::Tools(tools),
                                'N' => Known::Space(space),
                                _ => Known::Mcp,
                            };
                            self.in_scope.push((name, known));
                        }
                        _ => {
                            let index = digit(&mut rest);
                            self.fill(mark, index, &mut slots, by_name);
                        }
                    }
                }
                other => self.text(other.encode_utf8(&mut [0; 4])),
            }
        }
        assert_eq!(self.open.len(), start, "unbalanced `@[` and `@]`: {template}");
        slots
    }

    /// Returns the unique name of `$index`.
    fn unique_name(&mut self, names: &mut [Option<String>; 10], index: usize) -> String {
        if names[index].is_none() {
            names[index] = Some(format!("v{}", self.number()));
        }
        names[index].clone().unwrap_or_default()
    }

    /// Opens the frame of a letter after `@[`.
    fn enter(&mut self, letter: char, label: String, start_live: bool) {
        let frame = match letter {
            'a' => Frame::Function(Kind::Async),
            's' => Frame::Function(Kind::Plain),
            'g' => Frame::Function(Kind::Generator),
            'h' => Frame::Function(Kind::AsyncGenerator),
            'f' => Frame::Finally,
            'l' => Frame::Label(label),
            _ => Frame::Scope,
        };
        self.push(frame);
        match letter {
            'd' => self.live = false,
            'f' => (self.live, self.exit) = (start_live, None),
            _ => {}
        }
    }

    /// Fills the hole of a mark.
    fn fill(&mut self, mark: char, index: usize, slots: &mut [Slot], by_name: bool) {
        match mark {
            'x' => self.call(true),
            'd' => self.call(false),
            't' | 'u' => {
                let tools = self.tool();
                if mark == 't' {
                    self.called(&tools);
                }
                slots[index].tools = tools;
            }
            'n' => {
                let before = self.single_namespace;
                self.single_namespace |= by_name;
                slots[index].space = self.space();
                self.single_namespace = before;
            }
            'm' => self.mcp(),
            's' => {
                let space = *self.random.pick(SPACES);
                self.text(space);
                slots[index].space = space.to_owned();
            }
            'q' => {
                let space = *self.random.pick(SPACES);
                self.name(space);
                slots[index].space = space.to_owned();
            }
            'e' | 'v' | 'k' => {
                let action = self.action();
                if mark == 'e' {
                    self.text(&action);
                } else {
                    self.name(&action);
                }
                slots[index].tools = vec![(slots[index].space.clone(), action)];
                if mark == 'k' {
                    let tools = slots[index].tools.clone();
                    self.called(&tools);
                }
            }
            'w' => {
                let name = self.requested_name.clone();
                self.quoted(&name);
            }
            'p' => {
                let name = self.requested_name.clone();
                self.quoted(&name[..2]);
            }
            'r' => {
                let name = self.requested_name.clone();
                self.quoted(&name[2..]);
            }
            'i' => {
                let name = format!("other{}", self.number());
                self.quoted(&name);
            }
            '^' => {
                let pieces = slots[index].unwritten.clone();
                self.pieces(pieces);
            }
            '!' => {
                let tools = slots[index].tools.clone();
                self.called(&tools);
            }
            'o' => {
                if self.random.chance(8) && self.budget > 0 {
                    // The template may use the object in a function that is not `async`.
                    self.push(Frame::Function(Kind::Plain));
                    self.text("{ v: [");
                    self.call(true);
                    self.text("].length }");
                    self.pop();
                } else {
                    let object = *self.random.pick(OBJECTS);
                    self.text(object);
                }
            }
            'y' => {
                let text = *self.random.pick(TRUE);
                self.text(text);
            }
            'z' => {
                let text = *self.random.pick(FALSE);
                self.text(text);
            }
            'S' => self.block(&[Frame::Scope], true),
            'G' => self.block(&[Frame::Guard], true),
            'D' => self.block(&[Frame::Guard], false),
            'B' => self.block(&[Frame::Body], true),
            'L' => self.block(&[Frame::Loop { breaks: true }], true),
            'C' => self.block(&[Frame::Guard, Frame::Loop { breaks: false }], true),
            'R' => self.block(&[Frame::Try], true),
            'U' => self.block(&[Frame::NoThrow], true),
            'W' => self.block(&[Frame::Switch], true),
            _ => unreachable!("unknown mark `{mark}`"),
        }
    }
}

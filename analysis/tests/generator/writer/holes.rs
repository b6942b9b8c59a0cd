//! Expands the marks of a template.

use super::super::program::Part;
use super::{FALSE, Frame, Kind, Known, OBJECTS, SPACES, Slot, TRUE, Writer};

impl Writer {
    pub(in super::super) fn expand(&mut self, template: &'static str) -> Vec<Slot> {
        let mut slots = vec![Slot::default(); 10];
        let mut own: [Option<String>; 10] = Default::default();
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
                    let name = self.own_name(&mut own, index);
                    self.text(&name);
                }
                '@' => {
                    let mark = rest.next().expect("a mark has a letter");
                    match mark {
                        '[' => {
                            let what = rest.next().expect("`@[` is followed by a letter");
                            let label = self.own_name(&mut own, 9);
                            self.enter(what, label, start_live);
                        }
                        ']' => self.pop(),
                        '~' => {
                            let what = rest.next().expect("`@~` is followed by a letter");
                            let index = digit(&mut rest);
                            self.parts.push(Part::default());
                            self.fill(what, index, &mut slots, by_name);
                            let part = self.parts.pop().expect("the part was pushed above");
                            let target = self.parts.last_mut().expect("a part is open");
                            target.tools.extend(part.tools);
                            target.constructs.extend(part.constructs);
                            slots[index].aside = part.pieces;
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
                            let name = self.own_name(&mut own, index);
                            let known = match mark {
                                'T' => Known::Tools(tools),
                                'N' => Known::Space(space),
                                _ => Known::Mcp,
                            };
                            self.known.push((name, known));
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

    fn own_name(&mut self, own: &mut [Option<String>; 10], index: usize) -> String {
        if own[index].is_none() {
            own[index] = Some(format!("v{}", self.number()));
        }
        own[index].clone().unwrap_or_default()
    }

    fn enter(&mut self, what: char, label: String, start_live: bool) {
        let frame = match what {
            'a' => Frame::Function(Kind::Async),
            's' => Frame::Function(Kind::Plain),
            'g' => Frame::Function(Kind::Generator),
            'h' => Frame::Function(Kind::AsyncGenerator),
            'f' => Frame::Finally,
            'l' => Frame::Label(label),
            _ => Frame::Scope,
        };
        self.push(frame);
        match what {
            'd' => self.live = false,
            'f' => (self.live, self.exit) = (start_live, None),
            _ => {}
        }
    }

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
                let before = self.exact;
                self.exact |= by_name;
                slots[index].space = self.space();
                self.exact = before;
            }
            'm' => self.mcp(),
            's' => {
                let space = *self.random.one(SPACES);
                self.text(space);
                slots[index].space = space.to_owned();
            }
            'q' => {
                let space = *self.random.one(SPACES);
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
                let name = self.wanted.clone();
                self.quoted(&name);
            }
            'p' => {
                let name = self.wanted.clone();
                self.quoted(&name[..2]);
            }
            'r' => {
                let name = self.wanted.clone();
                self.quoted(&name[2..]);
            }
            'i' => {
                let name = format!("other{}", self.number());
                self.quoted(&name);
            }
            '^' => {
                let pieces = slots[index].aside.clone();
                self.pieces(pieces);
            }
            '!' => {
                let tools = slots[index].tools.clone();
                self.called(&tools);
            }
            'o' => {
                if self.random.percent(8) && self.budget > 0 {
                    // The object may be in any kind of function of the template.
                    self.push(Frame::Function(Kind::Plain));
                    self.text("{ v: [");
                    self.call(true);
                    self.text("].length }");
                    self.pop();
                } else {
                    let object = *self.random.one(OBJECTS);
                    self.text(object);
                }
            }
            'y' => {
                let text = *self.random.one(TRUE);
                self.text(text);
            }
            'z' => {
                let text = *self.random.one(FALSE);
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
            _ => unreachable!("no mark is called `{mark}`"),
        }
    }
}

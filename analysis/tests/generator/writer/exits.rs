//! Early exits: `return`, `break`, `continue` and `throw`.

use super::{Frame, TRUE, Writer};

impl Writer {
    /// Writes an early exit if one is possible here.
    pub(super) fn exit_early(&mut self) -> bool {
        // The statement, and the index of the frame that it leaves.
        let mut exits: Vec<(String, usize)> = Vec::new();
        let (mut throws, mut jumps) = (true, true);
        for (index, open) in self.open.iter().enumerate().rev() {
            match &open.frame {
                Frame::Body => {
                    exits.push(("return".into(), index));
                    break;
                }
                Frame::Function(_) | Frame::Guard | Frame::Finally => break,
                Frame::Loop { breaks } if jumps => {
                    exits.push(("continue".into(), index));
                    if *breaks {
                        exits.push(("break".into(), index));
                    }
                    jumps = false;
                }
                Frame::Switch if jumps => {
                    exits.push(("break".into(), index));
                    // `continue` would continue the loop around the switch.
                    jumps = false;
                }
                Frame::Label(name) => exits.push((format!("break {name}"), index)),
                Frame::Try if throws => {
                    exits.push(("throw new Error(\"left\")".into(), index));
                    throws = false;
                }
                Frame::NoThrow => throws = false,
                _ => {}
            }
        }
        if exits.is_empty() || (self.open.len() == 2 && self.budget > 8) {
            return false;
        }
        let (exit, target) = self.random.pick(&exits).clone();
        let truthy = self.random.pick(TRUE);
        let text = match self.random.below(3) {
            0 => format!("if ({truthy}) {{ {exit}; }}"),
            1 => format!("if ({truthy}) {exit};"),
            _ => format!("{exit};"),
        };
        self.text(&text);
        let word = exit.split(' ').next().unwrap_or_default().to_owned();
        let names = ["return", "continue", "break", "throw"];
        let name = names.into_iter().find(|name| *name == word).unwrap_or("break");
        self.parts.last_mut().expect("a part is open").constructs.push(name);
        if self.live {
            self.live = false;
            self.exit = Some(target);
        }
        true
    }
}

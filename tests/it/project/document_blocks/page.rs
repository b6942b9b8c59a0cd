//! Splits a Markdown page into its fenced blocks.

/// A fenced block.
pub(super) struct Block {
    /// The first word after the fence.
    pub(super) language: String,
    /// What is between the fences, without the fence's own indentation.
    pub(super) text: String,
    /// The line of the fence, from 1.
    pub(super) line: usize,
    /// The target of `[the program](…)` between this block and the next.
    pub(super) program: Option<String>,
}

/// The blocks of a page, in order.
pub(super) struct Page {
    pub(super) blocks: Vec<Block>,
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        let mut open: Option<(usize, Block)> = None;
        for (number, line) in text.lines().enumerate() {
            let plain = line.trim_start();
            match (&mut open, plain.strip_prefix("```")) {
                (None, Some(language)) => {
                    let language = language.split_whitespace().next().unwrap_or_default();
                    open = Some((
                        line.len() - plain.len(),
                        Block {
                            language: language.to_owned(),
                            text: String::new(),
                            line: number + 1,
                            program: None,
                        },
                    ));
                }
                (Some(_), Some("")) => blocks.extend(open.take().map(|(_, block)| block)),
                (Some((indent, block)), _) => {
                    block.text += line.get(*indent..).unwrap_or_default();
                    block.text.push('\n');
                }
                (None, None) => {
                    if let (Some(block), Some((_, link))) =
                        (blocks.last_mut(), line.split_once("[the program]("))
                    {
                        block.program = link.split_once(')').map(|(target, _)| target.to_owned());
                    }
                }
            }
        }
        assert!(open.is_none(), "a block is not closed");
        Self { blocks }
    }

    /// Returns the file name of a block of code, if the page names one.
    pub(super) fn name_of(&self, block: &Block) -> Option<String> {
        let first = block.text.lines().next().unwrap_or_default();
        let named = first.strip_prefix("// ").filter(|name| is_source(name));
        named.map(str::to_owned).or_else(|| {
            let after = self.blocks.iter().skip_while(|other| other.line <= block.line);
            let commands = after
                .take_while(|other| other.language != "ts" || self.begins_with_name(other))
                .find(|other| other.language == "sh" || other.language == "console")?;
            let words: Vec<&str> = commands.text.split_whitespace().collect();
            let at = words.iter().position(|word| is_source(word))?;
            // `cat FILE` shows another file, not the block.
            (at == 0 || words[at - 1] != "cat").then(|| words[at].to_owned())
        })
    }

    fn begins_with_name(&self, block: &Block) -> bool {
        let first = block.text.lines().next().unwrap_or_default();
        first.strip_prefix("// ").is_some_and(is_source)
    }
}

fn is_source(word: &str) -> bool {
    word.strip_suffix(".ts").is_some_and(|stem| {
        !stem.is_empty() && stem.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
    })
}

impl Block {
    /// Returns whether a reader would take the block for commands.
    pub(super) fn looks_like_commands(&self) -> bool {
        let first = self.text.split_whitespace().next().unwrap_or_default();
        ["$", "pml", "pml-server", "curl", "make", "echo", "export"].contains(&first)
    }

    /// Returns the commands of a `console` block, each with its expected output.
    pub(super) fn commands(&self) -> Vec<(String, String)> {
        let mut commands: Vec<(String, String)> = Vec::new();
        let mut goes_on = false;
        for line in self.text.lines() {
            if let Some(command) = line.strip_prefix("$ ").filter(|_| !goes_on) {
                commands.push((command.to_owned(), String::new()));
                goes_on = command.ends_with('\\');
            } else if let Some((command, printed)) = commands.last_mut() {
                if goes_on {
                    *command += "\n";
                    *command += line;
                    goes_on = line.ends_with('\\');
                } else {
                    *printed += line;
                    printed.push('\n');
                }
            }
        }
        commands
    }
}

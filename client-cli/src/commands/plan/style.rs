//! The colours of a plan on a terminal.

/// How parts of a text are highlighted.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    colour: bool,
}

/// A highlighted part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// A heading.
    Heading,
    /// Something to be careful about.
    Warning,
    /// The name of a tool on the user's machine.
    Client,
    /// The name of a tool on the server.
    Server,
    /// Less important text.
    Dim,
    /// Something that succeeded.
    Good,
}

impl Style {
    /// Text without any escape sequence.
    pub const PLAIN: Self = Self { colour: false };
    /// Text with ANSI colours.
    pub const COLOUR: Self = Self { colour: true };

    /// Returns a text, marked; it must be escaped already.
    pub(crate) fn paint(self, part: Part, text: &str) -> String {
        if !self.colour || text.is_empty() {
            return text.to_owned();
        }
        let code = match part {
            Part::Heading => "1",
            Part::Warning => "1;31",
            Part::Client => "36",
            Part::Server => "33",
            Part::Dim => "2",
            Part::Good => "32",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

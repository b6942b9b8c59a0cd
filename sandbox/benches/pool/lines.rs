//! A child process that answers each line with one line.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A child process that waits for lines. It exits when this value is dropped.
pub(crate) struct Lines {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Lines {
    /// Starts the process.
    pub(crate) fn start(command: &mut Command) -> Result<Lines, Box<dyn Error>> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or("a child has no stdout")?);
        Ok(Lines { child, stdin, stdout })
    }

    /// Writes a line and returns the child's answer.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String, Box<dyn Error>> {
        writeln!(self.stdin.as_mut().ok_or("a child's stdin is closed")?, "{line}")?;
        self.next()
    }

    /// Returns the next line from the child.
    pub(crate) fn next(&mut self) -> Result<String, Box<dyn Error>> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        if line.is_empty() { Err("a child has ended".into()) } else { Ok(line) }
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // It exits when its stdin is closed.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

//! Executes the blocks of a page in order, like a reader who follows it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::expect::compare;
use super::linked;
use super::page::{Block, Page};
use crate::support::binaries::built;
use crate::support::cli::text;
use crate::support::guard::{Folder, Guarded};

/// How long a start may take; the first one creates a database.
const START: Duration = Duration::from_secs(120);
/// The command that is left running in the background.
const GATEWAY: &str = "pml-server";
/// The gateway's address and data directory as the pages write them.
const ADDRESS: &str = "127.0.0.1:3001";
const DATA: &str = "/var/lib/pml";

/// The gateway that a page needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gateway {
    /// It runs, and the environment has its URL and its first key.
    Runs,
    /// The page starts it.
    Started,
    /// There is no gateway.
    None,
}

/// The state of a reader: a home folder, environment variables and perhaps a gateway.
pub(super) struct Reader {
    home: Folder,
    path: String,
    address: String,
    gateway: Option<Arc<Guarded>>,
    /// All output so far.
    pub(super) seen: String,
}

impl Reader {
    /// Creates a reader with a new home folder and project.
    pub(super) fn new(sources: &Path, gateway: Gateway) -> Self {
        let home = Folder::new("r");
        let programs = built("pml").parent().expect("it lies in a folder").to_owned();
        let mut path = programs.display().to_string();
        for folder in ["PML_PG_BIN", "PATH"].iter().filter_map(std::env::var_os) {
            path = format!("{path}:{}", Path::new(&folder).display());
        }
        // The port must be free now and later, because the gateways of a page use it one after the other.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|bound| bound.local_addr())
            .expect("a port is free")
            .port();
        let address = format!("127.0.0.1:{port}");
        let mut reader = Self { home, path, address, gateway: None, seen: String::new() };
        fs::create_dir_all(reader.home.join("project")).expect("our own folder takes folders");
        reader.prepare(&format!("export SOURCES='{}'; cd project", sources.display()));
        if gateway == Gateway::Runs {
            reader.start(GATEWAY, None).expect("the gateway starts");
            reader.prepare(&format!(
                "export PML_CLOUD_URL=http://{ADDRESS} PML_API_KEY=$(cat {DATA}/local.key)"
            ));
        }
        reader
    }

    /// Returns the current folder.
    pub(super) fn folder(&self) -> PathBuf {
        let folder = fs::read_to_string(self.home.join(".folder")).unwrap_or_default();
        PathBuf::from(folder.trim())
    }

    /// Returns where the gateway listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Runs a command that the page assumes was run before.
    #[track_caller]
    pub(super) fn prepare(&mut self, command: &str) {
        self.run(command).unwrap_or_else(|report| panic!("{report}"));
    }

    /// Executes one block.
    pub(super) fn take(
        &mut self,
        page: &Page,
        block: &Block,
        file: Option<&str>,
    ) -> Result<(), String> {
        if let Some(name) = file {
            self.write(name, &block.text)?;
        }
        match block.language.as_str() {
            "sh" => self.follow(&block.text),
            "console" => self.converse(block),
            "ts" => match file.map(str::to_owned).or_else(|| page.name_of(block)) {
                Some(name) => self.write(&name, &block.text),
                None => {
                    self.write("block.ts", &block.text)?;
                    self.run("pml analyze block.ts").map(drop)
                }
            },
            "json" => self.read_json(&block.text),
            "sql" => {
                self.write("block.sql", &block.text)?;
                let psql = format!(
                    "psql -qX -v ON_ERROR_STOP=1 -h {DATA}/postgres -U pml -d pml -f block.sql"
                );
                self.run(&psql).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Runs a block of commands, whose last one may start the gateway.
    fn follow(&mut self, block: &str) -> Result<(), String> {
        let plain = |line: &str| line.split(" #").next().unwrap_or_default().trim_end().to_owned();
        let lines: Vec<&str> = block.trim_end().lines().collect();
        let last = plain(lines.last().copied().unwrap_or_default());
        if last != GATEWAY && !last.ends_with(&format!(" {GATEWAY}")) {
            return self.run(block).map(drop);
        }
        self.run(&lines[..lines.len() - 1].join("\n"))?;
        self.start(&last, None)
    }

    /// Runs each command and compares its output.
    fn converse(&mut self, block: &Block) -> Result<(), String> {
        let commands = block.commands();
        if commands.is_empty() {
            return Err("no command in a `console` block".to_owned());
        }
        for (command, wanted) in commands {
            if command == GATEWAY {
                self.start(GATEWAY, Some(&wanted))?;
                continue;
            }
            if let Some(program) = &block.program {
                let target = linked(program);
                let name = target.file_name().unwrap_or_default();
                fs::copy(&target, self.folder().join(name)).map_err(|error| error.to_string())?;
            }
            if let Some(file) = command.strip_prefix("cat ").filter(|_| !wanted.is_empty())
                && !self.folder().join(file).exists()
            {
                self.write(file, &wanted)?;
            }
            let printed = self.type_in(&command, &answers(&wanted))?;
            compare(&wanted, &self.as_printed(&printed))
                .map_err(|report| format!("$ {command}\n{report}"))?;
        }
        Ok(())
    }

    fn read_json(&mut self, block: &str) -> Result<(), String> {
        let value: Value =
            serde_json::from_str(block).map_err(|error| format!("not JSON: {error}\n{block}"))?;
        if ["permissions", "policy", "private_mcps", "cloud"]
            .iter()
            .any(|key| value.get(key).is_some())
        {
            let folder = self.home.join("configured");
            fs::create_dir_all(&folder).expect("our own folder takes folders");
            fs::write(folder.join(".pml.json"), block).expect("our own folder takes files");
            let load = "(cd $HOME/configured && export PML_TRUST_NONINTERACTIVE=1 && pml trust --yes && \
                        echo 'return 7' | pml exec -)";
            self.run(load)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, content: &str) -> Result<(), String> {
        let file = self.folder().join(name);
        fs::create_dir_all(file.parent().expect("it lies in a folder"))
            .and_then(|()| fs::write(&file, content))
            .map_err(|error| format!("`{name}`: {error}"))
    }

    /// Replaces the address and folders of the page by the reader's own.
    fn as_typed(&self, text: &str) -> String {
        text.replace(ADDRESS, &self.address).replace(DATA, &self.data())
    }

    fn as_printed(&self, text: &str) -> String {
        text.replace(&self.address, ADDRESS).replace(&self.data(), DATA)
    }

    fn data(&self) -> String {
        self.home.join("data").display().to_string()
    }

    /// Prepares a script with the current folder and variables of the previous blocks.
    fn shell(&self, script: &str) -> Command {
        let script = format!(
            "set -euo pipefail\n[ ! -f $HOME/.exported ] || . $HOME/.exported\n\
             [ ! -f $HOME/.folder ] || cd \"$(cat $HOME/.folder)\"\n{}\n\
             export -p > $HOME/.exported\npwd > $HOME/.folder",
            self.as_typed(script)
        );
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(&*self.home).env_clear();
        command.env("HOME", &*self.home).env("PATH", &self.path).env("PML_LISTEN", &self.address);
        command.env("PML_DATA_DIR", self.data());
        command
    }

    fn run(&mut self, block: &str) -> Result<String, String> {
        let output = self.shell(block).stdin(Stdio::null()).output().expect("bash runs");
        let printed = text(&output.stdout) + &text(&output.stderr);
        self.seen += &printed;
        if output.status.success() {
            return Ok(printed);
        }
        Err(format!("{block}\n{}\n{printed}", output.status))
    }

    /// Runs a command, whatever its exit code, and returns its output. It gets a terminal if there are questions to
    /// answer.
    fn type_in(&mut self, command: &str, answers: &[String]) -> Result<String, String> {
        let script = format!("exec 2>&1\n{{\n{command}\n}} || true");
        let mut shell = self.shell(&script);
        if !answers.is_empty() {
            let inner = self.home.join(".typed");
            fs::write(&inner, script).map_err(|error| error.to_string())?;
            let line =
                format!("script --quiet --return --command 'bash {}' /dev/null", inner.display());
            shell = self.shell(&line);
        }
        let mut child = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("bash runs");
        let mut stdin = child.stdin.take();
        let mut stdout = child.stdout.take().expect("stdout is piped");
        let mut left = answers.iter();
        let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
        if answers.is_empty() {
            stdin = None;
        }
        loop {
            let count = stdout.read(&mut piece).unwrap_or_default();
            if count == 0 {
                break;
            }
            shown.extend_from_slice(&piece[..count]);
            if shown.ends_with(b": ")
                && let (Some(answer), Some(stdin)) = (left.next(), &mut stdin)
            {
                let _ = writeln!(stdin, "{answer}");
            }
        }
        drop(stdin);
        let status = child.wait().map_err(|error| error.to_string())?;
        let shown = text(&shown).replace('\r', "");
        self.seen += &shown;
        if status.success() { Ok(shown) } else { Err(format!("$ {command}\n{status}\n{shown}")) }
    }

    /// Starts the gateway in place of the previous one, and compares its start screen.
    fn start(&mut self, command: &str, screen: Option<&str>) -> Result<(), String> {
        if let Some(before) = self.gateway.take()
            && before.stop() != Some(0)
        {
            return Err("the previous gateway did not stop with exit code 0".to_owned());
        }
        let log = self.home.join("log");
        let (settings, program) = command.split_at(command.len() - GATEWAY.len());
        // The guard starts in another folder and environment, so the shell restores the reader's.
        let enter = format!(
            "cd {} && {{ [ ! -f .exported ] || . ./.exported; }} && {settings} exec {program}",
            self.home.display()
        );
        let mut shell = Command::new("bash");
        shell.args(["-c", &enter]);
        for (name, value) in self.shell("").get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let gateway = Guarded::start(&shell, &log);
        let serves = gateway.line(START, |line| line == "Stop with Ctrl-C.");
        let printed = gateway.printed();
        self.gateway = Some(gateway);
        if serves.is_none() {
            return Err(format!(
                "{command}\n{printed}{}",
                fs::read_to_string(log).unwrap_or_default()
            ));
        }
        screen.map_or(Ok(()), |screen| compare(screen, &self.as_printed(&printed)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            gateway.stop();
        }
    }
}

/// Returns the answers that a page shows behind its questions.
fn answers(wanted: &str) -> Vec<String> {
    let questions = wanted.lines().filter(|line| line.contains('?') && line.contains("]"));
    questions
        .filter_map(|line| line.rsplit_once(": ").map(|(_, answer)| answer.trim().to_owned()))
        .filter(|answer| {
            let numbers = answer.strip_prefix("w ").unwrap_or_default();
            answer.len() <= 1 || !numbers.is_empty() && numbers.bytes().all(|b| b.is_ascii_digit())
        })
        .collect()
}

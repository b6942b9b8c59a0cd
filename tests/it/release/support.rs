//! A release in a folder, signed in the form of minisign.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use data_encoding::BASE64;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};

use crate::support::guard;

/// The id of the keys, which anybody can choose.
const KEY_ID: &[u8; 8] = b"pml-test";

/// A pair of keys.
pub(super) struct Keys(Ed25519KeyPair);

/// The machine that this one is not.
pub(super) const OTHER_MACHINE: &str =
    if cfg!(target_arch = "x86_64") { "aarch64" } else { "x86_64" };

/// The name of its program in a release.
pub(super) const OTHER_PROGRAM: &str =
    if cfg!(target_arch = "x86_64") { "pml-aarch64-linux.gz" } else { "pml-x86_64-linux.gz" };

/// Returns a program of this machine as one of another machine: with its number in the header of ELF.
pub(super) fn as_of(machine: &str, mut program: Vec<u8>) -> Vec<u8> {
    let number: u16 = if machine == "x86_64" { 62 } else { 183 };
    program[18..20].copy_from_slice(&number.to_le_bytes());
    program
}

impl Keys {
    pub(super) fn new() -> Self {
        let random = ring::rand::SystemRandom::new();
        let pair = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap())
    }

    /// Returns the public key as minisign writes it.
    pub(super) fn public(&self) -> String {
        BASE64.encode(&[b"Ed", &KEY_ID[..], self.0.public_key().as_ref()].concat())
    }

    /// Signs a file: in the older form the file itself, else its BLAKE2b-512.
    pub(super) fn sign(&self, file: &Path, is_hashed: bool) {
        let content = std::fs::read(file).unwrap();
        let (form, signed) = if is_hashed { (b"ED", blake2b(file)) } else { (b"Ed", content) };
        let signature = self.0.sign(&signed);
        let comment = "pml stable";
        let global = self.0.sign(&[signature.as_ref(), comment.as_bytes()].concat());
        let text = format!(
            "untrusted comment: x\n{}\ntrusted comment: {comment}\n{}\n",
            BASE64.encode(&[&form[..], KEY_ID, signature.as_ref()].concat()),
            BASE64.encode(global.as_ref()),
        );
        let mut signature = file.as_os_str().to_owned();
        signature.push(".minisig");
        std::fs::write(signature, text).unwrap();
    }
}

fn blake2b(file: &Path) -> Vec<u8> {
    let hash = Command::new("openssl").args(["dgst", "-blake2b512", "-binary"]).arg(file).output();
    let hash = hash.unwrap();
    assert!(hash.status.success(), "openssl: {hash:?}");
    hash.stdout
}

/// A release of a program that only says its version.
pub(super) struct Release {
    pub(super) folder: PathBuf,
    pub(super) keys: Keys,
    /// The program in it.
    pub(super) program: Vec<u8>,
}

/// What is wrong with a release.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    /// Instead of 9.0.0.
    pub(super) version: Option<&'static str>,
    /// Instead of `stable`.
    pub(super) channel: Option<&'static str>,
    /// Instead of a time in the future.
    pub(super) expires: Option<&'static str>,
    /// Instead of the name for this machine.
    pub(super) file: Option<&'static str>,
    /// What the program says, instead of its version.
    pub(super) says: Option<&'static str>,
    /// Whether the program is for another machine than its name says.
    pub(super) is_for_other: bool,
    /// Bytes that make the program larger.
    pub(super) padding: usize,
    /// Whether the signature covers the hash of the file.
    pub(super) is_hashed: bool,
}

impl Release {
    pub(super) fn new(options: &Options) -> Self {
        let keys = Keys::new();
        let folder = guard::folder("release");
        let mut release = Self { folder, keys, program: Vec::new() };
        release.write(options);
        release
    }

    /// Writes another version into the same folder, with the same keys.
    pub(super) fn write(&mut self, options: &Options) {
        let version = options.version.unwrap_or("9.0.0");
        let says = options.says.map_or_else(|| format!("pml {version}"), str::to_owned);
        let mut program = format!("#!/bin/sh\necho '{says}'\nexit 0\n").into_bytes();
        if options.is_for_other {
            program = as_of(OTHER_MACHINE, std::fs::read("/bin/true").unwrap());
        }
        // It does not compress, so that reading it takes a while.
        let mut noise = vec![0; options.padding];
        ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut noise).unwrap();
        program.extend(noise);
        self.program = program;
        let name = format!("pml-{}-linux.gz", std::env::consts::ARCH);
        let name = options.file.unwrap_or(&name);
        let of_version = self.folder.join(version);
        std::fs::create_dir_all(&of_version).unwrap();
        let plain = of_version.join("plain");
        std::fs::write(&plain, &self.program).unwrap();
        let packed = Command::new("gzip").args(["-n", "-c"]).arg(&plain).output().unwrap().stdout;
        std::fs::remove_file(&plain).unwrap();
        std::fs::write(of_version.join(name), &packed).unwrap();
        let hash: String = Sha256::digest(&packed).iter().map(|b| format!("{b:02x}")).collect();
        let text = format!(
            "pml-release 1\nchannel {}\nversion {version}\nexpires {}\nfile {name} {} {hash} {}\n",
            options.channel.unwrap_or("stable"),
            options.expires.unwrap_or("2099-01-01T00:00:00Z"),
            packed.len(),
            self.program.len(),
        );
        std::fs::write(self.manifest(), text).unwrap();
        self.keys.sign(&self.manifest(), options.is_hashed);
    }

    pub(super) fn manifest(&self) -> PathBuf {
        self.folder.join("latest.txt")
    }

    /// Returns the packed program.
    pub(super) fn packed(&self) -> PathBuf {
        let name = format!("pml-{}-linux.gz", std::env::consts::ARCH);
        self.folder.join("9.0.0").join(name)
    }

    pub(super) fn place(&self) -> String {
        self.folder.display().to_string()
    }
}

/// Returns what a program says with `--version`; `None` if it does not work.
pub(super) fn version(program: &Path) -> Option<String> {
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

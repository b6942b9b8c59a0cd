//! The container images that `deploy/image.py` builds, unpacked and run as a container runtime would: another root that
//! cannot be written, and an unprivileged user.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::packages::stripped;
use crate::skipped::skipped;
use crate::support::cli::{finish, text};
use crate::support::guard;

/// Mounts what a runtime mounts, and starts a program in the image.
const START: &str = r#"
set -e
root=$1; shift
mount --bind "$root" "$root"
mount -o remount,ro,bind "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0700,uid=65532,gid=65532 tmpfs "$root/home/pml"
mkdir -m 700 "$root/home/pml/work" && chown 65532:65532 "$root/home/pml/work"
exec chroot --userspec=65532:65532 "$root" "$@"
"#;

struct Image {
    layout: PathBuf,
    config: Value,
    root: PathBuf,
}

impl Image {
    fn build(program: &str, sbom: Option<&Path>) -> Self {
        let folder = guard::folder("image");
        let (layout, root) = (folder.join("layout"), folder.join("root"));
        std::fs::create_dir(&root).unwrap();
        let mut command = builder(program, &layout);
        if let Some(sbom) = sbom {
            command.arg("--sbom").arg(sbom);
        }
        let built = command.output().unwrap();
        assert!(built.status.success(), "{}", text(&built.stderr));
        let mut image = Self { layout, config: Value::Null, root };
        let index = image.json("index.json");
        let manifest = image.blob(&index["manifests"][0]);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        image.config = serde_json::from_slice(&image.blob(&manifest["config"])).unwrap();
        let layer = image.layout.join("layer");
        std::fs::write(&layer, image.blob(&manifest["layers"][0])).unwrap();
        let unpacked = Command::new("tar")
            .arg("-xzpf")
            .arg(&layer)
            .arg("-C")
            .arg(&image.root)
            .output()
            .unwrap();
        assert!(unpacked.status.success(), "{}", text(&unpacked.stderr));
        image
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.layout.join(name)).unwrap()).unwrap()
    }

    /// Returns a blob, which has the hash and the size of its descriptor.
    #[track_caller]
    fn blob(&self, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let content = std::fs::read(self.layout.join("blobs/sha256").join(digest)).unwrap();
        let hash: String =
            Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash, digest);
        assert_eq!(content.len() as u64, descriptor["size"].as_u64().unwrap());
        content
    }

    /// Runs the image's program with the image's environment.
    fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let config = &self.config["config"];
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--fork", "--kill-child", "sh", "-c", START, "sh"])
            .arg(&self.root);
        command.arg(config["Entrypoint"][0].as_str().unwrap()).args(arguments);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        for variable in config["Env"].as_array().unwrap() {
            let (name, value) = variable.as_str().unwrap().split_once('=').unwrap();
            command.env(name, value);
        }
        command.env("PML_WORKSPACE", "/home/pml/work").env("PML_CLOUD_URL", "http://127.0.0.1:9");
        finish(command, input)
    }
}

/// Prepares the script that builds the image of a program.
fn builder(program: &str, layout: &Path) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/image.py");
    let mut command = Command::new("python3");
    command.arg(script).args(["--program", program, "--bin"]).arg(stripped());
    command.arg("--out").arg(layout);
    command.env("PML_RELEASE_LEVEL", "1").env("SOURCE_DATE_EPOCH", "1790000000");
    command
}

/// An image that is larger than the limit is not built. The limit for releases holds even for this build.
#[test]
fn a_large_image_is_refused() {
    let layout = guard::folder("large").join("layout");
    let refused = builder("pml-server", &layout).args(["--limit", "1.5"]).output().unwrap();
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("MB, and may have 1.5 MB"), "{said}");
    assert!(!layout.join("index.json").exists());
    let built = builder("pml-server", &layout).output().unwrap();
    assert!(
        built.status.success() && layout.join("index.json").exists(),
        "{}",
        text(&built.stderr)
    );
}

/// In each image, programs are sealed completely; in that of `pml`, one runs.
#[test]
fn programs_are_sealed_in_an_image() {
    if !rustix::process::geteuid().is_root() {
        skipped!("only root can unpack and mount an image");
    }
    for program in ["pml-server", "pml"] {
        let image = Image::build(program, None);
        assert_eq!(image.config["config"]["User"], "65532:65532");
        let tested = image.run(&["--sandbox-selftest"], b"");
        assert!(
            tested.status.success(),
            "{program}: {}\n{}",
            text(&tested.stdout),
            text(&tested.stderr)
        );
        assert!(text(&tested.stdout).contains("The sandbox holds"), "{}", text(&tested.stdout));
        if program == "pml" {
            let ran = image.run(&["exec", "-"], b"return [1, 2, 3].map((n) => n * 14).at(-1);");
            assert_eq!(text(&ran.stdout), "42\n", "{}", text(&ran.stderr));
        }
    }
}

/// The bill of materials is in the layout and refers to the image; the same inputs give the same image.
#[test]
fn an_image_can_be_built_again() {
    if !rustix::process::geteuid().is_root() {
        skipped!("only root can unpack an image with its owners");
    }
    let sbom = super::packages::bill("pml-server");
    let (first, second) =
        (Image::build("pml-server", Some(&sbom)), Image::build("pml-server", Some(&sbom)));
    let index = first.json("index.json");
    assert_eq!(index, second.json("index.json"));
    let [image, attached] = &index["manifests"].as_array().unwrap()[..] else {
        panic!("{index:#}")
    };
    let attached: Value = serde_json::from_slice(&first.blob(attached)).unwrap();
    assert_eq!(attached["subject"]["digest"], image["digest"]);
    assert_eq!(first.blob(&attached["layers"][0]), std::fs::read(&sbom).unwrap());
    // Nothing but the program, what it is linked to, and its folders.
    let programs: Vec<_> = std::fs::read_dir(first.root.join("usr/bin"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(programs, ["pml-server"]);
}

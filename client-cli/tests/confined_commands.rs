//! A command reaches the workspace and what is installed, and more only if the call asks for it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Read as _;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

#[path = "support/commands.rs"]
mod commands;

use self::commands::Bench;

/// Runs a script of Python; returns its output by lines.
async fn python(bench: &Bench, access: &str, script: &str, arguments: &[&str]) -> Vec<String> {
    let command = [&["python3", "-c", script][..], arguments].concat();
    let result = bench.exec(json!({ "command": command, "access": access })).await.unwrap();
    assert_eq!(result["exit_code"], 0, "{result}");
    result["stdout"].as_str().unwrap().lines().map(str::to_owned).collect()
}

/// Tries what each line of its first argument says, and prints `ok` or the name of the error.
const ATTEMPTS: &str = r"
import errno, os, shutil, socket, sys
outside = sys.argv[2]
for line in sys.argv[1].strip().splitlines():
    try:
        exec(line)
        print('ok')
    except OSError as error:
        print(errno.errorcode.get(error.errno, error.errno))
";

/// No file outside the workspace is read, changed, linked or removed, in whatever way.
#[tokio::test(flavor = "multi_thread")]
async fn files_outside_the_workspace_are_out_of_reach() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    std::os::unix::fs::symlink(outside.path(), bench.path("link")).unwrap();
    let attempts = "
open(outside + '/secret').read()
open('link/secret').read()
open('/proc/self/root' + outside + '/secret').read()
open(outside + '/secret', 'a').write('x')
open(outside + '/new', 'w')
os.truncate(outside + '/secret', 0)
os.remove(outside + '/secret')
os.rename(outside + '/secret', 'taken')
os.link(outside + '/secret', 'taken')
os.rename('sub', outside + '/sub')
os.listdir(outside)
os.mkdir(outside + '/made')
os.mknod(outside + '/fifo', 0o010600)
os.chdir(outside) or os.listdir('.')
open(os.path.expanduser('~') + '/.pml-test', 'w')
open('/tmp/pml-test-outside', 'w')
open('/dev/shm/pml-test', 'w')
open('/dev/tty', 'w')
open('/proc/' + str(os.getppid()) + '/environ').read()
open('/proc/' + str(os.getppid()) + '/mem').read()
";
    let path = outside.path().to_str().unwrap();
    let got = python(&bench, "workspace", ATTEMPTS, &[attempts, path]).await;
    for (attempt, result) in attempts.trim().lines().zip(&got) {
        // A file system may have another reason, which it finds first.
        assert!(["EACCES", "EXDEV", "EPERM", "ENXIO"].contains(&&**result), "{attempt}: {result}");
    }
    assert_eq!(got.len(), attempts.trim().lines().count());
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    let names = std::fs::read_dir(outside.path()).unwrap();
    assert_eq!(names.count(), 1);
    // The same with the network.
    let read = "open(outside + '/secret').read()";
    assert_eq!(python(&bench, "network", ATTEMPTS, &[read, path]).await, ["EACCES"]);
    assert_eq!(python(&bench, "unconfined", ATTEMPTS, &[read, path]).await, ["ok"]);
}

/// What a command is for works: it changes the workspace, writes temporary files, and starts other programs.
#[tokio::test(flavor = "multi_thread")]
async fn the_workspace_and_a_temporary_folder_can_be_changed() {
    let bench = Bench::new();
    let attempts = "
open('made', 'w').write('x')
os.rename('made', 'sub/moved')
os.link('sub/moved', 'linked')
os.symlink('sub', 'to-sub')
os.truncate('linked', 0)
os.chmod('linked', 0o755)
shutil.rmtree('sub')
import tempfile; tempfile.NamedTemporaryFile().write(b'x')
open(os.environ['TMPDIR'] + '/x', 'w').write('x')
os.makedirs(os.environ['XDG_CACHE_HOME'] + '/tool')
import subprocess; subprocess.run(['sh', '-c', 'true'], check=True)
import subprocess; subprocess.run(['git', 'init', '-q', '.'], check=True)
socket.socketpair()
open('/dev/null', 'w').write('x')
open('/dev/urandom', 'rb').read(1)
open('/proc/self/status').read()
open('/etc/passwd').read()
os.kill(os.getpid(), 0)
print(os.environ['TMPDIR'])
";
    let got = python(&bench, "workspace", ATTEMPTS, &[attempts, ""]).await;
    let (temporary, got): (Vec<String>, Vec<String>) =
        got.into_iter().partition(|line| line.starts_with('/'));
    for (attempt, result) in attempts.trim().lines().zip(&got) {
        assert_eq!(result, "ok", "{attempt}");
    }
    assert_eq!(got.len(), attempts.trim().lines().count());
    // Nothing is left of it, and each command has its own.
    assert!(!std::path::Path::new(&temporary[0]).exists());
    let next = python(&bench, "workspace", "import os; print(os.environ['TMPDIR'])", &[]).await;
    assert_ne!(next, temporary);
}

/// No connection is opened, by any kind of socket.
#[tokio::test(flavor = "multi_thread")]
async fn the_network_has_to_be_asked_for() {
    let bench = Bench::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("service");
    let _local = UnixListener::bind(&local).unwrap();
    let _shared = UnixListener::bind(bench.path("service")).unwrap();
    let name = format!("pml-test-{}", std::process::id());
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let attempts = format!(
        "
socket.create_connection(('127.0.0.1', {}))
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {}))
socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
socket.socket(socket.AF_INET, socket.SOCK_STREAM).bind(('127.0.0.1', 0))
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect('{}')
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect('service')
socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect('\\0{name}')
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
socket.socket(40, socket.SOCK_STREAM)
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
import ctypes; r = ctypes.CDLL(None, use_errno=True).syscall({io_uring_setup}, 1, ctypes.create_string_buffer(256)); r < 0 and (_ for _ in ()).throw(OSError(ctypes.get_errno(), 'io_uring_setup'))
import ctypes; r = ctypes.CDLL(None, use_errno=True).syscall({keyctl}, 0, -3, 1); r < 0 and (_ for _ in ()).throw(OSError(ctypes.get_errno(), 'keyctl'))
",
        tcp.local_addr().unwrap().port(),
        udp.local_addr().unwrap().port(),
        local.display(),
        io_uring_setup = libc::SYS_io_uring_setup,
        keyctl = libc::SYS_keyctl,
    );
    let lines: Vec<&str> = attempts.trim().lines().collect();
    let got = python(&bench, "workspace", ATTEMPTS, &[&attempts, ""]).await;
    assert_eq!(got, vec!["EACCES"; lines.len()], "{lines:?}");
    let got = python(&bench, "network", ATTEMPTS, &[&attempts, ""]).await;
    // Services of this machine that listen elsewhere than on IP would do what the command may not.
    assert_eq!(
        (&got[..4], &got[4..]),
        (&["ok"; 4].map(String::from)[..], &vec!["EACCES".to_owned(); 8][..])
    );
    let got = python(&bench, "unconfined", ATTEMPTS, &[&attempts, ""]).await;
    assert_eq!(got[..8], ["ok"; 8]);
}

/// NX-07: other processes of the user cannot be signalled or inspected, and no rights are gained.
#[tokio::test(flavor = "multi_thread")]
async fn other_processes_are_out_of_reach() {
    let bench = Bench::new();
    let mut other =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = other.id().to_string();
    let attempts = "
os.kill(int(outside), 15)
open('/proc/' + outside + '/environ').read()
os.listdir('/proc/' + outside + '/root')
os.chroot('.')
os.mknod('device', 0o060600, os.makedev(8, 0))
";
    let got = python(&bench, "workspace", ATTEMPTS, &[attempts, &pid]).await;
    for (attempt, result) in attempts.trim().lines().zip(&got) {
        assert!(["EPERM", "EACCES"].contains(&&**result), "{attempt}: {result}");
    }
    let status =
        "print([line for line in open('/proc/self/status') if line.startswith('NoNewPrivs')][0])";
    let got = python(&bench, "workspace", status, &[]).await;
    assert_eq!(got[0], "NoNewPrivs:\t1");
    drop(other.stdin.take());
    let mut rest = String::new();
    other.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    // It ended because its input did.
    assert!(other.wait().unwrap().success());
}

/// A command that fails for this reason says what to do about it, and no other does.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_access_is_explained() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let list = json!(["ls", outside.path()]);
    let note = async |access: &str, command: &Value| {
        let result = bench.exec(json!({ "command": command, "access": access })).await.unwrap();
        result["note"].as_str().map(str::to_owned)
    };
    let said = note("workspace", &list).await.unwrap();
    assert!(said.contains("without network") && said.contains("`unconfined`"), "{said}");
    let said = note("network", &list).await.unwrap();
    assert!(!said.contains("`network`") && said.contains("`unconfined`"), "{said}");
    assert_eq!(note("unconfined", &list).await, None);
    assert_eq!(note("workspace", &json!(["false"])).await, None);
    let text = json!(["echo", "Permission denied"]);
    assert_eq!(note("workspace", &text).await, None);
    bench.exec(json!({ "command": ["true"], "access": "all" })).await.unwrap_err();
}

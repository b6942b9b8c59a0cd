//! A malicious zygote, whose children behave as if an attacker controlled them from the start.

use std::io::{IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use sandbox::{FailureKind, Limits, Pool, PoolConfig};
use tokio_util::sync::CancellationToken;

use crate::hosts::{open_descriptors, resident_kib, scaled};
use crate::support::{Tools, eventually, program, tree_of};

/// The role of a host with a malicious zygote.
pub(crate) const WITH_MALICIOUS_ZYGOTE: &str = "with a malicious zygote";
const READY: &str = r#"{"type":"ready","version":1,"layers":[]}"#;
/// The number of random conversations at full scale, in addition to the listed ones.
const RANDOM: usize = 2_000;

/// Becomes a malicious zygote if a host in that role has started this process as its zygote.
pub(crate) fn act_as_malicious_zygote_if_requested() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, mark, host, kind] = arguments.as_slice() else { return };
    if mark != "__sandbox-child" || kind != "zygote" {
        return;
    }
    let role = std::fs::read_to_string(format!("/proc/{host}/cmdline")).unwrap_or_default();
    if role.trim_end_matches('\0').ends_with(WITH_MALICIOUS_ZYGOTE) {
        serve_forks();
    }
}

/// What a child does with its socket, by the number of its fork; `None` past the end of the list.
fn misbehave(number: usize, socket: &mut UnixStream) -> Option<()> {
    let frame = |body: &[u8]| {
        let length = u32::try_from(body.len()).expect("a length");
        [&length.to_le_bytes()[..], body].concat()
    };
    let ready = frame(READY.as_bytes());
    let call = |id: u64, args: &str| {
        frame(
            format!(r#"{{"type":"rpc_call","id":{id},"namespace":"test","action":"echo","args":{args}}}"#)
                .as_bytes(),
        )
    };
    let mut send = |bytes: &[u8]| socket.write_all(bytes).is_ok();
    // Sent before the child has reported its seal.
    match number {
        0 => return Some(()),
        1 => return send(&u32::MAX.to_le_bytes()).then_some(()),
        2 => return send(&noise(1, 100_000)).then_some(()),
        3 => return send(&frame(br#"{"type":"ready","version":999,"layers":[]}"#)).then_some(()),
        4 => {
            return send(&frame(READY.replace("[]", &"[".repeat(20_000)).as_bytes())).then_some(());
        }
        5 => {
            return send(&frame(br#"{"type":"execution_complete","ok":true,"value":1}"#))
                .then_some(());
        }
        _ => send(&ready),
    };
    let hang = || std::thread::sleep(Duration::from_secs(60));
    match number {
        6 => {}
        7 => hang(),
        8 => drop(send(&[1, 0])),
        9 => drop(send(&u32::MAX.to_le_bytes())),
        10 => drop(send(&[&1_000_000u32.to_le_bytes()[..], &[b'x'; 999_999]].concat())),
        11 => while send(&frame(br#"{"type":"console","level":"log","text":"more"}"#)) {},
        12 => {
            // Never reads the answers.
            let mut id = 0;
            while send(&call(id + 1, r#"{"a":1}"#)) {
                id += 1;
            }
        }
        13 => {
            let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(1_000_000));
            let mut id = 0;
            while send(&call(id + 1, &large)) {
                id += 1;
            }
        }
        14 => drop(send(&[call(1, "{}"), call(1, "{}")].concat())),
        15 => drop(send(&call(7, "{}"))),
        16 => drop(send(&call(1, "[]"))),
        17 => drop(send(&frame(READY.as_bytes()))),
        18 => drop(send(&frame(br#"{"type":"unavailable","message":"no"}"#))),
        19 => {
            let deep = format!("{}{}", "[".repeat(400_000), "]".repeat(400_000));
            send(&frame(format!(r#"{{"type":"execution_complete","ok":true,"value":{deep}}}"#).as_bytes()));
        }
        20 => drop(send(&frame(b"{\"type\":\"execution_complete\",\"ok\":true,\"value\":\"\xff\"}"))),
        21 => while send(&frame(b"{}")) {},
        22 => drop(send(&frame(br#"{"type":"execution_complete","ok":false,"error":{"kind":"crashed","name":"E","message":"m"}}"#))),
        23 => {
            let text = "x".repeat(900_000);
            let body = format!(r#"{{"type":"execution_complete","ok":false,"error":{{"kind":"exception","name":"E","message":"{text}"}}}}"#);
            send(&frame(body.as_bytes()));
        }
        24 => {
            for byte in call(1, "{}") {
                send(&[byte]);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        25 => loop {
            std::hint::spin_loop();
        },
        26 => std::process::abort(),
        27 => while send(&[0; 4096]) {},
        28 => {
            let endless = [b'1'; 65_536];
            send(&1_100_000u32.to_le_bytes());
            while send(&endless) {}
        }
        29 => {
            // Sends unexpected descriptors.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let given = [socket.as_fd()];
            loop {
                let mut ancillary = SendAncillaryBuffer::new(&mut space);
                ancillary.push(SendAncillaryMessage::ScmRights(&given));
                let bytes = call(1, "{}");
                if sendmsg(&*socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).is_err() {
                    break;
                }
            }
        }
        30 => drop(send(&frame(br#"{"type":"execution_complete","ok":true,"value":1,"value":2}"#))),
        31 => drop(send(&[call(1, "{}"), frame(br#"{"type":"console","level":"secret","text":""}"#)].concat())),
        32 => drop(send(&frame("{".repeat(500_000).as_bytes()))),
        33 => drop(send(&frame(br#"{"type":"rpc_call","id":18446744073709551615,"namespace":"","action":"","args":{}}"#))),
        34 => drop(send(&frame(br#"{"type":"execution_complete","ok":true,"value":1e999999}"#))),
        _ => return None,
    }
    Some(())
}

/// Sends random frames, each a mutation of a valid one.
fn random(number: usize, socket: &mut UnixStream) {
    let valid = [
        READY,
        r#"{"type":"rpc_call","id":1,"namespace":"test","action":"echo","args":{"a":[1,"x"]}}"#,
        r#"{"type":"console","level":"log","text":"é"}"#,
        r#"{"type":"execution_complete","ok":false,"error":{"kind":"exception","name":"E","message":"m"}}"#,
    ];
    let mut dice = number as u64 | 1;
    let mut roll = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        usize::try_from(dice % sides as u64).expect("small")
    };
    let mut bytes = (u32::try_from(READY.len()).expect("short")).to_le_bytes().to_vec();
    bytes.extend_from_slice(READY.as_bytes());
    for _ in 0..1 + roll(8) {
        let mut body = valid[roll(valid.len())].as_bytes().to_vec();
        for _ in 0..1 + roll(4) {
            let at = roll(body.len());
            match roll(4) {
                0 => body[at] = u8::try_from(roll(256)).expect("a byte"),
                1 => drop(body.drain(at..)),
                2 => body.insert(at, b"{}[]\",:0\\\xff"[roll(10)]),
                _ => body.extend_from_within(at..),
            }
            if body.is_empty() {
                body.push(b' ');
            }
        }
        let wrong = if roll(10) == 0 { roll(1 << 20) } else { body.len() };
        bytes.extend_from_slice(&u32::try_from(wrong).expect("small").to_le_bytes());
        bytes.extend_from_slice(&body);
    }
    let _ = socket.write_all(&bytes);
}

fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut word = seed;
    (0..count)
        .map(|_| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (word >> 56) as u8
        })
        .collect()
}

fn serve_forks() -> ! {
    let control = rustix::stdio::stdin();
    let mut number = 0;
    while let Some((request, descriptor)) = receive(control) {
        let reply = match (request.split_first(), descriptor) {
            (Some((b'f', _)), Some(socket)) => {
                #[expect(unsafe_code, reason = "nothing safe forks")]
                // SAFETY: this process has one thread.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    let mut socket = UnixStream::from(socket);
                    let _ = socket.set_nonblocking(false);
                    if misbehave(number, &mut socket).is_none() {
                        random(number, &mut socket);
                    }
                    std::process::exit(0);
                }
                number += 1;
                [&[b'f'][..], &pid.to_le_bytes()].concat()
            }
            (Some((b'r', pid)), _) => {
                let pid = i32::from_le_bytes(pid.try_into().expect("a number"));
                let child = WaitId::Pid(Pid::from_raw(pid).expect("a number"));
                let status =
                    waitid(child, WaitIdOptions::EXITED).expect("a child").expect("it ended");
                let (kind, code) = match status.terminating_signal() {
                    Some(signal) => (b's', signal),
                    None => (b'e', status.exit_status().unwrap_or(0)),
                };
                [&[kind][..], &code.to_le_bytes()].concat()
            }
            other => panic!("{other:?}"),
        };
        rustix::io::write(control, &reply).expect("the host listens");
    }
    std::process::exit(0)
}

fn receive(control: BorrowedFd<'_>) -> Option<(Vec<u8>, Option<OwnedFd>)> {
    let mut bytes = vec![0; 512];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(control, into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut given) = message {
            descriptor = given.next();
        }
    }
    bytes.truncate(got.bytes);
    (!bytes.is_empty()).then_some((bytes, descriptor))
}

/// The host's side: whatever a child does, its run ends in time with a fitting failure, and nothing of it
/// remains.
pub(crate) async fn run_with_malicious_zygote() {
    let config = PoolConfig { warm: 1, max_running: 1, forks: u32::MAX, make_way: true };
    let pool = Pool::new(config).expect("a pool");
    let (wall, cpu) = (Duration::from_millis(700), Duration::from_millis(200));
    let limits = Limits { wall, cpu, ..Limits::server() };
    let run = async || {
        let tools = Arc::new(Tools::default()) as _;
        pool.run(program("return 1"), &limits, tools, CancellationToken::new()).await
    };
    let conversations = 40 + scaled(RANDOM);
    let mut before = (0, 0);
    for number in 0..conversations {
        let begun = Instant::now();
        let outcome = run().await;
        let took = begun.elapsed();
        let failure = outcome.result.expect_err("no child sends a result");
        assert!(
            matches!(
                failure.kind,
                FailureKind::Crashed
                    | FailureKind::CpuTime
                    | FailureKind::Exception
                    | FailureKind::TooManyCalls
                    | FailureKind::Unavailable
                    | FailureKind::WallTime
            ),
            "{number}: {failure:?}"
        );
        assert!(took < Duration::from_secs(20), "{number}: {took:?}");
        if number == 40 {
            before = (resident_kib(), open_descriptors());
        }
    }
    drop(pool);
    eventually("the children are gone", || tree_of(std::process::id()).is_empty()).await;
    eventually("no descriptor of a run is left", || open_descriptors() <= before.1 + 8).await;
    let grown = resident_kib().saturating_sub(before.0);
    assert!(grown < 16 * 1024, "{conversations} conversations took {grown} KiB for good");
}

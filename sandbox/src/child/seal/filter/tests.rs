use seccompiler::sock_filter;

use super::*;

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };

/// A system call as a filter sees it.
#[derive(Clone, Copy, Debug)]
struct Call {
    architecture: u32,
    number: u32,
    arguments: [u64; 6],
}

/// Runs a filter as the kernel does, and returns its verdict.
fn verdict(program: &[sock_filter], call: Call) -> u32 {
    let mut data = [0; 64];
    data[0..4].copy_from_slice(&call.number.to_ne_bytes());
    data[4..8].copy_from_slice(&call.architecture.to_ne_bytes());
    for (index, argument) in call.arguments.iter().enumerate() {
        data[16 + 8 * index..24 + 8 * index].copy_from_slice(&argument.to_ne_bytes());
    }
    let (mut accumulator, mut at) = (0, 0);
    loop {
        let instruction = &program[at];
        let k = instruction.k;
        let jump = |holds| usize::from(if holds { instruction.jt } else { instruction.jf });
        at += 1;
        match u32::from(instruction.code) {
            // Load a word, and with a constant.
            0x20 => {
                let from = k as usize;
                accumulator = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
            }
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => at += jump(accumulator == k),
            0x25 => at += jump(accumulator > k),
            0x35 => at += jump(accumulator >= k),
            0x06 => return k,
            other => panic!("an instruction that no filter has: {other:#x}"),
        }
    }
}

fn call(number: libc::c_long, arguments: [u64; 6]) -> Call {
    Call { architecture: ARCHITECTURE, number: u32::try_from(number).unwrap(), arguments }
}

/// Every call with arguments on which a filter may depend, and calls by foreign tables.
fn calls() -> impl Iterator<Item = Call> {
    let numbers = (0..1024).chain(0x4000_0000..0x4000_0400);
    let words = [0, 1, 4, 7, 17, u64::from(OWN_PID), u64::from(u32::MAX), 1 << 32, u64::MAX];
    let native = numbers.flat_map(move |number| {
        words.into_iter().flat_map(move |first| {
            words.into_iter().map(move |third| call(number, [first, first, third, 0, 0, 0]))
        })
    });
    let foreign = native.clone().map(|call| Call { architecture: 0x4000_0003, ..call });
    native.chain(foreign)
}

#[test]
fn a_fork_may_do_what_a_child_may() {
    let child = Filter::new().unwrap().0;
    let zygote = permit(zygote_rules).unwrap();
    let fork = Filter::of_fork().unwrap().0;
    let mut permitted = 0;
    for call in calls() {
        // The strictest verdict counts, and killing is stricter than permitting.
        let both = [verdict(&zygote, call), verdict(&fork, call)];
        let together = if both == [ALLOW, ALLOW] { ALLOW } else { KILL };
        assert_eq!(together, verdict(&child, call), "{call:x?}");
        permitted += u32::from(together == ALLOW);
    }
    assert!(permitted > 0);
}

#[test]
fn a_zygote_may_fork_but_make_no_thread_and_no_namespace() {
    let zygote = permit(zygote_rules).unwrap();
    let may = |number, first| verdict(&zygote, call(number, [first, 0, 0, 0, 0, 0])) == ALLOW;
    let flags = |flags: i32| u64::from(flags.cast_unsigned());
    let fork = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
    assert!(may(libc::SYS_clone, flags(fork)));
    for other in [libc::CLONE_VM, libc::CLONE_THREAD, libc::CLONE_NEWUSER, libc::CLONE_NEWPID] {
        assert!(!may(libc::SYS_clone, flags(fork | other)), "{other:#x}");
    }
    for never in [libc::SYS_clone3, libc::SYS_execve, libc::SYS_openat, libc::SYS_socket] {
        assert!(!may(never, 0), "{never}");
    }
}

//! A copy of the registers and the stack of another thread, made by that thread in a handler of
//! SIGURG.
//!
//! **SIGURG**, since it is ignored unless a handler is installed: one that comes too late, or to a
//! program that was started meanwhile, ends nothing. (A real-time signal would.) Debuggers pass it
//! on silently. The kernel sends it only to a process that asked for it with `F_SETOWN`. Go's
//! runtime chose it for these reasons too. If a program has its own handler for it, that handler is
//! kept, and no stack is copied.
//!
//! **What the handler does:** atomic operations, and loads from its own stack, between the stack
//! pointer and the end that the thread noted when it became a worker. It makes no system call,
//! takes no lock and allocates no memory; so `errno` stays as it is. The handler runs on the
//! alternate stack, if there is one, with all signals blocked.
//!
//! **Where it writes:** to statics, so that a late handler never writes to memory that has been
//! freed. [`STATE`] says which thread owns them; it holds the number of the thread that is asked
//! and one of four phases:
//!
//! ```text
//! IDLE ──(watchdog)──► ASKED ──(handler)──► WRITING ──(handler)──► DONE ──(watchdog)──► IDLE
//!                        └──(watchdog has waited for long enough)──► IDLE
//! ```
//!
//! Each transition out of ASKED is a compare-and-exchange, so either the watchdog withdraws its
//! request, or the handler owns the statics until DONE. A handler on a thread that is not asked, or
//! no longer asked, changes nothing: the number in its own thread-local memory is not the one in
//! ASKED. (A thread that is asked by two requests answers one of them; which one does not matter.)
//! A thread that is stopped in WRITING keeps the statics until it continues; meanwhile no other
//! thread is asked. Every wait for an answer has a limit.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SIGNAL: c_int = libc::SIGURG;

/// The limit of what is copied of a stack, in words: 256 KiB, several times what most tasks need.
/// The process uses physical memory for it only once it was written.
const MAX_WORDS: usize = 32 * 1024;

pub(super) const WORD: usize = size_of::<usize>();

/// How long the watchdog waits for the thread. A computing thread is interrupted immediately; but
/// on a busy machine it may have to wait for a processor.
const PATIENCE: Duration = Duration::from_millis(100);

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const WRITING: u32 = 2;
const DONE: u32 = 3;

/// The number of bits of a phase. (A thread's number is less than 2^22: proc(5), `pid_max`.)
const PHASE_BITS: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(IDLE);
static REGISTERS: [AtomicUsize; REGISTER_COUNT] = [const { AtomicUsize::new(0) }; REGISTER_COUNT];
static WORDS: [AtomicUsize; MAX_WORDS] = [const { AtomicUsize::new(0) }; MAX_WORDS];
/// The address at which the copied stack ends.
static END: AtomicUsize = AtomicUsize::new(0);

/// The process of the thread that makes a request, or 0. In a child of `fork` it may be that of the
/// parent, whose threads the child must not wait for.
static ASKER: AtomicU32 = AtomicU32::new(0);

/// The right to make a request.
struct Question;

impl Question {
    fn new() -> Question {
        loop {
            let (own, holder) = (std::process::id(), ASKER.load(Ordering::Relaxed));
            let is_free = holder != own;
            let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
            if is_free
                && ASKER
                    .compare_exchange(holder, own, acquire, relaxed)
                    .is_ok()
            {
                if holder != 0 {
                    // A fork while the parent asked: whoever wrote the answer is not in this child.
                    STATE.store(IDLE, Ordering::Relaxed);
                }
                return Question;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        ASKER.store(0, Ordering::Release);
    }
}

/// A thread's record of itself.
struct Own {
    /// Its number, written last: until it is set no handler reads the other fields.
    thread: AtomicU32,
    low: Cell<usize>,
    high: Cell<usize>,
}

// Without a destructor and with a constant initialiser, so that a handler may read it: it is just
// memory at an offset from the thread pointer. (In a library that was loaded later, a thread's
// first access may allocate it; `note` was that access.)
thread_local! {
    static OWN: Own = const {
        Own {
            thread: AtomicU32::new(0),
            low: Cell::new(0),
            high: Cell::new(0),
        }
    };
}

pub(crate) fn note() -> u32 {
    // SAFETY: it has no preconditions, and always succeeds.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    OWN.with(|own| {
        if own.thread.load(Ordering::Relaxed) != thread {
            let (low, high) = limits().unwrap_or((0, 0));
            own.low.set(low);
            own.high.set(high);
            own.thread.store(thread, Ordering::Release);
        }
    });
    thread
}

/// Returns the bounds of this thread's stack, or `None` if the system does not report them.
fn limits() -> Option<(usize, usize)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: libc::pthread_getattr_np of the thread itself writes the attributes.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the call before has made the attributes, and libc::pthread_attr_getstack reads them.
    let known = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) };
    // SAFETY: the same attributes, which libc::pthread_attr_destroy ends.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    let low = low as usize;
    (known == 0).then_some((low, low + size))
}

/// A copy of a thread's registers, and of its stack from the stack pointer on.
pub(super) struct Stack {
    /// The registers by their DWARF numbers, and the program counter, [`PC`].
    pub(super) registers: Registers,
    words: Vec<usize>,
    /// Whether only a part of it was copied.
    pub(super) is_cut: bool,
}

impl Stack {
    /// Returns the word at an address, if it was copied.
    pub(super) fn word(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.registers[SP])?;
        (offset % WORD == 0).then(|| self.words.get(offset / WORD).copied())?
    }

    /// Whether the thread is on a stack that is not its own (that of a coroutine, or of a handler).
    pub(super) fn is_unknown(&self) -> bool {
        self.words.is_empty()
    }

    #[cfg(test)]
    pub(super) fn new(registers: Registers, words: Vec<usize>) -> Stack {
        Stack {
            registers,
            words,
            is_cut: false,
        }
    }
}

/// Makes a thread that called [`note`] copy its stack.
pub(super) fn of_thread(thread: u32) -> Result<Stack, &'static str> {
    let _question = Question::new();
    catch_signal()?;
    can_answer(thread)?;
    if STATE.load(Ordering::Acquire) & WRITING_MASK == WRITING {
        return Err("the thread that was asked before has been stopped while it answered");
    }
    STATE.store(thread << PHASE_BITS | ASKED, Ordering::Release);
    // SAFETY: libc::syscall with the arguments of tgkill(2); the thread belongs to this process, or
    // has ended.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL) };
    if sent != 0 {
        STATE.store(IDLE, Ordering::Relaxed);
        return Err(match io::Error::last_os_error().raw_os_error() {
            Some(libc::ESRCH) => HAS_ENDED,
            _ => "no signal can be sent to its thread",
        });
    }
    wait(thread)?;
    let stack = read();
    STATE.store(IDLE, Ordering::Relaxed);
    Ok(stack)
}

const HAS_ENDED: &str = "its thread has ended";
const WRITING_MASK: u32 = (1 << PHASE_BITS) - 1;

/// Waits until the thread has answered.
fn wait(thread: u32) -> Result<(), &'static str> {
    let (start, mut pause) = (Instant::now(), Duration::from_micros(20));
    let mut patience = PATIENCE;
    while STATE.load(Ordering::Acquire) != thread << PHASE_BITS | DONE {
        if start.elapsed() >= patience {
            let asked = thread << PHASE_BITS | ASKED;
            let withdrawn =
                STATE.compare_exchange(asked, IDLE, Ordering::Relaxed, Ordering::Relaxed);
            // Otherwise it is writing right now, or has just finished.
            if withdrawn.is_ok() || patience > PATIENCE {
                return Err("its thread has not answered in time");
            }
            patience *= 2;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
    Ok(())
}

/// Must be called in the phase DONE.
fn read() -> Stack {
    let registers = std::array::from_fn(|index| REGISTERS[index].load(Ordering::Relaxed));
    let all = END.load(Ordering::Relaxed).saturating_sub(registers[SP]) / WORD;
    let words = WORDS.iter().take(all);
    Stack {
        registers,
        words: words.map(|word| word.load(Ordering::Relaxed)).collect(),
        is_cut: all > MAX_WORDS,
    }
}

/// Installs the handler, unless it is installed already, or the program has another one.
fn catch_signal() -> Result<(), &'static str> {
    let ours = handle as *const () as usize;
    let is_free = |handler| handler == libc::SIG_DFL || handler == libc::SIG_IGN;
    let taken = Err("SIGURG, by which its thread would be asked, has a handler of the program's");
    // SAFETY: zeroes are a valid libc::sigaction, with the default action.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: libc::sigaction with a null pointer changes nothing, and writes what is there.
    unsafe { libc::sigaction(SIGNAL, std::ptr::null(), &mut before) };
    match before.sa_sigaction {
        handler if handler == ours => return Ok(()),
        handler if !is_free(handler) => return taken,
        _ => {}
    }
    let mut action = before;
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the set is part of the struct, and libc::sigfillset writes it. The handler has the
    // signature that SA_SIGINFO requires, and is async-signal-safe: see the head of this file.
    unsafe {
        libc::sigfillset(&mut action.sa_mask);
        libc::sigaction(SIGNAL, &action, &mut before);
    }
    if before.sa_sigaction != ours && !is_free(before.sa_sigaction) {
        // Another handler was installed a moment earlier; we put it back.
        // SAFETY: what libc::sigaction returned is given back to it.
        unsafe { libc::sigaction(SIGNAL, &before, std::ptr::null_mut()) };
        return taken;
    }
    Ok(())
}

/// Asks proc(5) whether the signal would reach the thread, so that no signal is left pending.
fn can_answer(thread: u32) -> Result<(), &'static str> {
    match std::fs::read_to_string(format!("/proc/self/task/{thread}/status")) {
        Ok(status) => parse_status(&status),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(HAS_ENDED),
        // Unknown: we find out by waiting for the answer.
        Err(_) => Ok(()),
    }
}

fn parse_status(status: &str) -> Result<(), &'static str> {
    let value = |name| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name).map(str::trim_start))
    };
    match value("State:").and_then(|state| state.chars().next()) {
        Some('D') => return Err("its thread is in a call that no signal interrupts"),
        Some('T' | 't') => return Err("its thread is stopped"),
        Some('X' | 'Z') => return Err(HAS_ENDED),
        _ => {}
    }
    let blocked = value("SigBlk:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    match blocked.unwrap_or(0) & (1 << (SIGNAL - 1)) {
        0 => Ok(()),
        _ => Err("its thread blocks SIGURG, by which it would be asked"),
    }
}

/// The handler.
extern "C" fn handle(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    OWN.with(|own| {
        let thread = own.thread.load(Ordering::Acquire);
        let asked = thread << PHASE_BITS | ASKED;
        let writing = thread << PHASE_BITS | WRITING;
        let taken = STATE.compare_exchange(asked, writing, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return; // Not our signal, or it is too late.
        }
        // SAFETY: with SA_SIGINFO the kernel gives a handler a libc::ucontext_t: sigaction(2).
        let registers = registers(unsafe { &*context.cast::<libc::ucontext_t>() });
        for (slot, register) in REGISTERS.iter().zip(registers) {
            slot.store(register, Ordering::Relaxed);
        }
        let (low, high, start) = (own.low.get(), own.high.get(), registers[SP]);
        let is_own = (low..high).contains(&start) && start % WORD == 0;
        let end = if is_own { high - high % WORD } else { start };
        END.store(end, Ordering::Relaxed);
        for (slot, address) in WORDS.iter().zip((start..end).step_by(WORD)) {
            // SAFETY: between the stack pointer of this thread and the end of its stack everything
            // is mapped, and stays so during this call (libc::pthread_getattr_np has returned the
            // end).
            slot.store(unsafe { load(address) }, Ordering::Relaxed);
        }
        STATE.store(thread << PHASE_BITS | DONE, Ordering::Release);
    });
}

/// Reads memory that other threads may write at the same time, and memory that is no variable: any
/// value is acceptable. Hence in assembly, which neither a compiler nor a sanitizer takes for the
/// program's own reads.
///
/// # Safety
///
/// The word at `address` must be readable.
unsafe fn load(address: usize) -> usize {
    let word;
    // SAFETY: the caller promises it.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "mov {}, [{}]",
            out(reg) word,
            in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "ldr {}, [{}]",
            out(reg) word,
            in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

pub(super) type Registers = [usize; REGISTER_COUNT];

/// DWARF's numbers of registers, from the psABI. `RETURN` is the register that holds the return
/// address.
#[cfg(target_arch = "x86_64")]
mod numbers {
    pub(in super::super) const FP: usize = 6;
    pub(in super::super) const SP: usize = 7;
    pub(in super::super) const PC: usize = 16;
    pub(in super::super) const RETURN: usize = PC;
    pub(in super::super) const REGISTER_COUNT: usize = 17;
}

/// Here the program counter has no number; we use the one after the last.
#[cfg(target_arch = "aarch64")]
mod numbers {
    pub(in super::super) const FP: usize = 29;
    pub(in super::super) const SP: usize = 31;
    pub(in super::super) const PC: usize = 32;
    pub(in super::super) const RETURN: usize = 30;
    pub(in super::super) const REGISTER_COUNT: usize = 33;
}

pub(super) use numbers::{FP, PC, REGISTER_COUNT, RETURN, SP};

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    use libc::{
        REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP,
        REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
    };

    let order = [
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9,
        REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
    ];
    order.map(|register| context.uc_mcontext.gregs[register as usize] as usize)
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    let mut registers = [0; REGISTER_COUNT];
    for (to, from) in registers.iter_mut().zip(machine.regs) {
        *to = from as usize;
    }
    registers[SP] = machine.sp as usize;
    registers[PC] = machine.pc as usize;
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the thread that is asked answers and with its own stack.
    #[test]
    fn only_requested_thread_answers() {
        let marker = std::hint::black_box([0x5eed_usize; 1]);
        let thread = note();
        let _question = Question::new();
        catch_signal().unwrap();
        // SAFETY: libc::raise has no preconditions; the handler runs before it returns.
        let raise = || assert_eq!(unsafe { libc::raise(SIGNAL) }, 0);
        for asked in [
            IDLE,
            (thread + 1) << PHASE_BITS | ASKED,
            thread << PHASE_BITS | DONE,
        ] {
            STATE.store(asked, Ordering::Relaxed);
            raise();
            assert_eq!(STATE.load(Ordering::Relaxed), asked);
        }
        STATE.store(thread << PHASE_BITS | ASKED, Ordering::Relaxed);
        raise();
        assert_eq!(STATE.load(Ordering::Relaxed), thread << PHASE_BITS | DONE);
        let stack = read();
        assert_eq!(stack.word(marker.as_ptr() as usize), Some(marker[0]));
        assert_eq!(stack.word(stack.registers[SP] - WORD), None);
        STATE.store(IDLE, Ordering::Relaxed);
    }

    /// A thread is asked only if the signal reaches it.
    #[test]
    fn stack_requested_only_if_signal_reaches_thread() {
        let status = |state: &str, blocked: &str| {
            parse_status(&format!("Name:\tx\nState:\t{state}\nSigBlk:\t{blocked}\n"))
        };
        assert_eq!(status("R (running)", "0000000000000000"), Ok(()));
        assert_eq!(status("S (sleeping)", "ffffffffffbfffff"), Ok(()));
        assert!(status("S (sleeping)", "0000000000400000").is_err());
        assert!(status("D (disk sleep)", "0").is_err());
        assert!(status("t (tracing stop)", "0").is_err());
        assert_eq!(status("Z (zombie)", "0"), Err(HAS_ENDED));
        assert_eq!(parse_status(""), Ok(()));
    }
}

//! The frames in the copy of a stack.
//!
//! **By the unwind tables** that compilers make for panics and exceptions (`.eh_frame`): for each
//! code address they say where the caller's registers are. Every program has them, even an
//! optimised and stripped one, and so does the C library. So no special build is needed. **By frame
//! pointers** where a function has no table (with `panic = "abort"`, compilers before Rust 1.92
//! make none): these exist if the program was built with `-C force-frame-pointers=yes`.
//!
//! Nothing here is trusted. The stack is read only from the copy, within its bounds. A caller
//! counts only if its address is in the code of the program or of a library, and its frame lies
//! further out on the stack than that of its callee. So where a table is wrong, or a register was
//! used for something else, the list ends early and says why.
//!
//! The tables themselves are read where the loader has mapped them, while the loader is prevented
//! from unmapping them: [`with_code`].

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, EvaluationResult,
    NativeEndian, Pointer, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, Value,
};

use super::copy::{FP, PC, RETURN, Registers, SP, Stack, WORD};
use crate::Trace;

/// Deeper stacks come from recursion, where more frames would not help.
const MAX_FRAMES: usize = 256;

/// The expressions of real tables have only a few operations.
const MAX_OPERATIONS: u32 = 1_000;

const TOO_MANY: &str = "there are more frames, which are left out";
const TOO_DEEP: &str = "there are more frames, beyond the part of the stack that was copied";
const UNKNOWN_STACK: &str = "it is on a stack that is not its thread's own";
const NO_WAY: &str = "the callers of this code are not found, since it has no unwind tables; \
    built with RUSTFLAGS=-Cforce-frame-pointers=yes it shows them";

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// The step from a frame to its caller.
enum Step {
    /// The caller's registers. A caller's address is a return address, which lies after the call;
    /// but code that a signal has interrupted resumes at exactly this instruction.
    Caller(Registers, Interrupted),
    /// There is no caller.
    Outermost,
}

#[derive(Clone, Copy, PartialEq)]
struct Interrupted(bool);

/// Returns the frames, from the innermost outwards.
pub(super) fn unwind(stack: &Stack) -> Trace {
    let mut registers = stack.registers;
    let mut interrupted = Interrupted(true);
    let mut context = UnwindContext::new();
    // On aarch64 the frame pointer does not yield the stack pointer, which the tables need.
    let mut has_stack_pointer = true;
    let mut addresses = Vec::new();
    let problem = loop {
        let pc = registers[PC];
        let address = if interrupted.0 {
            pc
        } else {
            pc.wrapping_sub(1)
        };
        addresses.push(address);
        if stack.is_unknown() {
            break Some(UNKNOWN_STACK);
        }
        if addresses.len() == MAX_FRAMES {
            break Some(TOO_MANY);
        }
        let by_table = (has_stack_pointer.then(|| {
            with_code(address, |code| {
                by_table(&registers, address, interrupted, code, stack, &mut context)
            })
        }))
        .flatten()
        .flatten()
        .filter(|step| is_further_out(step, &registers));
        let step = by_table.or_else(|| {
            has_stack_pointer &= cfg!(target_arch = "x86_64");
            by_frame_pointer(&registers, stack)
        });
        match step {
            Some(Step::Caller(caller, interrupts)) => {
                (registers, interrupted) = (caller, interrupts);
            }
            Some(Step::Outermost) => break None,
            None if stack.is_cut => break Some(TOO_DEEP),
            None => break Some(NO_WAY),
        }
    };
    Trace { addresses, problem }
}

/// Whether a step leads to code, and away from the frame where it begins. A function that has
/// nothing on the stack has the same stack pointer as its caller, but is not its own caller.
fn is_further_out(step: &Step, from: &Registers) -> bool {
    let Step::Caller(to, interrupted) = step else {
        return true;
    };
    let address = to[PC].wrapping_sub(usize::from(!interrupted.0));
    to[SP] >= from[SP] && (to[SP], to[PC]) != (from[SP], from[PC]) && has_code(address)
}

/// Steps by the row of the table for this address. Returns `None` if there is no usable row.
fn by_table(
    registers: &Registers,
    address: usize,
    interrupted: Interrupted,
    code: &Code<'_>,
    stack: &Stack,
    context: &mut UnwindContext<usize>,
) -> Option<Step> {
    let (header_at, header) = code.unwind_header()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_at as u64);
    let header = EhFrameHdr::new(header, NativeEndian).parse(&bases, WORD as u8);
    let header = header.ok()?;
    let Pointer::Direct(table_at) = header.eh_frame_ptr() else {
        return None;
    };
    let bases = bases.set_eh_frame(table_at);
    let mut table = EhFrame::new(code.bytes_from(table_at as usize)?, NativeEndian);
    if cfg!(target_arch = "aarch64") {
        table.set_vendor(gimli::Vendor::AArch64);
    }
    let entry = (header.table()?)
        .fde_for_address(&table, &bases, address as u64, EhFrame::cie_from_offset)
        .ok()?;
    let row = entry
        .unwind_info_for_address(&table, &bases, context, address as u64)
        .ok()?;

    let machine = Machine {
        encoding: entry.cie().encoding(),
        registers,
        stack,
        table,
    };
    let mut caller = machine.caller(row)?;
    // The outermost function's row says that there is no return address. (A leaf on aarch64 still
    // has its return address in the register, and its row says nothing either.)
    let return_register = entry.cie().return_address_register();
    let is_told = row.registers().any(|(register, rule)| {
        *register == return_register && !matches!(rule, RegisterRule::Undefined)
    });
    let may_be_leaf = interrupted.0 && RETURN != PC;
    caller[PC] = plain(*caller.get(usize::from(return_register.0))?);
    if caller[PC] == 0 || !(is_told || may_be_leaf) {
        return Some(Step::Outermost);
    }
    let interrupts = Interrupted(entry.is_signal_trampoline());
    Some(Step::Caller(caller, interrupts))
}

/// Steps by the frame pointer: it points to the caller's frame pointer, and the return address is
/// stored next to that.
fn by_frame_pointer(registers: &Registers, stack: &Stack) -> Option<Step> {
    let frame = registers[FP];
    if frame < registers[SP] {
        return None;
    }
    let mut caller = *registers;
    caller[FP] = stack.word(frame)?;
    caller[PC] = plain(stack.word(frame.wrapping_add(WORD))?);
    caller[SP] = frame.wrapping_add(2 * WORD);
    // The next frame is further out, or is the last.
    if caller[FP] != 0 && caller[FP] <= frame {
        return None;
    }
    let step = Step::Caller(caller, Interrupted(false));
    is_further_out(&step, registers).then_some(step)
}

/// Strips the signature that some processors put into the upper bits of a code address.
fn plain(address: usize) -> usize {
    if cfg!(target_arch = "aarch64") {
        address & ((1 << 48) - 1)
    } else {
        address
    }
}

/// The state that the tables' rules are evaluated with.
struct Machine<'a> {
    encoding: Encoding,
    registers: &'a Registers,
    stack: &'a Stack,
    table: EhFrame<Bytes<'a>>,
}

impl Machine<'_> {
    /// Returns the caller's registers by a row of the table, except its program counter.
    fn caller(&self, row: &UnwindTableRow<usize>) -> Option<Registers> {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => self.sum(*register, *offset)?,
            CfaRule::Expression(expression) => self.evaluate(expression, None)?,
        };
        let mut caller = *self.registers;
        caller[SP] = cfa;
        for (register, rule) in row.registers() {
            let Some(value) = caller.get_mut(usize::from(register.0)) else {
                continue; // A register that holds no address.
            };
            *value = match rule {
                RegisterRule::Undefined | RegisterRule::SameValue => continue,
                RegisterRule::Offset(offset) => {
                    self.stack.word(cfa.wrapping_add(*offset as usize))?
                }
                RegisterRule::ValOffset(offset) => cfa.wrapping_add(*offset as usize),
                RegisterRule::Register(other) => self.sum(*other, 0)?,
                RegisterRule::Expression(it) => self.stack.word(self.evaluate(it, Some(cfa))?)?,
                RegisterRule::ValExpression(it) => self.evaluate(it, Some(cfa))?,
                _ => return None,
            };
        }
        Some(caller)
    }

    fn sum(&self, register: Register, offset: i64) -> Option<usize> {
        let value = self.registers.get(usize::from(register.0))?;
        Some(value.wrapping_add(offset as usize))
    }

    /// Evaluates the expressions that real tables have: those of the signal trampoline and of the
    /// procedure linkage table.
    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        initial: Option<usize>,
    ) -> Option<usize> {
        let expression = expression.get(&self.table).ok()?;
        let mut evaluation = expression.evaluation(self.encoding);
        evaluation.set_max_iterations(MAX_OPERATIONS);
        if let Some(value) = initial {
            evaluation.set_initial_value(value as u64);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = Value::Generic(self.sum(register, 0)? as u64);
                    evaluation.resume_with_register(value).ok()?
                }
                EvaluationResult::RequiresMemory { address, size, .. }
                    if usize::from(size) == WORD =>
                {
                    let value = Value::Generic(self.stack.word(address as usize)? as u64);
                    evaluation.resume_with_memory(value).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.result().first()?.location {
            gimli::Location::Address { address } => Some(address as usize),
            _ => None,
        }
    }
}

/// The program, or a library, while it stays mapped.
struct Code<'a> {
    /// The loader's name for it: see [`object`].
    name: &'a CStr,
    base: usize,
    parts: &'a [libc::Elf64_Phdr],
}

impl<'a> Code<'a> {
    fn start_of(&self, part: &libc::Elf64_Phdr) -> usize {
        self.base.wrapping_add(part.p_vaddr as usize)
    }

    /// Whether this address is executable code.
    fn is_code(&self, address: usize) -> bool {
        (self.parts.iter()).any(|part| part.p_flags & libc::PF_X != 0 && self.has(part, address))
    }

    fn has(&self, part: &libc::Elf64_Phdr, address: usize) -> bool {
        let offset = address.wrapping_sub(self.start_of(part));
        part.p_type == libc::PT_LOAD && offset < part.p_filesz as usize
    }

    /// Returns the header that leads to the unwind tables, and its address.
    fn unwind_header(&self) -> Option<(usize, &'a [u8])> {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| part.p_type == libc::PT_GNU_EH_FRAME)?;
        let start = self.start_of(part);
        let bytes = self.bytes_from(start)?;
        Some((start, bytes.get(..part.p_memsz as usize)?))
    }

    /// Returns the loaded bytes from this address to the end of its segment.
    fn bytes_from(&self, address: usize) -> Option<&'a [u8]> {
        let mut parts = self.parts.iter();
        let part = parts.find(|part| part.p_flags & libc::PF_R != 0 && self.has(part, address))?;
        let rest = part.p_filesz as usize - address.wrapping_sub(self.start_of(part));
        // SAFETY: libc::dl_iterate_phdr says that this part was loaded there, readable and of this
        // length; the loader's lock keeps it there while this is lent. It is not written to: the
        // linker puts tables into parts that are only read, or that are written only until the
        // program starts.
        Some(unsafe { std::slice::from_raw_parts(address as *const u8, rest) })
    }
}

/// Returns the file of the program or library that has an address in its code, and the offset in
/// it: for tools that read such files.
pub(crate) fn object(address: usize) -> Option<(PathBuf, usize)> {
    let (name, offset) = with_code(address, |code| {
        (code.name.to_owned(), address.wrapping_sub(code.base))
    })?;
    let path = match name.to_bytes() {
        // The program itself, as glibc and musl name it.
        [] | b"/proc/self/exe" => std::env::current_exe().ok()?,
        name => OsStr::from_bytes(name).into(),
    };
    Some((path, offset))
}

fn has_code(address: usize) -> bool {
    with_code(address, |_| ()).is_some()
}

/// Calls `look` with the program or library that has this address in its code, if there is one.
///
/// The loader's lock is held meanwhile, so that nothing is unmapped. `look` must not panic.
fn with_code<T>(address: usize, look: impl FnOnce(&Code<'_>) -> T) -> Option<T> {
    struct Search<F, T> {
        address: usize,
        look: Option<F>,
        found: Option<T>,
    }

    extern "C" fn visit<F: FnOnce(&Code<'_>) -> T, T>(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: libc::dl_iterate_phdr passes the pointer that it was given, and one description,
        // each valid for the duration of this call.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<F, T>>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        let code = Code {
            name: if info.dlpi_name.is_null() {
                c""
            } else {
                // SAFETY: the name in a libc::dl_phdr_info is a string, if it is not null.
                unsafe { CStr::from_ptr(info.dlpi_name) }
            },
            base: info.dlpi_addr as usize,
            // SAFETY: libc::dl_phdr_info has the address and the number of the headers.
            parts: unsafe {
                std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum))
            },
        };
        if !code.is_code(search.address) {
            return 0;
        }
        if let Some(look) = search.look.take() {
            search.found = Some(look(&code));
        }
        1
    }

    fn visitor<F: FnOnce(&Code<'_>) -> T, T>(
        _: &Search<F, T>,
    ) -> unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int {
        visit::<F, T>
    }

    let mut search = Search {
        address,
        look: Some(look),
        found: None,
    };
    let visit = visitor(&search);
    // SAFETY: libc::dl_iterate_phdr calls the function with the pointer, before it returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::super::copy::REGISTER_COUNT;
    use super::*;

    const START: usize = 0x7000_0000;

    /// The registers from which a frame pointer is followed.
    fn registers(frame: usize) -> Registers {
        let mut registers = [0; REGISTER_COUNT];
        registers[SP] = START;
        registers[FP] = frame;
        registers
    }

    fn step(registers: Registers, words: &[usize]) -> Option<(usize, usize)> {
        match by_frame_pointer(&registers, &Stack::new(registers, words.to_vec()))? {
            Step::Caller(caller, _) => Some((caller[FP], caller[PC])),
            Step::Outermost => None,
        }
    }

    /// A frame pointer is followed outwards to code and nowhere else.
    #[test]
    fn frame_pointer_followed_to_code_only() {
        // Within this function: its first byte would not be a return address.
        let code = step as *const () as usize + 1;
        let at = |words: usize| START + words * WORD;
        let words = [0, at(4), code, 0, 0, code, 1, 2];
        assert_eq!(step(registers(at(1)), &words), Some((at(4), code)));
        // The last frame.
        assert_eq!(step(registers(at(4)), &words), Some((0, code)));
        let nowhere = [
            at(0) - WORD, // before the stack pointer
            at(1) + 1,    // between two words
            at(7),        // half beyond the end
            at(8),        // beyond the end
            usize::MAX,   // would wrap around
            usize::MAX - 7,
            at(6), // leads backwards
            at(2), // no code address next to it
            0,
        ];
        for frame in nowhere {
            assert_eq!(step(registers(frame), &words), None, "{frame:#x}");
        }
    }

    /// An expression is evaluated with the registers and the copy of the stack.
    #[test]
    fn expression_evaluated_with_registers_and_stack() {
        let registers = registers(0);
        let stack = Stack::new(registers, vec![1, START + 64, 3]);
        let evaluate = |operations: &[u8], initial| {
            let machine = Machine {
                encoding: Encoding {
                    address_size: WORD as u8,
                    format: gimli::Format::Dwarf32,
                    version: 1,
                },
                registers: &registers,
                stack: &stack,
                table: EhFrame::new(operations, NativeEndian),
            };
            let length = operations.len();
            machine.evaluate(&UnwindExpression { offset: 0, length }, initial)
        };
        let of_stack = gimli::DW_OP_breg0.0 + SP as u8;
        let (load, add) = (gimli::DW_OP_deref.0, gimli::DW_OP_plus_uconst.0);
        assert_eq!(evaluate(&[of_stack, 8], None), Some(START + 8));
        assert_eq!(evaluate(&[of_stack, 8, load], None), Some(START + 64));
        assert_eq!(evaluate(&[add, 16], Some(START)), Some(START + 16));
        // Words beyond the copy are not read, and a loop ends.
        assert_eq!(evaluate(&[of_stack, 24, load], None), None);
        let [low, high] = (-3_i16).to_ne_bytes();
        assert_eq!(evaluate(&[gimli::DW_OP_skip.0, low, high], None), None);
    }

    #[test]
    fn what_does_not_lead_on_ends_the_list_with_words() {
        let code = step as *const () as usize + 1;
        let mut registers = registers(0);
        registers[RETURN] = 7;
        registers[PC] = code;
        // Its table expects a return address on this stack, which has none.
        let stack = Stack::new(registers, vec![7; 64]);
        let trace = unwind(&stack);
        assert_eq!((trace.addresses, trace.problem), (vec![code], Some(NO_WAY)));
        let trace = unwind(&Stack::new(registers, Vec::new()));
        assert_eq!(
            (trace.addresses, trace.problem),
            (vec![code], Some(UNKNOWN_STACK))
        );
        // This address contains no code either.
        registers[PC] = 8;
        let trace = unwind(&Stack::new(registers, vec![7; 64]));
        assert_eq!((trace.addresses, trace.problem), (vec![8], Some(NO_WAY)));
        assert!(object(8).is_none());
        let (path, offset) = object(code).unwrap();
        assert_eq!(path, std::env::current_exe().unwrap());
        assert!(offset <= code); // Equal in a program with a fixed load address.
    }
}

/* The pass-through: one exported trampoline for every entry point of the driver.
 *
 * `name: jmp *slot(%rip)` costs one indirect jump, and a look whether the process's memory is
 * parked. A slot starts at a stub that resolves it once (heddle_resolve in driver.cc) with every
 * argument register kept, then holds the driver's own address. While memory is parked each call
 * goes by that stub, which waits. The trampolines are weak: a wrapper defined in C++ under the same
 * name takes its place, and driver.cc tells the two apart by comparing heddle_exports with
 * heddle_trampolines.
 */
        .text
        .hidden heddle_word_page
#define HEDDLE_AWAY 40 /* residence.h */

#define HEDDLE_ENTRY(name) \
        .weak name; \
        .type name, @function; \
        .balign 16; \
name: \
heddle_trampoline_##name: \
        cmpl $0, heddle_word_page + HEDDLE_AWAY(%rip); \
        jne heddle_first_##name; \
        jmp *heddle_slot_##name(%rip); \
        .size name, . - name; \
heddle_first_##name: \
        lea heddle_slot_##name(%rip), %r11; \
        jmp heddle_first_call;
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY

/* The first call through a slot, and each while memory is parked; %r11 is the slot's address, the
 * rest is as the caller left it. */
        .balign 16
        .type heddle_first_call, @function
heddle_first_call:
        .cfi_startproc
        push %rdi
        .cfi_adjust_cfa_offset 8
        push %rsi
        .cfi_adjust_cfa_offset 8
        push %rdx
        .cfi_adjust_cfa_offset 8
        push %rcx
        .cfi_adjust_cfa_offset 8
        push %r8
        .cfi_adjust_cfa_offset 8
        push %r9
        .cfi_adjust_cfa_offset 8
        push %rax
        .cfi_adjust_cfa_offset 8
        sub $128, %rsp
        .cfi_adjust_cfa_offset 128
        movups %xmm0, (%rsp)
        movups %xmm1, 16(%rsp)
        movups %xmm2, 32(%rsp)
        movups %xmm3, 48(%rsp)
        movups %xmm4, 64(%rsp)
        movups %xmm5, 80(%rsp)
        movups %xmm6, 96(%rsp)
        movups %xmm7, 112(%rsp)
        mov %r11, %rdi
        call heddle_resolve
        mov %rax, %r11
        movups (%rsp), %xmm0
        movups 16(%rsp), %xmm1
        movups 32(%rsp), %xmm2
        movups 48(%rsp), %xmm3
        movups 64(%rsp), %xmm4
        movups 80(%rsp), %xmm5
        movups 96(%rsp), %xmm6
        movups 112(%rsp), %xmm7
        add $128, %rsp
        .cfi_adjust_cfa_offset -128
        pop %rax
        .cfi_adjust_cfa_offset -8
        pop %r9
        .cfi_adjust_cfa_offset -8
        pop %r8
        .cfi_adjust_cfa_offset -8
        pop %rcx
        .cfi_adjust_cfa_offset -8
        pop %rdx
        .cfi_adjust_cfa_offset -8
        pop %rsi
        .cfi_adjust_cfa_offset -8
        pop %rdi
        .cfi_adjust_cfa_offset -8
        jmp *%r11
        .cfi_endproc
        .size heddle_first_call, . - heddle_first_call

/* What each entry point calls, in the order of entry_points.inc. */
        .data
        .balign 64
        .globl heddle_slots
        .hidden heddle_slots
heddle_slots:
#define HEDDLE_ENTRY(name) heddle_slot_##name: .quad heddle_first_##name;
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY

/* What this object exports under each name, and the trampoline that would stand there. */
        .section .data.rel.ro, "aw", @progbits
        .balign 8
        .globl heddle_exports
        .hidden heddle_exports
heddle_exports:
#define HEDDLE_ENTRY(name) .quad name;
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY
        .globl heddle_trampolines
        .hidden heddle_trampolines
heddle_trampolines:
#define HEDDLE_ENTRY(name) .quad heddle_trampoline_##name;
#include "shim/driver/entry_points.inc"
#undef HEDDLE_ENTRY

        .section .note.GNU-stack, "", @progbits

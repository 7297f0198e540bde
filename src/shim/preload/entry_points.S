/* SPDX-License-Identifier: Apache-2.0 */
/* Every entry point of the library (the driver, or NVML) as one jump through a slot. A call that is not hooked costs only that
 * jump, whatever its parameters are. A slot leads to the resolver until the first call.
 *
 * The build generates preload_entries.inc from symbols.def or nvml.def: PRELOAD_ENTRY(index, name) for each entry point. */
#include "preload_sizes.inc"

#if !defined(__x86_64__)
#error "The preloaded object is written for x86-64."
#endif

        .section .note.GNU-stack,"",@progbits

        .macro PRELOAD_ENTRY_POINT index, name
        .text
        .p2align 4
        .globl \name
        .type \name, @function
\name:
        .cfi_startproc
        endbr64
        jmp *gpushare_preload_slots+8*\index(%rip)
        .cfi_endproc
        .size \name, .-\name
.Lfirst_call_\index:
        .cfi_startproc
        endbr64
        pushq $\index
        .cfi_adjust_cfa_offset 8
        jmp gpushare_preload_first_call
        .cfi_endproc
        .data
        .quad .Lfirst_call_\index
        .endm

/* In: the entry point's index on the stack, above it the caller's return address. Jumps to the function that
 * gpushare_preload_resolve() returns, with all registers that can hold parameters restored. */
        .text
        .p2align 4
        .type gpushare_preload_first_call, @function
gpushare_preload_first_call:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        pushq %rax
        pushq %rdi
        pushq %rsi
        pushq %rdx
        pushq %rcx
        pushq %r8
        pushq %r9
        subq $136, %rsp
        .cfi_def_cfa_offset 208
        movups %xmm0, 0(%rsp)
        movups %xmm1, 16(%rsp)
        movups %xmm2, 32(%rsp)
        movups %xmm3, 48(%rsp)
        movups %xmm4, 64(%rsp)
        movups %xmm5, 80(%rsp)
        movups %xmm6, 96(%rsp)
        movups %xmm7, 112(%rsp)
        movq 192(%rsp), %rdi
        call gpushare_preload_resolve
        movq %rax, %r11
        movups 0(%rsp), %xmm0
        movups 16(%rsp), %xmm1
        movups 32(%rsp), %xmm2
        movups 48(%rsp), %xmm3
        movups 64(%rsp), %xmm4
        movups 80(%rsp), %xmm5
        movups 96(%rsp), %xmm6
        movups 112(%rsp), %xmm7
        addq $136, %rsp
        popq %r9
        popq %r8
        popq %rcx
        popq %rdx
        popq %rsi
        popq %rdi
        popq %rax
        addq $8, %rsp
        .cfi_def_cfa_offset 8
        jmp *%r11
        .cfi_endproc
        .size gpushare_preload_first_call, .-gpushare_preload_first_call

        .data
        .p2align 6
        .globl gpushare_preload_slots
        .hidden gpushare_preload_slots
        .type gpushare_preload_slots, @object
gpushare_preload_slots:
#define PRELOAD_ENTRY(index, name) PRELOAD_ENTRY_POINT index, name
#include "preload_entries.inc"
        .data
        .size gpushare_preload_slots, 8*PRELOAD_ENTRY_COUNT

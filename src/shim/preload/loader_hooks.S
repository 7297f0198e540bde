/* SPDX-License-Identifier: Apache-2.0 */
/* dlopen and dlmopen, in front of the C library's. They end in a jump to those, so that the caller's run path and $ORIGIN
 * still count: the C library finds the caller by the return address. */
        .section .note.GNU-stack,"",@progbits

        .text
        .p2align 4
        .globl dlopen
        .type dlopen, @function
dlopen:
        .cfi_startproc
        endbr64
        pushq %rdi
        pushq %rsi
        subq $8, %rsp
        .cfi_def_cfa_offset 32
        call gpushare_preload_redirect
        addq $8, %rsp
        popq %rsi
        popq %rdi
        .cfi_def_cfa_offset 8
        testq %rax, %rax
        cmovneq %rax, %rdi
        jmp *gpushare_preload_next_dlopen(%rip)
        .cfi_endproc
        .size dlopen, .-dlopen

        .p2align 4
        .globl dlmopen
        .type dlmopen, @function
dlmopen:
        .cfi_startproc
        endbr64
        pushq %rdi
        pushq %rsi
        pushq %rdx
        .cfi_def_cfa_offset 32
        movq %rsi, %rdi
        call gpushare_preload_redirect
        popq %rdx
        popq %rsi
        popq %rdi
        .cfi_def_cfa_offset 8
        testq %rax, %rax
        je .Lother_file
        /* All namespaces share one engine and one of each preloaded object, in the base namespace (LM_ID_BASE, 0). */
        movq %rax, %rsi
        xorl %edi, %edi
.Lother_file:
        jmp *gpushare_preload_next_dlmopen(%rip)
        .cfi_endproc
        .size dlmopen, .-dlmopen

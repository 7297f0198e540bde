/* SPDX-License-Identifier: Apache-2.0 */
/* cuLaunchKernel as nearly every launch goes: Calls::LaunchKernelAgain(), which this does step by step, in the registers
 * that the parameters leave free.
 *
 * The driver's launch begins with a lock, which waits until each store before it has reached the cache. A compiler keeps
 * eleven parameters on the stack, and the registers that it needs in their place beside them: twice as many stores as the
 * launch has of its own, and more time than all else that is done here. So what is on the stack stays there, and
 * two of the parameters' registers are put aside in two that hold no parameter.
 *
 * In:      rdi rsi rdx rcx r8 r9, 8(%rsp) block z, 16 shared bytes, 24 stream, 32 parameters, 40 extra
 * Free:    rax r10 r11, and from .Lpay on rdi and rsi
 * What is not so simple goes on to the C++ function, with everything as it came. */
#include "work/launch_layout.h"

        .section .note.GNU-stack,"",@progbits

        .hidden gpushare_work_mark
        .hidden gpushare_driver_kept_context
        .hidden gpushare_driver_context_turn
        .hidden gpushare_shim_launch
        .hidden gpushare_shim_launch_claim
        .hidden gpushare_shim_launch_refused

        .macro LAUNCH_KERNEL name, uncommon, per_thread
        .text
        .p2align 6
        .globl \name
        .hidden \name
        .hidden \uncommon
        .type \name, @function
\name:
.Lbegin_\name:
        .cfi_startproc
        .cfi_personality 0x9b, DW.ref.__gxx_personality_v0
        .cfi_lsda 0x1b, .Llsda_\name
        endbr64
        movq gpushare_work_mark@gottpoff(%rip), %rax
        movq 24(%rsp), %r10
        movq %fs:(%rax), %r11
        .if \per_thread
        testq %r10, %r10
        je .Lnull_\name
.Lnamed_\name:
        .endif
        cmpb $0, GPUSHARE_MARK_INSIDE(%r11)
        jne \uncommon
        /* Recent::FindIf() */
        movabsq $0x9e3779b97f4a7c15, %rax
        imulq %r10, %rax
        shrq $60, %rax
        shlq $GPUSHARE_KNOWN_SHIFT, %rax
        leaq GPUSHARE_MARK_KNOWN(%r11,%rax), %rax
        cmpq GPUSHARE_KNOWN_HANDLE(%rax), %r10
        jne .Lsecond_\name
.Lfound_\name:
        movq gpushare_shim_launch(%rip), %r10
        movq (%r10), %r10
        cmpq %r10, GPUSHARE_KNOWN_EPOCH(%rax)
        jne \uncommon
        cmpq $2, GPUSHARE_KNOWN_HANDLE(%rax)    /* a default stream is one of the current context */
        jbe .Ldefault_\name
.Lcurrent_\name:
        movb $1, GPUSHARE_MARK_INSIDE(%r11)
        movq %rax, %r10         /* what is known of the stream */
        movq GPUSHARE_KNOWN_LAST(%r10), %r11
        movq GPUSHARE_KNOWN_KEYS(%r10), %rax
        movq GPUSHARE_HABIT_NEXT(%r11), %r11    /* what is launched if it does as it did */
        movq (%rax), %rax
.Lis_\name:
        /* Habit::Is() */
        cmpq %rax, GPUSHARE_HABIT_CONTEXT(%r11)
        jne .Lno_\name
        cmpq %rdi, GPUSHARE_HABIT_FUNCTION(%r11)
        jne .Lno_\name
        cmpl %esi, GPUSHARE_HABIT_GRID(%r11)
        jne .Lno_\name
        cmpl %edx, GPUSHARE_HABIT_GRID+4(%r11)
        jne .Lno_\name
        cmpl %ecx, GPUSHARE_HABIT_GRID+8(%r11)
        jne .Lno_\name
        cmpl %r8d, GPUSHARE_HABIT_BLOCK(%r11)
        jne .Lno_\name
        cmpl %r9d, GPUSHARE_HABIT_BLOCK+4(%r11)
        jne .Lno_\name
        movl 8(%rsp), %eax
        cmpl %eax, GPUSHARE_HABIT_BLOCK+8(%r11)
        jne .Lno_\name
        movl 16(%rsp), %eax
        cmpl %eax, GPUSHARE_HABIT_SHARED(%r11)
        jne .Lno_\name
        movq %rdi, %xmm0
        movq %rsi, %xmm1
        /* Place::Cost() */
        movq GPUSHARE_HABIT_ENTRY(%r11), %rax
        movq GPUSHARE_HABIT_ID(%r11), %rdi
        cmpq %rdi, GPUSHARE_ENTRY_ID(%rax)
        jne .Lnot_paid_\name
        movl GPUSHARE_ENTRY_SETTLED(%rax), %esi
        testl %esi, %esi
        je .Lnot_paid_\name
        /* TenantPage::ChargeOf() */
        movq GPUSHARE_KNOWN_PAGE(%r10), %rdi
        imulq GPUSHARE_PAGE_UNITS(%rdi), %rsi
        addq $GPUSHARE_LAUNCH_MASK, %rsi
        andq $~GPUSHARE_LAUNCH_MASK, %rsi
        /* Pocket::Spend(). The limit is read again behind the store, in this order: pocket.h says what that is for. It is
         * compared with one more, so that of what is paid for a little goes by Claim(), which says so. */
        movq GPUSHARE_KNOWN_POCKET(%r10), %rax
        movq GPUSHARE_POCKET_SPENT(%rax), %rdi
        addq %rdi, %rsi
        cmpq %rsi, GPUSHARE_POCKET_LIMIT(%rax)
        jb .Lnot_paid_\name
        incq %rsi
        movq %rsi, GPUSHARE_POCKET_SPENT(%rax)
        cmpq %rsi, GPUSHARE_POCKET_LIMIT(%rax)
        jb .Lclaim_\name
.Lpaid_\name:
        /* Lane::TakeAgain(); rdi: the word in which the launch's number is. */
        movq GPUSHARE_HABIT_RECORD(%r11), %rsi
        orq GPUSHARE_KNOWN_RECORD(%r10), %rsi
        movl %edi, %eax
        shlq $GPUSHARE_RECORD_LAUNCH, %rdi
        orq %rdi, %rsi
        movl %eax, %edi
        andl $GPUSHARE_RING_MASK, %edi
        movq GPUSHARE_KNOWN_RING(%r10), %rax
        movq %rsi, (%rax,%rdi,8)
        shrq $GPUSHARE_RECORD_LAUNCH, %rsi
        movq GPUSHARE_HABIT_AFTER(%r11), %rdi
        movq GPUSHARE_KNOWN_KEYS(%r10), %rax
        movq %rdi, (%rax)
        movq %r11, GPUSHARE_KNOWN_LAST(%r10)
        /* What .Lrefused needs, and the driver's call may leave something else of there. */
        pushq GPUSHARE_KNOWN_STREAM(%r10)
        .cfi_adjust_cfa_offset 8
        pushq %rsi              /* the launch */
        .cfi_adjust_cfa_offset 8
        movq %xmm0, %rdi
        movq %xmm1, %rsi
        .rept 5                 /* each is where the one above it was */
        pushq 56(%rsp)
        .cfi_adjust_cfa_offset 8
        .endr
.Lcall_\name:
        call *gpushare_shim_launch+8(%rip)
.Lcalled_\name:
        movq gpushare_work_mark@gottpoff(%rip), %rdx
        movq %fs:(%rdx), %rdx
        movb $0, GPUSHARE_MARK_INSIDE(%rdx)
        testl %eax, %eax
        jne .Lrefused_\name
        addq $56, %rsp
        .cfi_remember_state
        .cfi_adjust_cfa_offset -56
        ret

        .cfi_restore_state
.Lrefused_\name:
        movq 48(%rsp), %rdi     /* the stream */
        movl 40(%rsp), %esi     /* the launch */
        movl %eax, %edx
        call gpushare_shim_launch_refused
        addq $56, %rsp
        .cfi_remember_state
        .cfi_adjust_cfa_offset -56
        ret

        /* The program's thread is cancelled in the driver: on through here, with the mark as it was. */
        .cfi_restore_state
.Lunwound_\name:
        movq gpushare_work_mark@gottpoff(%rip), %rdx
        movq %fs:(%rdx), %rdx
        movb $0, GPUSHARE_MARK_INSIDE(%rdx)
        movq %rax, %rdi
        call _Unwind_Resume@PLT
        .cfi_adjust_cfa_offset -56

        /* Something was taken out meanwhile: Pocket::Claim(), with all put aside. */
.Lclaim_\name:
        pushq %rdi
        pushq %rdx
        pushq %rcx
        pushq %r8
        pushq %r9
        pushq %r10
        pushq %r11
        subq $32, %rsp
        .cfi_adjust_cfa_offset 88
        movups %xmm0, (%rsp)
        movups %xmm1, 16(%rsp)
        movq %rdi, %rsi
        movq %rax, %rdi
        call gpushare_shim_launch_claim
        movups (%rsp), %xmm0
        movups 16(%rsp), %xmm1
        addq $32, %rsp
        popq %r11
        popq %r10
        popq %r9
        popq %r8
        popq %rcx
        popq %rdx
        popq %rdi
        .cfi_adjust_cfa_offset -88
        testb %al, %al
        jne .Lpaid_\name
.Lnot_paid_\name:
        movq %xmm0, %rdi
        movq %xmm1, %rsi
.Lleave_\name:
        movq gpushare_work_mark@gottpoff(%rip), %rax
        movq %fs:(%rax), %r11
        movb $0, GPUSHARE_MARK_INSIDE(%r11)
        jmp \uncommon

        /* Not what came next the last time: what came before that? */
.Lno_\name:
        movq GPUSHARE_KNOWN_LAST(%r10), %rax
        cmpq %r11, GPUSHARE_HABIT_OTHER(%rax)
        je .Lleave_\name
        movq GPUSHARE_HABIT_OTHER(%rax), %r11
        movq GPUSHARE_KNOWN_KEYS(%r10), %rax
        movq (%rax), %rax
        jmp .Lis_\name

        /* The other of the two places, which is the neighbour. */
.Lsecond_\name:
        subq %r11, %rax
        subq $GPUSHARE_MARK_KNOWN, %rax
        xorq $(1 << GPUSHARE_KNOWN_SHIFT), %rax
        leaq GPUSHARE_MARK_KNOWN(%r11,%rax), %rax
        cmpq GPUSHARE_KNOWN_HANDLE(%rax), %r10
        je .Lfound_\name
        jmp \uncommon

        /* CurrentContext::Kept() */
.Ldefault_\name:
        movq gpushare_driver_kept_context@gottpoff(%rip), %r10
        movq gpushare_driver_context_turn(%rip), %r11
        cmpq %r11, %fs:GPUSHARE_KEPT_TURN(%r10)
        jne \uncommon
        movq %fs:GPUSHARE_KEPT_CONTEXT(%r10), %r10
        cmpq %r10, GPUSHARE_KNOWN_CONTEXT(%rax)
        jne \uncommon
        movq gpushare_work_mark@gottpoff(%rip), %r11
        movq %fs:(%r11), %r11
        jmp .Lcurrent_\name

        .if \per_thread
        /* CU_STREAM_PER_THREAD: where the parameters lie is the callee's to write. */
.Lnull_\name:
        movl $2, %r10d
        movq %r10, 24(%rsp)
        jmp .Lnamed_\name
        .endif

.Lend_\name:
        .cfi_endproc
        .size \name, .-\name

        .section .gcc_except_table,"a",@progbits
        .p2align 2
.Llsda_\name:
        .byte 0xff              /* landing pads are counted from the function's begin */
        .byte 0xff              /* no types: nothing is caught */
        .byte 0x01              /* uleb128 */
        .uleb128 .Lsites_end_\name-.Lsites_\name
.Lsites_\name:
        .uleb128 0
        .uleb128 .Lcall_\name-.Lbegin_\name
        .uleb128 0              /* on through it */
        .uleb128 0
        .uleb128 .Lcall_\name-.Lbegin_\name
        .uleb128 .Lcalled_\name-.Lcall_\name
        .uleb128 .Lunwound_\name-.Lbegin_\name
        .uleb128 0              /* cleanup */
        .uleb128 .Lcalled_\name-.Lbegin_\name
        .uleb128 .Lend_\name-.Lcalled_\name
        .uleb128 0
        .uleb128 0
.Lsites_end_\name:
        .endm

        LAUNCH_KERNEL gpushare_shim_launch_kernel, gpushare_shim_launch_kernel_uncommon, 0
        LAUNCH_KERNEL gpushare_shim_launch_kernel_ptsz, gpushare_shim_launch_kernel_ptsz_uncommon, 1

        .hidden DW.ref.__gxx_personality_v0
        .weak DW.ref.__gxx_personality_v0
        .section .data.rel.local.DW.ref.__gxx_personality_v0,"awG",@progbits,DW.ref.__gxx_personality_v0,comdat
        .p2align 3
        .type DW.ref.__gxx_personality_v0, @object
        .size DW.ref.__gxx_personality_v0, 8
DW.ref.__gxx_personality_v0:
        .quad __gxx_personality_v0

/* SPDX-License-Identifier: Apache-2.0 */
/* cuLaunchKernel as nearly every launch takes it: the steps of Calls::LaunchKernelAgain(), in the registers that the
 * parameters leave free.
 *
 * The driver's launch begins with a lock, which waits until all earlier stores have reached the cache. A compiler would save
 * the eleven parameters on the stack, and also the registers that it uses instead. That is twice as many stores as the launch
 * itself needs, and takes more time than everything else here. So parameters on the stack stay there, and a parameter whose
 * register was reused is read again from the habit, which was found to have the same value.
 *
 * In:      rdi rsi rdx rcx r8 r9, 8(%rsp) block z, 16 shared bytes, 24 stream, 32 parameters, 40 extra
 * Free:    rax (the entry of the stream), r11 (the habit), r10, and from Habit::Price() on rdi and rsi
 * All other launches go to the C++ function, with all parameters unchanged. */
#include "work/launch_layout.h"

        .section .note.GNU-stack,"",@progbits

        .hidden gpushare_work_mark
        .hidden gpushare_driver_kept_context
        .hidden gpushare_driver_context_turn
        .hidden gpushare_shim_launch
        .hidden gpushare_shim_launch_claim
        .hidden gpushare_shim_launch_refused

        /* rax = the second place of the stream r10, which is an odd one, in the table of the mark r11. */
        .macro SECOND_PLACE
        imull $GPUSHARE_PLACE_HASH, %r10d, %eax
        shrl $(GPUSHARE_SECOND_PLACE - GPUSHARE_KNOWN_SHIFT - 1), %eax
        andl $(15 << (GPUSHARE_KNOWN_SHIFT + 1)), %eax
        leaq (GPUSHARE_MARK_KNOWN + (1 << GPUSHARE_KNOWN_SHIFT))(%r11,%rax), %rax
        .endm

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
        /* Streams::FindKnown(): nobody's mark is of no epoch. */
        movq gpushare_shim_launch(%rip), %rax
        movq (%rax), %rax
        cmpq %rax, GPUSHARE_MARK_EPOCH(%r11)
        jne \uncommon
        cmpb $0, GPUSHARE_MARK_INSIDE(%r11)
        jne \uncommon
        /* Recent::FindIf(): the first places are the even ones. */
        imull $GPUSHARE_PLACE_HASH, %r10d, %eax
        shrl $(GPUSHARE_FIRST_PLACE - GPUSHARE_KNOWN_SHIFT - 1), %eax
        andl $(15 << (GPUSHARE_KNOWN_SHIFT + 1)), %eax
        leaq GPUSHARE_MARK_KNOWN(%r11,%rax), %rax
        cmpq %r10, GPUSHARE_KNOWN_HANDLE(%rax)
        jne .Lnot_first_\name
.Lfound_\name:
        movb $1, GPUSHARE_MARK_INSIDE(%r11)
.Linside_\name:
        movq GPUSHARE_KNOWN_LAST(%rax), %r11
        movq GPUSHARE_KNOWN_KEYS(%rax), %r10
        movq GPUSHARE_HABIT_NEXT(%r11), %r11    /* what is launched if it does as it did */
.Lis_\name:
        /* Habit::Is() */
        movq (%r10), %r10
        cmpq %r10, GPUSHARE_HABIT_CONTEXT(%r11)
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
        movl 8(%rsp), %r10d
        cmpl %r10d, GPUSHARE_HABIT_BLOCK+8(%r11)
        jne .Lno_\name
        movl 16(%rsp), %r10d
        cmpl %r10d, GPUSHARE_HABIT_SHARED(%r11)
        jne .Lno_\name
        /* Habit::Price() */
        movq GPUSHARE_KNOWN_POCKET(%rax), %r10
        movq GPUSHARE_POCKET_PRICES(%r10), %rdi
        cmpq %rdi, GPUSHARE_HABIT_CHARGED_AT(%r11)
        jne .Lprice_\name
        movq GPUSHARE_HABIT_CHARGE(%r11), %rsi
.Lpriced_\name:
        /* Pocket::Spend(). The limit is read again after the store; pocket.h says why this order matters. It is compared with
         * one more than was spent, so that some launches that are paid for also go through Claim(), which decides. */
        movq GPUSHARE_POCKET_SPENT(%r10), %rdi
        addq %rdi, %rsi
        cmpq %rsi, GPUSHARE_POCKET_LIMIT(%r10)
        jb .Lnot_paid_\name
        incq %rsi
        movq %rsi, GPUSHARE_POCKET_SPENT(%r10)
        cmpq %rsi, GPUSHARE_POCKET_LIMIT(%r10)
        jb .Lclaim_\name
.Lpaid_\name:
        /* Lane::TakeAgain(); rdi: the word that contains the launch's number. */
        movq %rdi, %rsi
        shlq $GPUSHARE_RECORD_LAUNCH, %rsi
        orq GPUSHARE_HABIT_RECORD(%r11), %rsi
        orq GPUSHARE_KNOWN_RECORD(%rax), %rsi
        andl $GPUSHARE_RING_MASK, %edi
        movq GPUSHARE_KNOWN_RING(%rax), %r10
        movq %rsi, (%r10,%rdi,8)
        movq GPUSHARE_HABIT_AFTER(%r11), %rdi
        movq GPUSHARE_KNOWN_KEYS(%rax), %r10
        movq %rdi, (%r10)
        movq %r11, GPUSHARE_KNOWN_LAST(%rax)
        /* Save what .Lrefused needs, which the driver's call may overwrite. */
        pushq GPUSHARE_KNOWN_STREAM(%rax)
        .cfi_adjust_cfa_offset 8
        pushq %rsi              /* the record of the launch */
        .cfi_adjust_cfa_offset 8
        movq GPUSHARE_HABIT_FUNCTION(%r11), %rdi
        movl GPUSHARE_HABIT_GRID(%r11), %esi
        .rept 5                 /* each push moves the next parameter to the same offset */
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
        movq 40(%rsp), %rsi
        shrq $GPUSHARE_RECORD_LAUNCH, %rsi
        movl %eax, %edx
        call gpushare_shim_launch_refused
        addq $56, %rsp
        .cfi_remember_state
        .cfi_adjust_cfa_offset -56
        ret

        /* The program's thread was cancelled in the driver: reset the mark and go on unwinding. */
        .cfi_restore_state
.Lunwound_\name:
        movq gpushare_work_mark@gottpoff(%rip), %rdx
        movq %fs:(%rdx), %rdx
        movb $0, GPUSHARE_MARK_INSIDE(%rdx)
        movq %rax, %rdi
        call _Unwind_Resume@PLT
        .cfi_adjust_cfa_offset -56

        /* Price by the new list: its number is read before its contents. */
.Lprice_\name:
        movq %rdi, %rdx
        movq GPUSHARE_HABIT_ENTRY(%r11), %rdi
        movq GPUSHARE_HABIT_ID(%r11), %rsi
        cmpq %rsi, GPUSHARE_ENTRY_ID(%rdi)
        jne .Lnot_paid_\name
        movl GPUSHARE_ENTRY_SETTLED(%rdi), %esi
        testl %esi, %esi
        je .Lnot_paid_\name
        /* TenantPage::ChargeOf() */
        movq GPUSHARE_KNOWN_PAGE(%rax), %rdi
        imulq GPUSHARE_PAGE_UNITS(%rdi), %rsi
        addq $GPUSHARE_LAUNCH_MASK, %rsi
        andq $~GPUSHARE_LAUNCH_MASK, %rsi
        movq %rsi, GPUSHARE_HABIT_CHARGE(%r11)
        movq %rdx, GPUSHARE_HABIT_CHARGED_AT(%r11)
        movl GPUSHARE_HABIT_GRID+4(%r11), %edx
        jmp .Lpriced_\name

        /* The limit was lowered meanwhile: call Pocket::Claim(), with all registers saved. */
.Lclaim_\name:
        pushq %rdi
        pushq %rdx
        pushq %rcx
        pushq %r8
        pushq %r9
        pushq %rax
        pushq %r11
        .cfi_adjust_cfa_offset 56
        movq %rdi, %rsi
        movq %r10, %rdi
        call gpushare_shim_launch_claim
        testb %al, %al
        popq %r11
        popq %rax
        popq %r9
        popq %r8
        popq %rcx
        popq %rdx
        popq %rdi
        .cfi_adjust_cfa_offset -56
        jne .Lpaid_\name
        /* Restore the parameters whose registers were used from the habit. */
.Lnot_paid_\name:
        movq GPUSHARE_HABIT_FUNCTION(%r11), %rdi
        movl GPUSHARE_HABIT_GRID(%r11), %esi
        movl GPUSHARE_HABIT_GRID+4(%r11), %edx
.Lleave_\name:
        movq gpushare_work_mark@gottpoff(%rip), %rax
        movq %fs:(%rax), %r11
        movb $0, GPUSHARE_MARK_INSIDE(%r11)
        jmp \uncommon

        /* It is not the launch that came next the last time. Try the one that came next before that. */
.Lno_\name:
        movq GPUSHARE_KNOWN_LAST(%rax), %r10
        cmpq %r11, GPUSHARE_HABIT_OTHER(%r10)
        je .Lleave_\name
        movq GPUSHARE_HABIT_OTHER(%r10), %r11
        movq GPUSHARE_KNOWN_KEYS(%rax), %r10
        jmp .Lis_\name

.Lnot_first_\name:
        cmpq $2, %r10
        jbe .Ldefault_\name
        SECOND_PLACE
        cmpq %r10, GPUSHARE_KNOWN_HANDLE(%rax)
        je .Lfound_\name
        jmp \uncommon

        /* A default stream belongs to the current context: CurrentContext::Kept(). No other kind of default stream can be in
         * its two places (streams.cc), so an entry with that context is the right one. */
.Ldefault_\name:
        movb $1, GPUSHARE_MARK_INSIDE(%r11)
        movq gpushare_driver_kept_context@gottpoff(%rip), %r10
        movq gpushare_driver_context_turn(%rip), %r11
        cmpq %r11, %fs:GPUSHARE_KEPT_TURN(%r10)
        jne .Lleave_\name
        movq %fs:GPUSHARE_KEPT_CONTEXT(%r10), %r10
        cmpq %r10, GPUSHARE_KNOWN_CONTEXT(%rax)
        je .Linside_\name
        movq gpushare_work_mark@gottpoff(%rip), %rax
        movq %fs:(%rax), %r11
        movq 24(%rsp), %r10
        SECOND_PLACE
        movq gpushare_driver_kept_context@gottpoff(%rip), %r10
        movq %fs:GPUSHARE_KEPT_CONTEXT(%r10), %r10
        cmpq %r10, GPUSHARE_KNOWN_CONTEXT(%rax)
        je .Linside_\name
        jmp .Lleave_\name

        .if \per_thread
        /* Use CU_STREAM_PER_THREAD. The callee may overwrite its parameters on the stack. */
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

// tests/kernel/emulated_cuda/switch_stack.h: from one stack to another; included by one file.
//
// A frame that was left has kFrameWords words; the one at kReturnWord says where it continues.
#pragma once

// void weft_switch_stack(void** from, void* to): pushes the registers that a call keeps, stores the
// stack pointer in *from, and returns on the stack `to`, which was left in the same way.
extern "C" void weft_switch_stack(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
.globl weft_switch_stack
.type weft_switch_stack, @function
weft_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size weft_switch_stack, . - weft_switch_stack
)");
constexpr int kReturnWord = 6, kFrameWords = 8;  // the last one: no caller
#elif defined(__aarch64__)
asm(R"(
.text
.globl weft_switch_stack
.type weft_switch_stack, %function
weft_switch_stack:
  stp x29, x30, [sp, #-160]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #160
  ret
.size weft_switch_stack, . - weft_switch_stack
)");
constexpr int kReturnWord = 1, kFrameWords = 20;
#endif

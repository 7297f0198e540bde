// SPDX-License-Identifier: Apache-2.0
#include "workload/spin.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"

namespace gpushare::workload {
namespace {

// A PTX identifier: the number makes it unique, and the rest is for people who read profiles.
std::string EntryName(size_t index, const std::string& name) {
  constexpr size_t kMostReadable = 48;
  std::string entry = "spin_" + std::to_string(index) + "_";
  for (const char c : name.substr(0, kMostReadable)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    entry.push_back(plain ? c : '_');
  }
  return entry;
}

std::string EntryText(const std::string& entry) {
  const std::string duration = entry + "_param_0", block = entry + "_param_1",
                    stamps = entry + "_param_2";
  return "\n//gpushare.sim cost=param:0 blocks_per_sm=1 stamps=param:2 away=yes\n"
         ".visible .entry " +
         entry + "(.param .u64 " + duration + ", .param .u64 " + block + ", .param .u64 " + stamps +
         ")\n"
         "{\n"
         "  .reg .pred %p<4>;\n"
         "  .reg .b32 %r<1>;\n"
         "  .reg .b64 %rd<15>;\n"
         "  mov.u32 %r0, %tid.x;\n"
         "  setp.ne.u32 %p0, %r0, 0;\n"
         "  @%p0 bra DONE;\n"
         "  ld.param.u64 %rd0, [" +
         block +
         "];\n"
         "  ld.param.u64 %rd1, [" +
         stamps +
         "];\n"
         "  mov.u64 %rd2, %globaltimer;\n"  // the begin
         "  mov.u64 %rd3, %clock64;\n"
         "  mov.u64 %rd4, %rd2;\n"  // when it last looked, here and in cycles
         "  mov.u64 %rd5, 0;\n"     // how long it ran, here and in cycles
         "  mov.u64 %rd6, 0;\n"
         "SPIN:\n"
         "  mov.u64 %rd7, %globaltimer;\n"
         "  mov.u64 %rd8, %clock64;\n"
         "  sub.u64 %rd9, %rd7, %rd4;\n"
         "  sub.u64 %rd10, %rd8, %rd3;\n"
         "  mov.u64 %rd4, %rd7;\n"
         "  mov.u64 %rd3, %rd8;\n"
         "  setp.gt.u64 %p1, %rd9, " +
         std::to_string(kSpinAway.count()) +
         ";\n"
         "  @%p1 bra AWAY;\n"
         "  add.u64 %rd5, %rd5, %rd9;\n"
         "  add.u64 %rd6, %rd6, %rd10;\n"
         "  setp.lt.u64 %p2, %rd5, %rd0;\n"
         "  @%p2 bra SPIN;\n"
         "  setp.eq.u64 %p3, %rd1, 0;\n"
         "  @%p3 bra DONE;\n"
         "  cvta.to.global.u64 %rd11, %rd1;\n"
         "  red.global.min.u64 [%rd11], %rd2;\n"
         "  red.global.max.u64 [%rd11+8], %rd7;\n"
         "  red.global.add.u64 [%rd11+16], %rd5;\n"
         "  red.global.add.u64 [%rd11+24], %rd6;\n"
         "  bra DONE;\n"
         "AWAY:\n"  // SpinAwayLog
         "  setp.eq.u64 %p3, %rd1, 0;\n"
         "  @%p3 bra SPIN;\n"
         "  cvta.to.global.u64 %rd11, %rd1;\n"
         "  ld.global.u64 %rd11, [%rd11+32];\n"
         "  setp.eq.u64 %p3, %rd11, 0;\n"
         "  @%p3 bra SPIN;\n"
         "  cvta.to.global.u64 %rd11, %rd11;\n"
         "  sub.u64 %rd12, %rd7, %rd9;\n"
         "  atom.global.max.u64 %rd13, [%rd11], %rd7;\n"
         "  setp.gt.u64 %p3, %rd13, %rd12;\n"
         "  @%p3 bra SPIN;\n"
         "  atom.global.add.u64 %rd13, [%rd11+8], 1;\n"
         "  ld.global.u64 %rd14, [%rd11+16];\n"
         "  setp.ge.u64 %p3, %rd13, %rd14;\n"
         "  @%p3 bra SPIN;\n"
         "  shl.b64 %rd13, %rd13, 4;\n"
         "  add.u64 %rd11, %rd11, %rd13;\n"
         "  st.global.u64 [%rd11+24], %rd12;\n"
         "  st.global.u64 [%rd11+32], %rd7;\n"
         "  bra SPIN;\n"
         "DONE:\n"
         "  ret;\n"
         "}\n";
}

}  // namespace

absl::StatusOr<SpinModule> MakeSpinModule(const KernelTrace& trace) {
  if (trace.names().size() > kMaxSpinEntries) {
    return absl::InvalidArgumentError(
        "trace " + trace.label() + " has " + std::to_string(trace.names().size()) +
        " distinct kernel names: allowed are up to " + std::to_string(kMaxSpinEntries));
  }
  SpinModule module;
  module.ptx = ".version 7.0\n.target sm_70\n.address_size 64\n";
  for (size_t i = 0; i < trace.names().size(); ++i) {
    module.entries.push_back(EntryName(i, trace.names()[i]));
    module.ptx += EntryText(module.entries.back());
  }
  return module;
}

size_t SharedPerSm(int compute_major, int compute_minor) {
  // CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
  struct Row {
    int major, minor, kib;
  };
  constexpr Row kRows[] = {{7, 0, 96},   {7, 2, 96},   {7, 5, 64},  {8, 0, 164},  {8, 6, 100},
                           {8, 7, 164},  {8, 9, 100},  {9, 0, 228}, {10, 0, 228}, {10, 3, 228},
                           {11, 0, 228}, {12, 0, 100}, {12, 1, 100}};
  for (const Row& row : kRows) {
    if (row.major == compute_major && row.minor == compute_minor) {
      return static_cast<size_t>(row.kib) << 10;
    }
  }
  return 0;
}

SpinLaunch SpinLaunchOf(const TraceKernel& kernel, const SpinDevice& device) {
  const int64_t sms = std::max(device.sms, 1);
  const int64_t duration = kernel.duration.count();
  const int64_t most_waves =
      std::max<int64_t>(1, duration / std::max<int64_t>(1, device.least_wave.count()));
  const int64_t grid = std::min<int64_t>(kernel.sms, most_waves * sms);
  const int64_t waves = (grid + sms - 1) / sms;

  SpinLaunch launch{};
  launch.entry = kernel.name;
  launch.grid = static_cast<unsigned>(grid);
  if (device.shared_per_sm > 0) {
    launch.block = 128;
    launch.shared_bytes = static_cast<unsigned>(device.shared_per_sm / 2 + 1024);
  } else {
    launch.block = 1024;
  }
  launch.duration_ns = static_cast<uint64_t>(duration);
  launch.block_ns = static_cast<uint64_t>(std::max<int64_t>(1, duration / waves));
  return launch;
}

}  // namespace gpushare::workload

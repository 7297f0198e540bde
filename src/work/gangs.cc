// SPDX-License-Identifier: Apache-2.0
// Work on several GPUs at once: cooperative launches over several devices, and graphs with kernels on more than one. Each GPU's
// gate holds and charges its part. The gates are asked in the order of the UUIDs, as for gangs, so that no two launches wait for
// each other, even in different processes. If not all parts are admitted, the admitted ones are given back.
#include <algorithm>

#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {

bool Calls::AdmitAll(Parts& parts) {
  std::sort(parts.begin(), parts.end(), [this](const Part& a, const Part& b) {
    return spread_.Before(a.stream.device, b.stream.device);
  });
  size_t admitted = 0;
  try {
    for (Part& part : parts) {
      streams_.Turn(part.stream);
      part.admission = part.stream.gate->Admit(*part.stream.stream, part.work);
      ++admitted;
    }
  } catch (...) {
    // Host memory ran out: give back the parts that were admitted.
    for (size_t i = 0; i < admitted; ++i) {
      const gate::Admission& had = parts[i].admission;
      if (had.verdict != gate::Verdict::kAdmitted) continue;
      parts[i].stream.gate->Complete(had, /*submitted=*/false);
    }
    throw;
  }
  return std::none_of(parts.begin(), parts.end(),
                      [](const Part& part) { return part.admission.refused(); });
}

void Calls::CompleteAll(const Parts& parts, bool submitted) {
  for (const Part& part : parts) {
    if (part.admission.verdict != gate::Verdict::kAdmitted) continue;
    part.stream.gate->Complete(part.admission, submitted);
  }
}

CUresult Calls::CallFor(const Parts& parts, absl::FunctionRef<CUresult()> call) {
  try {
    return call();
  } catch (...) {  // cancelled while the driver waits, after it has submitted the work
    CompleteAll(parts, /*submitted=*/true);
    throw;
  }
}

CUresult Calls::LaunchCooperativeKernelMultiDevice(const Payer& payer, CUDA_LAUNCH_PARAMS* launches,
                                                   unsigned devices, unsigned flags) {
  const auto call = [&] {
    return driver_.LaunchCooperativeKernelMultiDevice(launches, devices, flags);
  };
  if (launches == nullptr || devices > Gates::kDevices || Outermost::Inside()) return call();
  Parts parts;
  for (unsigned i = 0; i < devices; ++i) {
    const CUDA_LAUNCH_PARAMS& one = launches[i];
    const Streams::Adopted stream = streams_.Find(payer, one.hStream);
    if (stream.refused) return kRefused;
    if (stream.gate == nullptr || streams_.Capturing(one.hStream)) continue;
    const driver::LaunchShape shape = {{one.gridDimX, one.gridDimY, one.gridDimZ},
                                       {one.blockDimX, one.blockDimY, one.blockDimZ},
                                       one.sharedMemBytes};
    parts.push_back({stream, KernelWork(one.function, shape, /*cooperative=*/true), {}});
    parts.back().work.longest_hold = payer.longest_hold;
  }
  const Outermost outermost;
  const CUresult result = AdmitAll(parts) ? CallFor(parts, call) : kRefused;
  CompleteAll(parts, result == CUDA_SUCCESS);
  return result;
}

// On each other GPU a stand-in stream waits for the graph. Its part there lasts from the end of the earlier work on the graph's
// own stream to the end of the graph. How long the GPU is idle in that time is unknown, so the whole time is charged.
CUresult Calls::LaunchSpread(const Payer& payer, const Spread::Places& places, CUstream stream,
                             const gate::Work& work, absl::FunctionRef<CUresult()> call) {
  if (Outermost::Inside()) return call();
  const Streams::Adopted home = streams_.Find(payer, stream);
  if (home.refused) return kRefused;
  Parts parts;
  absl::InlinedVector<CUstream, 4> stand_ins;
  for (const Spread::Place& place : places) {
    if (place.device == home.device) continue;
    bool made = false;
    const CUstream stand_in = spread_.StandIn(payer.gates, place.context, &made);
    if (stand_in == nullptr) continue;
    if (made) streams_.Forget(stand_in);  // an earlier stream may have had the handle
    const Streams::Adopted there = streams_.Find(payer, stand_in);
    if (there.refused) return kRefused;
    if (there.gate == nullptr) continue;
    Part& part = parts.emplace_back(Part{there, work, {}});
    // It counts as one command of full width, since it is unknown which of the graph's kernels run there.
    const uint64_t salt = (static_cast<uint64_t>(place.device) + 1) * 0xd1342543de82ef95u;
    part.work.key ^= salt;
    if (part.work.like != 0) part.work.like ^= salt;
    part.work.parts = 1;
    part.work.footprint = 1;
    stand_ins.push_back(stand_in);
  }
  if (home.gate != nullptr) parts.push_back({home, work, {}});
  for (Part& part : parts) part.work.longest_hold = payer.longest_hold;
  const Outermost outermost;
  for (size_t i = 0; i < stand_ins.size(); ++i) {
    const Streams::Adopted& there = parts[i].stream;
    there.gate->StallBegins(there.stream);
    if (spread_.Order(stream, stand_ins[i])) there.gate->WaitEnds(there.stream);
  }
  const CUresult result = AdmitAll(parts) ? CallFor(parts, call) : kRefused;
  for (size_t i = 0; result == CUDA_SUCCESS && i < stand_ins.size(); ++i) {
    spread_.Order(stream, stand_ins[i]);
  }
  CompleteAll(parts, result == CUDA_SUCCESS);
  return result;
}

}  // namespace gpushare::work

// SPDX-License-Identifier: Apache-2.0
// How copies are held and charged, for all calls: copies to or from the host by their bytes, copies within a device as commands
// of that device.
#include <algorithm>
#include <iterator>

#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {
namespace {

bool LimitsCopies(const Gates& gates) {
  return std::any_of(std::begin(gates.on), std::end(gates.on), [](const auto& on) {
    const gate::Gate* const gate = on.load(std::memory_order_acquire);
    return gate != nullptr && (gate->LimitsCopies(gate::CopyDirection::kHostToDevice) ||
                               gate->LimitsCopies(gate::CopyDirection::kDeviceToHost));
  });
}

}  // namespace

// A pointer that the driver does not know is host memory.
Calls::Side Calls::SideOf(CUdeviceptr pointer) const {
  unsigned type = 0;
  const bool known =
      driver_.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS;
  return {.on_host = !known || type == CU_MEMORYTYPE_HOST, .address = pointer};
}

Calls::Side Calls::SideOf(const Payer& payer, CUmemorytype type, CUdeviceptr pointer) const {
  if (type == CU_MEMORYTYPE_UNIFIED) return SideOf(pointer);
  if (type == CU_MEMORYTYPE_HOST) return Host();
  return type == CU_MEMORYTYPE_DEVICE ? DeviceSide(payer, pointer) : Array();
}

// A device pointer may be mapped host memory. So the driver is asked if a copy limit holds for the payer, which costs less than
// any copy. The driver does not tell where managed memory is.
Calls::Side Calls::DeviceSide(const Payer& payer, CUdeviceptr pointer) const {
  if (!LimitsCopies(*payer.gates)) return Device(pointer);
  unsigned type = 0;
  const bool known =
      driver_.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS;
  return {.on_host = known && type == CU_MEMORYTYPE_HOST, .address = pointer};
}

// `call` copies `count` parts, beginning with `first`.
CUresult Calls::Across(const Payer& payer, CUstream stream, gate::HostCopy copy,
                       absl::FunctionRef<CUresult(uint64_t first, uint64_t count)> call) {
  if (copy.parts == 0 || copy.part_bytes == 0 || Outermost::Inside()) return call(0, copy.parts);
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.refused) return kRefused;
  if (adopted.gate == nullptr || streams_.Capturing(stream)) return call(0, copy.parts);
  const Outermost outermost;
  gate::Gate& gate = *adopted.gate;
  copy.longest_hold = payer.longest_hold;
  // The legacy stream waits for all other streams.
  if (copy.blocks) gate.Synchronizing(stream == nullptr ? nullptr : adopted.stream);
  CUresult result = CUDA_SUCCESS;
  const gate::Copied copied = gate.Copy(*adopted.stream, copy, [&](uint64_t first, uint64_t n) {
    result = call(first, n);
    return result == CUDA_SUCCESS;
  });
  if (gate::Admission{.verdict = copied.verdict}.refused()) {
    result = kRefused;
  } else if (copied.verdict != gate::Verdict::kAdmitted) {
    // The tenant is being removed, so nobody is left to pay.
    result = call(copied.parts, copy.parts - copied.parts);
  }
  if (copy.blocks) gate.Synchronized();
  return result;
}

CUresult Calls::Within(const Payer& payer, gate::OnDeviceKind kind, CUstream stream, uint64_t bytes,
                       absl::FunctionRef<CUresult()> call) {
  if (bytes == 0) {  // calls that the driver implements it with are not charged either
    const Outermost outermost;
    return call();
  }
  return Submit(payer, stream, gate::OnDevice(kind, bytes), call);
}

CUresult Calls::Crossing(const Payer& payer, CUstream stream, const gate::CopyBytes& bytes,
                         absl::FunctionRef<CUresult()> call) {
  if (Outermost::Inside()) return call();
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.refused) return kRefused;
  if (adopted.gate == nullptr || streams_.Capturing(stream)) return call();
  const gate::Verdict verdict = adopted.gate->AdmitCopies(bytes, kNever, payer.longest_hold);
  if (gate::Admission{.verdict = verdict}.refused()) return kRefused;
  // If the tenant is being removed, nothing was charged.
  gate::AdmittedCopies admitted(*adopted.gate,
                                verdict == gate::Verdict::kAdmitted ? bytes : gate::CopyBytes());
  const CUresult result = call();
  if (result == CUDA_SUCCESS) admitted.Made();
  return result;
}

CUresult Calls::Mixed(const Payer& payer, CUstream stream, const Traffic& traffic,
                      absl::FunctionRef<CUresult()> call) {
  return Crossing(payer, stream, {.to_device = traffic.to_device, .to_host = traffic.to_host}, [&] {
    return Within(payer, gate::OnDeviceKind::kCopy, stream, traffic.on_device, call);
  });
}

}  // namespace gpushare::work

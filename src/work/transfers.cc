// SPDX-License-Identifier: Apache-2.0
// How what is copied is held and charged, whichever call it is: what crosses to or from the host by its bytes,
// what stays on a device as a command of that.
#include <algorithm>
#include <iterator>
#include <utility>

#include "work/calls.h"
#include "work/submit.h"

namespace gpushare::work {
namespace {

// Copies of limited tenants go in pieces, so that others get in between; beside others all do, as the gate says.
constexpr uint64_t kPiece = uint64_t{4} << 20;

bool LimitsCopies(const Gates& gates) {
  return std::any_of(std::begin(gates.on), std::end(gates.on), [](const auto& on) {
    const gate::Gate* const gate = on.load(std::memory_order_acquire);
    return gate != nullptr && (gate->LimitsCopies(gate::CopyDirection::kHostToDevice) ||
                               gate->LimitsCopies(gate::CopyDirection::kDeviceToHost));
  });
}

}  // namespace

// What the driver knows nothing of is host memory.
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

// What the call takes for a device's may be the host's, mapped: the driver is asked of whom a copy limit holds, which
// costs less than any copy. Of managed memory it does not say where that lies.
Calls::Side Calls::DeviceSide(const Payer& payer, CUdeviceptr pointer) const {
  if (!LimitsCopies(*payer.gates)) return Device(pointer);
  unsigned type = 0;
  const bool known =
      driver_.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS;
  return {.on_host = known && type == CU_MEMORYTYPE_HOST, .address = pointer};
}

// Whether all of it lies in one allocation: then no piece is refused after another went. Of arrays and of
// the host's memory nobody says.
bool Calls::Contains(const Side& side, uint64_t span) const {
  if (side.on_host || side.address == 0) return true;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  return driver_.MemGetAddressRange(&base, &bytes, side.address) == CUDA_SUCCESS &&
         side.address - base <= bytes && span <= bytes - (side.address - base);
}

// `call` is of `count` parts from the first one that it is given, each of so many bytes.
CUresult Calls::Across(const Payer& payer, gate::CopyDirection way, CUstream stream, bool blocks,
                       uint64_t count, uint64_t part_bytes, absl::FunctionRef<bool()> divisible,
                       absl::FunctionRef<CUresult(uint64_t, uint64_t)> call) {
  if (count == 0 || part_bytes == 0 || Outermost::Inside()) return call(0, count);
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.refused) return kRefused;
  if (adopted.gate == nullptr || streams_.Capturing(stream)) return call(0, count);
  const Outermost outermost;
  gate::Gate& gate = *adopted.gate;
  // The legacy stream waits for all others.
  if (blocks) gate.Synchronizing(stream == nullptr ? nullptr : adopted.stream);
  const uint64_t beside = gate.CopyPiece(count * part_bytes);
  const uint64_t piece = beside != 0 ? beside : kPiece;
  const uint64_t in_piece = std::max<uint64_t>(piece / part_bytes, 1);
  bool in_pieces = (beside != 0 || gate.LimitsCopies(way)) && count > 2 * in_piece && divisible();
  bool paced = beside != 0;
  CUresult result = CUDA_SUCCESS;
  for (uint64_t done = 0; done < count && result == CUDA_SUCCESS;) {
    const uint64_t left = count - done;
    // A last one of two would wait for all before it.
    const uint64_t whole = paced ? in_piece : 2 * in_piece;
    uint64_t n = in_pieces && left > whole ? in_piece : left;
    if (paced && !gate.AwaitCopyRoom(way, n * part_bytes, piece)) {
      paced = false;
      in_pieces &= gate.LimitsCopies(way);
      if (!in_pieces) n = left;
    }
    const gate::Verdict verdict = gate.AdmitCopy(way, n * part_bytes, kNever, payer.longest_hold);
    const bool admitted = verdict == gate::Verdict::kAdmitted;
    result = verdict == gate::Verdict::kEnded ? kRefused : call(done, n);
    if (admitted && result != CUDA_SUCCESS) gate.CopyRefused(way, n * part_bytes);
    if (paced && !blocks && result == CUDA_SUCCESS) {
      gate.CopyGiven(way, n * part_bytes, *adopted.stream);
    }
    done += n;
  }
  if (blocks) gate.Synchronized();
  return result;
}

CUresult Calls::Within(const Payer& payer, gate::OnDeviceKind kind, CUstream stream, uint64_t bytes,
                       absl::FunctionRef<CUresult()> call) {
  if (bytes == 0) {  // what the driver makes it of is not charged either
    const Outermost outermost;
    return call();
  }
  return Submit(payer, stream, gate::OnDevice(kind, bytes), call);
}

CUresult Calls::Crossing(const Payer& payer, CUstream stream, const gate::GraphCopies::Bytes& bytes,
                         absl::FunctionRef<CUresult()> call) {
  if (Outermost::Inside()) return call();
  const Streams::Adopted adopted = streams_.Find(payer, stream);
  if (adopted.refused) return kRefused;
  if (adopted.gate == nullptr || streams_.Capturing(stream)) return call();
  const std::pair<gate::CopyDirection, uint64_t> ways[] = {
      {gate::CopyDirection::kHostToDevice, bytes.to_device},
      {gate::CopyDirection::kDeviceToHost, bytes.to_host}};
  bool admitted[2] = {}, ended = false;
  for (size_t i = 0; i < 2; ++i) {
    if (ways[i].second == 0) continue;
    const gate::Verdict verdict =
        adopted.gate->AdmitCopy(ways[i].first, ways[i].second, kNever, payer.longest_hold);
    admitted[i] = verdict == gate::Verdict::kAdmitted;
    ended |= verdict == gate::Verdict::kEnded;
  }
  const CUresult result = ended ? kRefused : call();
  for (size_t i = 0; i < 2; ++i) {
    if (admitted[i] && result != CUDA_SUCCESS) {
      adopted.gate->CopyRefused(ways[i].first, ways[i].second);
    }
  }
  return result;
}

CUresult Calls::Mixed(const Payer& payer, CUstream stream, const Traffic& traffic,
                      absl::FunctionRef<CUresult()> call) {
  return Crossing(payer, stream, {.to_device = traffic.to_device, .to_host = traffic.to_host}, [&] {
    return Within(payer, gate::OnDeviceKind::kCopy, stream, traffic.on_device, call);
  });
}

}  // namespace gpushare::work

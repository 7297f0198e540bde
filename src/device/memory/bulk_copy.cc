// SPDX-License-Identifier: Apache-2.0
#include "device/memory/bulk_copy.h"

#include <algorithm>

#include "base/status_macros.h"

namespace gpushare::device {

using driver::ToStatus;

absl::StatusOr<std::unique_ptr<BulkCopy>> BulkCopy::Create(const driver::Driver& driver,
                                                           gate::Gate& gate) {
  std::unique_ptr<BulkCopy> made(new BulkCopy(driver, gate));
  GPUSHARE_RETURN_IF_ERROR(made->Start());
  return made;
}

absl::Status BulkCopy::Start() {
  GPUSHARE_RETURN_IF_ERROR(
      ToStatus(driver_.CreateStream(&stream_, /*priority=*/0), "cuStreamCreateWithPriority"));
  for (driver::Event& end : ends_) {
    GPUSHARE_RETURN_IF_ERROR(
        ToStatus(driver_.CreateEvent(&end, /*timing=*/false), "cuEventCreate"));
  }
  return absl::OkStatus();
}

BulkCopy::~BulkCopy() {
  // The host's memory is about to be freed, perhaps.
  if (stream_ != nullptr) static_cast<void>(driver_.SynchronizeStream(stream_));
  for (const driver::Event end : ends_) {
    if (end != nullptr) static_cast<void>(driver_.DestroyEvent(end));
  }
  if (stream_ != nullptr) static_cast<void>(driver_.DestroyStream(stream_));
}

absl::Status BulkCopy::Copy(gate::CopyDirection direction, void* host, driver::DevicePtr pointer,
                            uint64_t bytes) {
  const bool to_host = direction == gate::CopyDirection::kDeviceToHost;
  for (uint64_t done = 0; done < bytes; done += kPiece, ++given_) {
    const uint64_t n = std::min(kPiece, bytes - done);
    const driver::Event end = ends_[given_ % kInFlight];
    if (given_ >= kInFlight) {
      GPUSHARE_RETURN_IF_ERROR(ToStatus(driver_.SynchronizeEvent(end), "cuEventSynchronize"));
    }
    if (gate_.AdmitCopyThoughSuspended(direction, n) != gate::Verdict::kAdmitted) {
      return absl::CancelledError(gate::kEvicted);
    }
    char* const at = static_cast<char*>(host) + done;
    const driver::Result result = to_host ? driver_.CopyDtoHAsync(at, pointer + done, n, stream_)
                                          : driver_.CopyHtoDAsync(pointer + done, at, n, stream_);
    if (result != driver::Result::kSuccess) {
      gate_.CopyRefused(direction, n);
      return ToStatus(result, to_host ? "cuMemcpyDtoHAsync" : "cuMemcpyHtoDAsync");
    }
    GPUSHARE_RETURN_IF_ERROR(ToStatus(driver_.RecordEvent(end, stream_), "cuEventRecord"));
  }
  return absl::OkStatus();
}

absl::Status BulkCopy::Finish() {
  return ToStatus(driver_.SynchronizeStream(stream_), "cuStreamSynchronize");
}

}  // namespace gpushare::device

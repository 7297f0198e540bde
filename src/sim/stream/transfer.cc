// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/transfer.h"

#include <cstdlib>
#include <cstring>

#include "sim/graph/capture.h"

namespace gpushare::sim {
namespace {

// The largest pageable source that the driver copies aside, so that the call can return at once.
constexpr uint64_t kMostStaged = 64 << 10;

// Bytes from the first to the last of `rows` rows. False on overflow.
bool Span(uint64_t bytes, uint64_t rows, uint64_t pitch, uint64_t* span) {
  uint64_t before_last;
  return !__builtin_mul_overflow(pitch, rows - 1, &before_last) &&
         !__builtin_add_overflow(before_last, bytes, span);
}

CUresult SubmitAndMaybeWait(Command* command, bool wait, const char* doing) {
  const uint32_t generation = command->generation;
  Context* const context = command->stream->context;
  Submit(command->stream, command);
  if (!wait || command->generation != generation) return CUDA_SUCCESS;
  return WaitFor(command, context, doing);
}

// The stream for the work, ready to take a command.
CUresult ReadyStream(CUstream handle, NullStream null, Stream** stream) {
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  result = FindStream(handle, null, stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckSubmit(*stream);
  if (result != CUDA_SUCCESS) return result;
  if ((*stream)->capture == nullptr && !HasSpace(*stream)) return WaitForSpace(stream);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult CheckCopy(CopyWork* copy) {
  if (copy->to == 0 || copy->from == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool to_device = LiesOnDevice(copy->to), from_device = LiesOnDevice(copy->from);
  if (copy->rows > 1 && (copy->pitch_to < copy->bytes || copy->pitch_from < copy->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t span_to, span_from;
  if (!Span(copy->bytes, copy->rows, copy->pitch_to, &span_to) ||
      !Span(span_to, copy->slices, copy->slice_to, &span_to) ||
      !Span(copy->bytes, copy->rows, copy->pitch_from, &span_from) ||
      !Span(span_from, copy->slices, copy->slice_from, &span_from)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((!copy->to_array && !IsUsableRange(copy->to, span_to)) ||
      (!copy->from_array && !IsUsableRange(copy->from, span_from))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  copy->direction =
      to_device ? (from_device ? CopyDirection::kDeviceToDevice : CopyDirection::kHostToDevice)
                : (from_device ? CopyDirection::kDeviceToHost : CopyDirection::kHostToHost);
  return CUDA_SUCCESS;
}

CUresult CheckSet(const SetWork& set) {
  if (set.rows > 1 && set.pitch < set.width * set.element) return CUDA_ERROR_INVALID_VALUE;
  if (set.to % set.element != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t row, span;
  if (__builtin_mul_overflow(set.width, uint64_t{set.element}, &row) ||
      !Span(row, set.rows, set.pitch, &span)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const HostRange* const host = state().host.Find(set.to); host != nullptr) {
    return span <= host->size - (set.to - host->address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  return IsDeviceAddress(set.to) && IsUsableRange(set.to, span) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
}

CUresult SubmitCopy(const ThreadContext& thread, CopyWork copy, CUstream handle, NullStream null,
                    Blocking blocking) {
  Stream* stream;
  CUresult result = ReadyStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (blocking == Blocking::kYes) {
    result = RefuseCapture(stream);
    if (result == CUDA_SUCCESS) result = CheckUnsafe(thread);
    if (result != CUDA_SUCCESS) return result;
  }
  if (copy.empty()) return CUDA_SUCCESS;
  result = CheckCopy(&copy);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    AddCapturedNode(stream, NodeType::kCopy)->copy = copy;
    return CUDA_SUCCESS;
  }
  // cuMemcpyDtoD and similar calls do not wait even in their blocking form.
  bool wait = blocking == Blocking::kYes && (copy.direction != CopyDirection::kDeviceToDevice ||
                                             SyncsMemops(copy.to) || SyncsMemops(copy.from));
  if (copy.direction == CopyDirection::kHostToDevice && IsPageable(copy.from) && !wait) {
    if (copy.total() > kMostStaged) {
      wait = true;
    } else {
      copy.staged = static_cast<uint8_t*>(std::malloc(copy.total()));
      if (copy.staged == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
      uint8_t* to = copy.staged;
      for (uint64_t row = 0; row < copy.rows * copy.slices; ++row, to += copy.bytes) {
        const uint64_t from =
            copy.from + row / copy.rows * copy.slice_from + row % copy.rows * copy.pitch_from;
        std::memcpy(to, reinterpret_cast<const uint8_t*>(from), copy.bytes);
      }
    }
  }
  if (copy.direction == CopyDirection::kDeviceToHost && IsPageable(copy.to)) wait = true;
  if (copy.direction == CopyDirection::kHostToHost) wait = true;
  Command* const command = NewCommand(stream, CommandType::kCopy);
  command->copy = copy;
  return SubmitAndMaybeWait(command, wait, "a copy");
}

CUresult SubmitSet(const SetWork& set, CUstream handle, NullStream null) {
  Stream* stream;
  CUresult result = ReadyStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (set.width == 0 || set.rows == 0) return CUDA_SUCCESS;
  result = CheckSet(set);
  if (result != CUDA_SUCCESS) return result;
  if (stream->capture != nullptr) {
    AddCapturedNode(stream, NodeType::kSet)->set = set;
    return CUDA_SUCCESS;
  }
  Command* const command = NewCommand(stream, CommandType::kSet);
  command->set = set;
  return SubmitAndMaybeWait(command, false, "");
}

}  // namespace gpushare::sim

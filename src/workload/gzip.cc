// SPDX-License-Identifier: Apache-2.0
#include "workload/gzip.h"

#include "absl/status/status.h"

#ifdef GPUSHARE_HAS_ZLIB
#include <zlib.h>

#include <algorithm>
#include <climits>
#endif

namespace gpushare::workload {

bool IsGzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }

#ifdef GPUSHARE_HAS_ZLIB

namespace {

constexpr int kWindowOfGzip = 15 + 16;  // gzip format, see inflateInit2 in zlib's documentation

// The most that zlib counts in one step.
uInt Step(size_t left) { return static_cast<uInt>(std::min<size_t>(left, UINT_MAX)); }

Bytef* BytesOf(std::string_view text) {
  return reinterpret_cast<Bytef*>(
      const_cast<char*>(text.data()));  // next_in is not const, but read only
}

absl::Status Damaged() { return absl::InvalidArgumentError("its gzip form is damaged or cut"); }

}  // namespace

absl::StatusOr<std::string> Gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kWindowOfGzip, /*memLevel=*/9,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return absl::ResourceExhaustedError("there is no memory to compress it");
  }
  std::string out;
  char part[1 << 15];
  int result = Z_OK;
  do {
    stream.next_in = BytesOf(text);
    stream.avail_in = Step(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof part;
    result = deflate(&stream, stream.avail_in == text.size() ? Z_FINISH : Z_NO_FLUSH);
    text.remove_prefix(static_cast<size_t>(stream.next_in - BytesOf(text)));
    out.append(part, sizeof part - stream.avail_out);
  } while (result == Z_OK);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError("zlib cannot compress it");
  return out;
}

absl::StatusOr<std::string> Gunzip(std::string_view bytes, size_t most) {
  z_stream stream{};
  if (inflateInit2(&stream, kWindowOfGzip) != Z_OK) {
    return absl::ResourceExhaustedError("there is no memory to expand it");
  }
  std::string out;
  char part[1 << 15];
  absl::Status status;
  for (bool ended = false; status.ok() && !(ended && bytes.empty());) {
    if (ended && (!IsGzip(bytes) || inflateReset(&stream) != Z_OK)) {
      status = Damaged();
      break;
    }
    stream.next_in = BytesOf(bytes);
    stream.avail_in = Step(bytes.size());
    stream.next_out = reinterpret_cast<Bytef*>(part);
    stream.avail_out = sizeof part;
    const int result = inflate(&stream, Z_NO_FLUSH);
    ended = result == Z_STREAM_END;
    bytes.remove_prefix(static_cast<size_t>(stream.next_in - BytesOf(bytes)));
    out.append(part, sizeof part - stream.avail_out);
    if (result != Z_OK && !ended) status = Damaged();
    if (out.size() > most) {
      status = absl::InvalidArgumentError("it is too large when expanded");
    }
  }
  inflateEnd(&stream);
  if (!status.ok()) return status;
  return out;
}

#else

absl::StatusOr<std::string> Gzip(std::string_view) {
  return absl::UnimplementedError("this build has no zlib to compress it");
}

absl::StatusOr<std::string> Gunzip(std::string_view, size_t) {
  return absl::UnimplementedError("this build has no zlib: expand it with gunzip");
}

#endif

}  // namespace gpushare::workload

// SPDX-License-Identifier: Apache-2.0
// Texts in gzip format (RFC 1952), with zlib.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::string small, Gzip(text));
//   GPUSHARE_ASSIGN_OR_RETURN(std::string same, Gunzip(small, 1 << 20));
//
// In a build without zlib, both return Unimplemented.
#ifndef GPUSHARE_WORKLOAD_GZIP_H_
#define GPUSHARE_WORKLOAD_GZIP_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpushare::workload {

// Whether the bytes begin as gzip data does. No text begins like that.
bool IsGzip(std::string_view bytes);

// One member without a name or a time, so that the same text always gives the same bytes.
absl::StatusOr<std::string> Gzip(std::string_view text);

// The contents of all members, one after the other. InvalidArgument: the bytes are not gzip data, are cut off or damaged, or
// hold more than `most` bytes. Never allocates more than that, whatever size the data claims.
absl::StatusOr<std::string> Gunzip(std::string_view bytes, size_t most);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_GZIP_H_

// SPDX-License-Identifier: Apache-2.0
// Texts in the form of gzip (RFC 1952), by zlib.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::string small, Gzip(text));
//   GPUSHARE_ASSIGN_OR_RETURN(std::string same, Gunzip(small, 1 << 20));
//
// Of a build without zlib both answer Unimplemented.
#ifndef GPUSHARE_WORKLOAD_GZIP_H_
#define GPUSHARE_WORKLOAD_GZIP_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace gpushare::workload {

// Whether it begins as gzip does, which no text does.
bool IsGzip(std::string_view bytes);

// One member without a name or a time: the same text gives the same bytes.
absl::StatusOr<std::string> Gzip(std::string_view text);

// All members, one after the other. InvalidArgument: it is none, is cut or damaged, or is more than `most` bytes; so
// much is taken at the most, however much it says that it has.
absl::StatusOr<std::string> Gunzip(std::string_view bytes, size_t most);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_GZIP_H_

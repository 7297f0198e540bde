// SPDX-License-Identifier: Apache-2.0
// Names and texts of errors.
#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
#define GPUSHARE_SIM_ERROR(code, name, text) {code, name, text},
#include "sim/api/errors.def"
#undef GPUSHARE_SIM_ERROR
};

const ErrorText* Find(int code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuGetErrorName)(CUresult error, const char** name) {
  SIM_ENTER(cuGetErrorName, kNone);
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* const found = Find(error);
  *name = found == nullptr ? nullptr : found->name;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SIM_API(cuGetErrorString)(CUresult error, const char** text) {
  SIM_ENTER(cuGetErrorString, kNone);
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const ErrorText* const found = Find(error);
  *text = found == nullptr ? nullptr : found->text;
  return found == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// SPDX-License-Identifier: Apache-2.0
// What modules and libraries have in common: reading an image, and querying a function or a kernel.
#ifndef GPUSHARE_SIM_MODULE_IMAGE_H_
#define GPUSHARE_SIM_MODULE_IMAGE_H_

#include <string>

#include "sim/api/api.h"
#include "sim/module/module.h"

namespace gpushare::sim {

// Reads PTX or a cubin. `wrong`: the text for the log when PTX is refused.
CUresult ReadImage(const void* image, DeviceModule* module, std::string* wrong);
// Makes a module in the context from an image that was read.
CUresult MakeModule(Context* context, const DeviceModule& image, Module** module);
// Writes the logs into the buffers that the options name.
void WriteJitLogs(const std::string& error, unsigned count, const CUjit_option* options,
                  void** values);

CUresult FindGlobal(const Module& module, const char* name, CUdeviceptr* address, size_t* bytes);
CUresult AttributeOf(const PtxEntry& entry, int version, const FunctionSettings& settings,
                     CUfunction_attribute attribute, int* value);
CUresult ChangeSettings(FunctionSettings* settings, CUfunction_attribute attribute, int value);
CUresult ParameterOf(const PtxEntry& entry, size_t index, size_t* offset, size_t* size);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MODULE_IMAGE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_GPU_H_
#define GPUSHARE_PYTHON_GPU_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "object.h"
#include "runtime.h"
#include "stream_work.h"

namespace gpushare::python {

// Functions of the driver that the C ABI does not offer. Each may be null.
struct DriverCalls {
  // cuFuncGetParamInfo, from CUDA 12.4.
  int (*param_info)(CUfunc_st* function, size_t index, size_t* offset, size_t* size) = nullptr;
  int (*event_record)(CUevent_st* event, CUstream_st* stream) = nullptr;  // cuEventRecord
  int (*stream_synchronize)(CUstream_st* stream) = nullptr;               // cuStreamSynchronize
  int (*stream_wait_event)(CUstream_st* stream, CUevent_st* event, unsigned flags) = nullptr;
  // cuStreamGetDevice, from CUDA 12.8.
  int (*stream_device)(CUstream_st* stream, int* device) = nullptr;
  int (*stream_capturing)(CUstream_st* stream, int* status) = nullptr;  // cuStreamIsCapturing
};

struct Gpu : Object {
  Owned<gpushare_gpu, gpushare_gpu_close> handle{"GPU"};
  std::shared_ptr<Runtime> runtime;
  int ordinal = 0;
  std::string name;
  DriverCalls calls;
  std::vector<Ended> ended;  // for closed streams

  ~Gpu() override { LetGoOfAll(*this); }
  void Close() override {
    LetGoOfAll(*this);
    handle.Close();
  }
};

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_GPU_H_

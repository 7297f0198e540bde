// SPDX-License-Identifier: Apache-2.0
// The path of every call through the gate, for the files of Calls.
#ifndef GPUSHARE_WORK_SUBMIT_H_
#define GPUSHARE_WORK_SUBMIT_H_

#include "work/calls.h"
#include "work/outermost.h"

namespace gpushare::work {

// Holds `call` until it is the payer's turn on the stream's device, and charges it unless the driver refuses it. Captured work
// is neither held nor charged.
template <typename Call>
CUresult Calls::Submit(const Payer& payer, CUstream handle, gate::Work work, const Call& call) {
  if (Outermost::Inside()) return call();
  work.longest_hold = payer.longest_hold;
  const Streams::Adopted stream = streams_.Find(payer, handle);
  return Submit(stream, handle, work, call);
}

template <typename Call>
CUresult Calls::Submit(const Streams::Adopted& stream, CUstream handle, const gate::Work& work,
                       const Call& call) {
  if (stream.gate == nullptr) return stream.refused ? kRefused : call();
  if (streams_.Capturing(handle)) return call();
  const Outermost outermost;
  streams_.Turn(stream);
  const gate::Admission admission = stream.gate->Admit(*stream.stream, work);
  if (admission.refused()) return kRefused;
  // The tenant is being removed, so nobody is left to pay.
  if (admission.verdict != gate::Verdict::kAdmitted) return call();
  CUresult result;
  try {
    result = call();
  } catch (...) {  // cancelled while the driver waits, most likely after it has submitted the work
    stream.gate->Complete(admission, /*submitted=*/true);
    throw;
  }
  stream.gate->Complete(admission, result == CUDA_SUCCESS);
  if (admission.timed) streams_.Asked(stream, handle);
  return result;
}

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_SUBMIT_H_

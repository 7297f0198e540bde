// SPDX-License-Identifier: Apache-2.0
// Writes the recording of a process. Each kernel is in the file before the next one is launched, so however the process ends,
// everything before that is kept.
//
//   GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<Journal> journal, Journal::Begin(folder));
//   journal->Append(name, sms, duration);
//   journal->page().captured.fetch_add(1);
//
// Threading: Append() by one thread at a time.
#ifndef GPUSHARE_RECORD_JOURNAL_H_
#define GPUSHARE_RECORD_JOURNAL_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "record/page.h"

namespace gpushare::record {

class Journal {
 public:
  // Begins the calling process's recording in `folder`, which holds the file `orders`. A process that becomes another program
  // (exec) gets another file.
  static absl::StatusOr<std::unique_ptr<Journal>> Begin(const std::string& folder);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const Orders& orders() const { return orders_; }
  Page& page() { return *page_; }
  bool recording() const {
    return page_->state.load(std::memory_order_relaxed) == State::kRecording;
  }
  // Records a kernel; the last one that was asked for ends the recording. Returns false if the kernel is not recorded, because
  // the recording has ended or because the file cannot be written. In the latter case the file ends with the kernel before.
  bool Append(std::string_view name, uint64_t sms, Nanos duration);
  void End() { page_->state.store(State::kDone, std::memory_order_release); }

 private:
  Journal(Orders orders, base::UniqueFd rows, Page* page)
      : orders_(orders), rows_(std::move(rows)), page_(page) {}

  const Orders orders_;
  const base::UniqueFd rows_;
  Page* const page_;
  int64_t length_ = 0;  // bytes of the file's whole lines
};

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_JOURNAL_H_

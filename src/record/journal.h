// SPDX-License-Identifier: Apache-2.0
// What a process that is recorded writes. Each kernel is in its file before the next is launched, so that whatever ends the
// process leaves all that went before.
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
  // Of the calling process, in the folder that has `orders`. Another program of the same number has another file.
  static absl::StatusOr<std::unique_ptr<Journal>> Begin(const std::string& folder);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  const Orders& orders() const { return orders_; }
  Page& page() { return *page_; }
  bool recording() const {
    return page_->state.load(std::memory_order_relaxed) == State::kRecording;
  }
  // Keeps a kernel, and ends the recording with the last that was asked for. False: it is not kept, since the recording
  // has ended, or ends here because nothing can be written: the file ends with the kernel before.
  bool Append(std::string_view name, uint64_t sms, Nanos duration);
  void End() { page_->state.store(State::kDone, std::memory_order_release); }

 private:
  Journal(Orders orders, base::UniqueFd rows, Page* page)
      : orders_(orders), rows_(std::move(rows)), page_(page) {}

  const Orders orders_;
  const base::UniqueFd rows_;
  Page* const page_;
  int64_t length_ = 0;  // of the file, in whole lines
};

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_JOURNAL_H_

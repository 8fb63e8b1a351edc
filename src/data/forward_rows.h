// data/forward_rows.h: read(i) for sources that can only be scanned forward.
#pragma once

#include <memory>
#include <mutex>

#include "base/error.h"
#include "data/rows.h"

namespace weft {

// Keeps the last scan: the next row costs one step, an earlier one a new scan.
class ForwardRows : public RowSource {
 public:
  void read(int64_t i, Row& out) const override {
    ensure(i >= 0 && i < size(), "row outside the data");
    const std::lock_guard lock(mutex_);
    const bool near = scan_ && at_ <= i && i < extent_end(at_ < size() ? at_ : 0);
    if (!near) {
      scan_ = scan(i);
      at_ = i;
    }
    do {
      if (!scan_->next(out)) {
        scan_.reset();
        throw UserError(where(i) + ": the file ends before this row; was it changed?");
      }
    } while (at_++ < i);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::unique_ptr<RowScan> scan_;
  mutable int64_t at_ = 0;  // the row that scan_ returns next
};

}  // namespace weft

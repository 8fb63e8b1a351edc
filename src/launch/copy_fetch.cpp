// launch/copy_fetch.cpp: rank by rank, slot by slot.
#include "launch/copy_fetch.h"

#include <cstring>
#include <utility>

#include "base/error.h"

namespace weft {
namespace {

constexpr int64_t kFetchMs = 8000;  // for the next bytes

}  // namespace

CopyFetch::CopyFetch(std::string endpoint, const Secret& secret, int64_t node, int64_t newest,
                     std::shared_ptr<SnapshotSlots> to)
    : endpoint_(std::move(endpoint)),
      secret_(secret),
      node_(node),
      newest_(newest),
      to_(std::move(to)),
      thread_([this] {
        try {
          work();
        } catch (const std::exception&) {
          error_ = std::current_exception();
        }
        has_ended_ = true;
      }) {}

CopyFetch::~CopyFetch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    if (client_) client_->shut_down();
  }
  thread_.join();
}

bool CopyFetch::is_done() {
  if (!has_ended_) return false;
  if (error_) std::rethrow_exception(error_);
  return true;
}

void CopyFetch::work() {
  auto client = std::make_unique<SlotClient>(endpoint_, secret_, kFetchMs);
  {
    const std::lock_guard lock(mutex_);
    client_ = std::move(client);
    if (is_over_) return;
  }
  for (int r = 0; r < to_->num_ranks(); ++r) read_rank(r);
}

void CopyFetch::read_rank(int rank) {
  const auto list = client_->list(node_, rank);
  bool is_there = false;
  for (int i = 0; list && i < SnapshotSlots::kPerRank; ++i) {
    const int64_t step = list->steps[static_cast<size_t>(i)];
    if (step < 0 || step > newest_ || list->bytes == 0) continue;
    const auto layout = client_->layout(node_, rank, step), text = client_->text(node_, rank, step);
    if (!layout || !text) continue;
    to_->reserve(rank, list->bytes, *layout);
    std::byte* to = to_->begin(rank, i, step, 0);
    client_->read(
        node_, rank, step, 0, static_cast<size_t>(list->bytes),
        [&](const std::byte* data, size_t at, size_t size) { std::memcpy(to + at, data, size); });
    to_->finish(rank, i, *text);
    is_there = is_there || step == newest_;
  }
  if (!is_there)
    throw PeerError(fmt::format("{} keeps no copy of step {} of rank {} of node {}", endpoint_,
                                newest_, rank, node_));
}

}  // namespace weft

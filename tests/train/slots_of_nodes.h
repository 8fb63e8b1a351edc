// tests/train/slots_of_nodes.h: several nodes with their slot services, in one process.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/rank_file.h"
#include "net/slot_service.h"
#include "net/store.h"
#include "train/recovery.h"

namespace weft::testing {

// Every rank holds num_tensors slices of tensors "t0", "t1" ... that all of them share, each its
// stretch of kElements; element i of a tensor is i.
class SlotsOfNodes {
 public:
  static constexpr int64_t kElements = 4;

  // secret_file: is written.
  SlotsOfNodes(std::filesystem::path secret_file, int num_nodes, int per_node, int num_tensors)
      : secret_file_(std::move(secret_file)),
        per_node_(per_node),
        num_tensors_(num_tensors),
        num_ranks_(num_nodes * per_node) {
    secret_.write_new_file(secret_file_);
    StoreClient store(store_.endpoint(), 20'000, &secret_);
    for (int n = 0; n < num_nodes; ++n) {
      nodes_.push_back(std::make_unique<Node>(per_node, secret_));
      nodes_.back()->service.show(n, nodes_.back()->slots);
      store.set(slots_key(n), nodes_.back()->service.endpoint());
    }
  }

  // Into slot 0 of every rank.
  void take(int64_t step) {
    for (int rank = 0; rank < num_ranks_; ++rank) take(rank, step);
  }
  void take(int rank, int64_t step) {
    const int local = rank % per_node_;
    SnapshotSlots& slots = slots_of(rank / per_node_);
    std::vector<float> values;
    for (int64_t i = 0; i < kElements; ++i)
      values.push_back(static_cast<float>(rank * kElements + i));
    const RankFile file(slices(rank, values.data()), rank);
    const IndexPart index = file.index();
    slots.reserve(local, static_cast<int64_t>(file.bytes()),
                  index_to_json(index.tensors, index.headers, 1).dump());
    file.copy_to(slots.begin(local, 0, step, 0), nullptr);
    slots.finish(local, 0, R"({"state":{"step":1},"about":{}})");
  }

  RankPlace place(int rank) const {
    RankPlace place;
    place.rank = rank;
    place.world = nodes_[static_cast<size_t>(rank / per_node_)]->world;
    place.slots = nodes_[static_cast<size_t>(rank / per_node_)]->slots;
    place.node = NodePlace{rank / per_node_ * per_node_, num_ranks_, store_.endpoint(), "127.0.0.1",
                           secret_file_};
    return place;
  }
  // What a rank's own slot has; what all ranks together have.
  std::vector<Slice> slices(int rank, float* data = nullptr) const {
    return slices_of(rank * kElements, (rank + 1) * kElements, data);
  }
  std::vector<Slice> all_slices(float* data = nullptr) const {
    return slices_of(0, num_elements(), data);
  }
  int64_t num_elements() const { return num_ranks_ * kElements; }
  SnapshotSlots& slots_of(int node) { return *nodes_[static_cast<size_t>(node)]->slots; }
  SlotService& service_of(int node) { return nodes_[static_cast<size_t>(node)]->service; }
  const Secret& secret() const { return secret_; }

 private:
  struct Node {
    Node(int per_node, const Secret& secret)
        : world(ShmWorld::create({.num_ranks = per_node})),
          slots(SnapshotSlots::create(per_node)),
          service("127.0.0.1", secret) {}
    std::shared_ptr<ShmWorld> world;
    std::shared_ptr<SnapshotSlots> slots;
    SlotService service;
  };
  std::vector<Slice> slices_of(int64_t begin, int64_t end, float* data) const {
    std::vector<Slice> all;
    for (int t = 0; t < num_tensors_; ++t) {
      Slice slice = whole_tensor(fmt::format("t{}", t), {num_elements()}, Dtype::kF32, data);
      slice.flat_begin = begin;
      slice.flat_end = end;
      all.push_back(std::move(slice));
    }
    return all;
  }

  const std::filesystem::path secret_file_;
  const int per_node_, num_tensors_, num_ranks_;
  const Secret secret_ = Secret::random();
  StoreServer store_{"127.0.0.1", "0", &secret_};
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace weft::testing

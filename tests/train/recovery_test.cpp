// tests/train/recovery_test.cpp: slots of several nodes as one checkpoint: what is asked of whom,
// and memory that cannot be read.
#include "train/recovery.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/slots_of_nodes.h"

namespace weft::testing {
namespace {

class Recovery : public ::testing::Test {
 protected:
  Recovery() { nodes_.take(7); }

  // The elements of the first tensor, as a rank reads them.
  std::vector<float> read_all(int rank) {
    const RankPlace place = nodes_.place(rank);
    RemoteSlots others(place);
    const CheckpointReader reader = open_snapshots(place, 7, nodes_.all_slices(), &others);
    std::vector<float> values(static_cast<size_t>(nodes_.num_elements()), -1);
    reader.read(nodes_.all_slices(values.data()).front());
    return values;
  }
  void expect_fault(int rank, const std::string& part) {
    try {
      static_cast<void>(read_all(rank));
      ADD_FAILURE() << "nothing is missing";
    } catch (const PeerError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
    const std::string fault = nodes_.place(rank).world->memory_fault();
    EXPECT_NE(fault.find(part), std::string::npos) << fault;
  }

  TemporaryFolder folder_;
  SlotsOfNodes nodes_{folder_ / "secret", 3, 2, 2};
};

TEST_F(Recovery, ReadsWhatTheSlotsOfAllNodesHold) {
  for (const int rank : {0, 3, 5}) {
    const std::vector<float> values = read_all(rank);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(i));
    EXPECT_EQ(nodes_.place(rank).world->memory_fault(), "");
  }
}

TEST_F(Recovery, AsksNobodyForWhatItsOwnNodeHolds) {
  RankPlace place = nodes_.place(3);
  place.node->store = "127.0.0.1:1";  // where nobody listens
  RemoteSlots others(place);
  static_cast<void>(open_snapshots(place, 7, nodes_.slices(3), &others));
  static_cast<void>(open_snapshots(place, 7, nodes_.slices(2), &others));
  EXPECT_EQ(place.world->memory_fault(), "");
  EXPECT_THROW(static_cast<void>(open_snapshots(place, 7, nodes_.slices(0), &others)), PeerError);
}

TEST_F(Recovery, AStepThatANodeHasNoMoreIsAFaultOfMemory) {
  nodes_.slots_of(2).drop(1, 0);
  expect_fault(0, "rank 0 cannot read the snapshots of step 7: node 2 does not have them any more");
  EXPECT_EQ(nodes_.place(2).world->memory_fault(), "");  // another node's ranks have not noticed
}

TEST_F(Recovery, ALayoutThatIsDamagedIsAFaultOfMemory) {
  SnapshotSlots& slots = nodes_.slots_of(1);
  slots.reserve(0, slots.bytes(0), "{\"tensors\":");
  static_cast<void>(slots.begin(0, 0, 7, 0));
  slots.finish(0, 0, "");
  expect_fault(0, "the snapshot of rank 2");
}

TEST_F(Recovery, ASlotThatVanishesWhileItIsReadIsAFaultOfMemory) {
  const RankPlace place = nodes_.place(0);
  RemoteSlots others(place);
  const CheckpointReader reader = open_snapshots(place, 7, nodes_.all_slices(), &others);
  nodes_.slots_of(1).drop(1, 0);
  std::vector<float> values(static_cast<size_t>(nodes_.num_elements()));
  EXPECT_THROW(reader.read(nodes_.all_slices(values.data()).front()), PeerError);
  EXPECT_NE(place.world->memory_fault().find("no snapshot of step 7"), std::string::npos);
}

TEST_F(Recovery, ElementsThatNobodyHoldsAreAFaultOfMemory) {
  std::vector<Slice> needed = nodes_.all_slices();
  needed.push_back(whole_tensor("another", {3}, Dtype::kF32, nullptr));
  const RankPlace place = nodes_.place(0);
  RemoteSlots others(place);
  EXPECT_THROW(static_cast<void>(open_snapshots(place, 7, needed, &others)), PeerError);
  EXPECT_NE(place.world->memory_fault().find("\"another\": 0 elements are there, 3 are wanted"),
            std::string::npos)
      << place.world->memory_fault();
}

}  // namespace
}  // namespace weft::testing

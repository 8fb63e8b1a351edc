// tests/checkpoint/dcp_test.cpp: chunks of torch.distributed.checkpoint, joined; and lies about
// them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint/logical.h"
#include "tests/checkpoint/foreign_files.h"
#include "tests/checkpoint/read_back.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::floats;
using testing::put;
using testing::read_all;
using testing::refusal;
using testing::TemporaryFolder;
using testing::TorchBytes;
using testing::pickled::dict;
using testing::pickled::global;
using testing::pickled::list;
using testing::pickled::number;
using testing::pickled::size;
using testing::pickled::text;
using testing::pickled::tuple;
using testing::pickled::whole;

const std::string kModule = "torch.distributed.checkpoint.metadata";

std::string object(const std::string& module, const std::string& name, const std::string& state) {
  return global(module, name) + ")\x81" + state + "b";
}

struct Chunk {
  std::vector<int64_t> offset, extent;
  std::string file;
  int64_t begin, length;
};
struct Stored {
  std::vector<std::string> path;
  std::vector<int64_t> shape;
  std::vector<Chunk> chunks;
  std::string type = "float32";
};

class DcpFolder {
 public:
  // Appends a tensor to a file, as DCP does: archives one after the other.
  Chunk add(const std::string& file, const std::vector<float>& values,
            const std::vector<int64_t>& offset, const std::vector<int64_t>& extent) {
    TorchBytes torch;
    const std::string archive = torch.file(torch.tensor(floats(values), extent));
    std::string& bytes = files[file];
    bytes += archive;
    const auto length = static_cast<int64_t>(archive.size());
    return {offset, extent, file, static_cast<int64_t>(bytes.size()) - length, length};
  }
  std::string metadata() const {
    std::string tensors = "}(", places = "}(", paths = "}(";
    for (const auto& [name, t] : stored) {
      std::vector<std::string> chunks, keys;
      for (const Chunk& c : t.chunks) {
        chunks.push_back(object(kModule, "ChunkStorageMetadata",
                                dict({{"offsets", size(c.offset)}, {"sizes", size(c.extent)}})));
        places += object(kModule, "MetadataIndex",
                         dict({{"fqn", text(name)}, {"offset", size(c.offset)}})) +
                  object("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                         dict({{"relative_path", text(c.file)},
                               {"offset", number(c.begin)},
                               {"length", number(c.length)},
                               {"transform_descriptors", transforms}}));
      }
      const std::string properties =
          object(kModule, "TensorProperties", tuple({global("torch", t.type), "N", "\x89"}));
      tensors += text(name) + object(kModule, "TensorStorageMetadata",
                                     dict({{"properties", properties},
                                           {"size", size(t.shape)},
                                           {"chunks", list(chunks)}}));
      for (const std::string& key : t.path) keys.push_back(text(key));
      paths += text(name) + tuple(keys);
    }
    tensors += text("step") + object(kModule, "BytesStorageMetadata", "}");
    return whole(object(kModule, "Metadata",
                        dict({{"state_dict_metadata", tensors + "u"},
                              {"planner_data", paths + "u"},
                              {"storage_data", places + "u"}})));
  }
  void store(const fs::path& folder) const {
    put(folder / ".metadata", metadata());
    for (const auto& [name, bytes] : files) put(folder / name, bytes);
  }
  std::map<std::string, std::string> files;
  std::map<std::string, Stored> stored;
  std::string transforms = "N";
};

// A weight of 3 x 2 in two chunks of rows, its first moment in two of columns, and other tensors.
DcpFolder two_ranks() {
  DcpFolder dcp;
  const std::string one = "__0_0.distcp", two = "__1_0.distcp";
  dcp.stored["model.w"] = {
      {"model", "w"},
      {3, 2},
      {dcp.add(one, {0, 1, 2, 3}, {0, 0}, {2, 2}), dcp.add(two, {4, 5}, {2, 0}, {1, 2})}};
  dcp.stored["optim.state.w.exp_avg"] = {
      {"optim", "state", "w", "exp_avg"},
      {3, 2},
      {dcp.add(one, {0, 2, 4}, {0, 0}, {3, 1}), dcp.add(two, {1, 3, 5}, {0, 1}, {3, 1})}};
  dcp.stored["optim.state.w.step"] = {
      {"optim", "state", "w", "step"}, {}, {dcp.add(one, {3}, {}, {})}};
  dcp.stored["extra"] = {{"extra"}, {1}, {dcp.add(two, {9}, {0}, {1})}};
  return dcp;
}

TEST(Dcp, ChunksAreJoinedUnderTheModelsNames) {
  TemporaryFolder folder;
  two_ranks().store(folder / "dcp");
  const LogicalModel model = open_logical((folder / "dcp").string());
  EXPECT_EQ(model.format, "torch.distributed.checkpoint folder");
  ASSERT_EQ(model.weights.size(), 1u);
  EXPECT_EQ(model.weights[0].name, "w");
  EXPECT_EQ(model.weights[0].shape, (Shape{3, 2}));
  EXPECT_EQ(read_all(model.weights[0]), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  ASSERT_EQ(model.states.size(), 1u);
  EXPECT_EQ(model.states[0].name, "w#m");
  EXPECT_EQ(read_all(model.states[0]), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(model.details.at("chunks").as_int(), 4);
  ASSERT_EQ(model.notes.size(), 1u);  // the step, and what is outside the model
  EXPECT_TRUE(model.notes[0].starts_with("2 tensors")) << model.notes[0];
}

TEST(Dcp, WithoutAModelKeyEveryTensorIsAWeight) {
  TemporaryFolder folder;
  DcpFolder dcp;
  dcp.stored["model.w"] = {{"model.w"}, {1}, {dcp.add("__0_0.distcp", {1}, {0}, {1})}};
  dcp.stored["lm_head"] = {{"lm_head"}, {1}, {dcp.add("__0_0.distcp", {2}, {0}, {1})}};
  dcp.stored["odd"] = {{"odd"}, {1}, {dcp.add("__0_0.distcp", {2}, {0}, {1})}, "complex64"};
  dcp.store(folder / "dcp");
  put(folder / "config.json", R"({"model_type": "x"})");
  const LogicalModel model = open_logical((folder / "dcp").string());
  ASSERT_EQ(model.weights.size(), 2u);
  EXPECT_EQ(model.weights[1].name, "model.w");
  EXPECT_EQ(model.config.at("model_type").as_string(), "x");  // of the folder above
  EXPECT_EQ(model.unread.at("odd"), "is of torch.complex64, which weft does not have");
}

TEST(Dcp, LiesAreNamed) {
  TemporaryFolder folder;
  const auto with = [&](auto change) {
    DcpFolder dcp = two_ranks();
    change(dcp, dcp.stored["model.w"].chunks);
    dcp.store(folder / "dcp");
    return refusal(folder / "dcp");
  };
  using Chunks = std::vector<Chunk>;
  for (const char* path : {"../__1_0.distcp", "/etc/passwd", "x/y", "..", ""}) {
    EXPECT_NE(
        with([&](DcpFolder&, Chunks& c) { c[1].file = path; }).find("wanted a file in this folder"),
        std::string::npos)
        << path;
  }
  const auto expect = [&](auto change, const char* message) {
    const std::string refused = with(change);
    EXPECT_NE(refused.find(message), std::string::npos) << refused;
  };
  expect([](DcpFolder&, Chunks& c) { c[1].file = "__7_0.distcp"; }, "__7_0.distcp is missing");
  expect([](DcpFolder&, Chunks& c) { c[1].length += 1 << 20; }, "is truncated");
  expect([](DcpFolder&, Chunks& c) { c[1].begin += 1; }, "not a zip archive");
  expect([](DcpFolder&, Chunks& c) { c[1].begin = -1; }, "bytes at -1");
  expect([](DcpFolder&, Chunks& c) { c[1].length -= 5; }, "end record");
  expect([](DcpFolder&, Chunks& c) { c.pop_back(); }, "hold 4 of 6 elements");
  expect([](DcpFolder&, Chunks& c) { c[1].offset = {1, 0}; }, "hold the same elements");
  expect([](DcpFolder&, Chunks& c) { c[1].offset = {3, 0}; }, "\"model.w\"");
  expect([](DcpFolder& d, Chunks&) { d.stored["model.w"].type = "float16"; }, "fp32 (2, 2)");
  expect([](DcpFolder& d, Chunks&) { d.transforms = list({text("zstd")}); }, "transform");
  put(folder / "dcp/.metadata", whole(dict({})));
  EXPECT_NE(refusal(folder / "dcp").find("wanted the metadata"), std::string::npos);
}

TEST(Dcp, DamagedMetadataNeverCrashes) {
  TemporaryFolder folder;
  const DcpFolder dcp = two_ranks();
  dcp.store(folder / "dcp");
  const std::string good = dcp.metadata();
  int opened = 0;
  const auto damage = [&](const std::string& bytes) {
    put(folder / "dcp/.metadata", bytes);
    try {
      for (const LogicalTensor& t : open_logical((folder / "dcp").string()).weights) {
        if (num_elements(t.shape) < 1000 && t.dtype == Dtype::kF32) read_all(t);
      }
      ++opened;
    } catch (const UserError&) {
    }
  };
  for (size_t n = 0; n < good.size(); n += 29) damage(good.substr(0, n));
  EXPECT_EQ(opened, 0);
  for (size_t i = 0; i < good.size(); i += 11) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    damage(bad);
  }
  damage(good);
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace weft

// tests/checkpoint/export_torch_test.cpp: exports for torch's training programs, read back by the
// strict readers of what those programs write.
#include "checkpoint/export_torch.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/compare.h"
#include "io/dcp_metadata.h"
#include "io/torch_file.h"
#include "tests/checkpoint/foreign_files.h"
#include "tests/checkpoint/model_fixture.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::put;
using testing::store_checkpoint;
using testing::TemporaryFolder;

class ExportTorch : public ::testing::Test {
 protected:
  // Four ranks, uneven cuts, masters and both moments.
  ExportTorch() {
    store_checkpoint(folder_ / "c", 2, 2, 1, true);
    optimizer_.step = 12;
    optimizer_.lr = 0.5;
    optimizer_.initial_lr = 1;
  }
  LogicalModel open(const std::string& name) const {
    return open_logical((folder_ / name).string());
  }
  void expect_same(const std::string& name) const {
    for (const TensorDifference& d : compare_models(open("c"), open(name)).differences)
      ADD_FAILURE() << to_string(d);
  }
  std::map<std::string, DcpTensor> metadata(const std::string& name) const {
    return parse_dcp_metadata(read_file(folder_ / name / ".metadata"), name);
  }
  // The value that .metadata of an export calls `name`.
  std::string value(const std::string& folder, const std::string& name) const {
    const std::string bytes = read_file(folder_ / folder / ".metadata");
    const Pickle pickle(bytes, folder);
    const PickleValue storage = pickle.root().state()->at("storage_data");
    for (size_t i = 0; i < storage.num_entries(); ++i) {
      if (storage.key(i).state()->at("fqn").as_string() != name) continue;
      const PickleValue info = *storage.value(i).state();
      return read_file(folder_ / folder / std::string(info.at("relative_path").as_string()))
          .substr(static_cast<size_t>(info.at("offset").as_int()),
                  static_cast<size_t>(info.at("length").as_int()));
    }
    ADD_FAILURE() << "no " << name;
    return "";
  }
  TemporaryFolder folder_;
  TorchOptimizer optimizer_;
};

TEST_F(ExportTorch, DcpHoldsWeightsAndMoments) {
  export_dcp(open("c"), optimizer_, folder_ / "out", {});
  expect_same("out");
  EXPECT_EQ(open("out").states.size(), 8u);
  EXPECT_EQ(read_file(folder_ / "out/tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(folder_ / "out/__0_1.distcp"));
  EXPECT_FALSE(fs::exists(folder_ / "out.writing"));
}

// transformers' state_dict() has a tied head under both names; the bytes are stored once.
TEST_F(ExportTorch, DcpNamesTheTiedHead) {
  export_dcp(open("c"), optimizer_, folder_ / "out", {});
  const auto tensors = metadata("out");
  const DcpChunk& head = tensors.at("model.lm_head.weight").chunks.at(0);
  const DcpChunk& embedding = tensors.at("model.model.embed_tokens.weight").chunks.at(0);
  EXPECT_EQ(head.begin, embedding.begin);
  EXPECT_EQ(head.end, embedding.end);
  EXPECT_FALSE(tensors.contains("optim.state.lm_head.weight.exp_avg"));
}

TEST_F(ExportTorch, DcpCutsLargeTensorsAndFiles) {
  ExportOptions options;
  options.max_shard_bytes = 100;  // 4 of 11 rows of the embedding
  export_dcp(open("c"), optimizer_, folder_ / "out", options);
  const auto chunks = metadata("out").at("model.model.embed_tokens.weight").chunks;
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[1].offset, (Shape{4, 0}));
  EXPECT_EQ(chunks[2].extent, (Shape{3, 6}));
  EXPECT_TRUE(fs::exists(folder_ / "out/__0_2.distcp"));
  expect_same("out");
}

TEST_F(ExportTorch, DcpConvertsOnlyTheWeights) {
  ExportOptions options;
  options.dtype = Dtype::kBf16;
  export_dcp(open("c"), optimizer_, folder_ / "out", options);
  const LogicalModel out = open("out");
  for (const LogicalTensor& t : out.weights) EXPECT_EQ(t.dtype, Dtype::kBf16);
  for (const LogicalTensor& t : out.states) EXPECT_EQ(t.dtype, Dtype::kF32);
  EXPECT_EQ(out.config.at("torch_dtype").as_string(), "bfloat16");
}

TEST_F(ExportTorch, DcpGroupsByDecay) {
  optimizer_.decay_all = false;
  export_dcp(open("c"), optimizer_, folder_ / "out", {});
  const std::string bytes = value("out", "optim.param_groups.1.params");
  const TorchArchive params(bytes, "params");
  ASSERT_EQ(params.root().size(), 1u);
  EXPECT_EQ(params.root()[0].as_string(), "model.norm.weight");
  const std::string decay = value("out", "optim.param_groups.0.betas");
  EXPECT_EQ(TorchArchive(decay, "betas").root().size(), 2u);
  optimizer_.decay_all = true;
  export_dcp(open("c"), optimizer_, folder_ / "one", {});
  const std::string all = value("one", "optim.param_groups.0.params");
  EXPECT_EQ(TorchArchive(all, "params").root().size(), 4u);
}

TEST_F(ExportTorch, DcpWithoutAnOptimizerHasTheWeightsAlone) {
  export_dcp(open("c"), std::nullopt, folder_ / "out", {});
  EXPECT_EQ(open("out").weights.size(), 4u);
  EXPECT_TRUE(open("out").states.empty());
}

TEST_F(ExportTorch, DeepSpeedHoldsWeightsAndMoments) {
  export_deepspeed(open("c"), optimizer_, folder_ / "out", {});
  expect_same("out");
  const LogicalModel out = open("out");
  EXPECT_EQ(out.format, "DeepSpeed universal checkpoint");
  EXPECT_EQ(out.details.at("step").as_int(), 12);
  EXPECT_EQ(read_file(folder_ / "out/latest_universal"), "global_step12");
  expect_same("out/global_step12");
  const fs::path zero = folder_ / "out/global_step12/zero";
  const TorchFile step(zero / "model.norm.weight/step.pt");
  ASSERT_EQ(step.tensors().size(), 1u);
  float updates = 0;
  step.read(step.tensors()[0], 0, 1, &updates);
  EXPECT_EQ(updates, 12);
  const std::string bytes = read_file(zero / "optimizer_state.pt");
  const TorchArchive state(bytes, "optimizer_state.pt");
  EXPECT_EQ(state.root().at("param_groups").size(), 1u);
  EXPECT_TRUE(state.root().at("param_groups")[0].find("betas").has_value());
}

TEST_F(ExportTorch, DeepSpeedRefusesNamesThatAreNoFolders) {
  LogicalModel model = open("c");
  model.weights[0].name = "../x";
  const std::string message =
      error_of<UserError>([&] { export_deepspeed(model, optimizer_, folder_ / "out", {}); });
  EXPECT_NE(message.find("\"../x\" cannot be the name of a folder"), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  EXPECT_FALSE(fs::exists(folder_ / "out.writing"));
}

TEST_F(ExportTorch, AMissingParameterIsNamed) {
  export_deepspeed(open("c"), optimizer_, folder_ / "out", {});
  fs::remove(folder_ / "out/global_step12/zero/model.norm.weight/fp32.pt");
  EXPECT_NE(testing::refusal(folder_ / "out").find("model.norm.weight/fp32.pt is missing"),
            std::string::npos);
}

// A read that fails in the middle leaves what was there.
TEST_F(ExportTorch, AnInterruptedExportLeavesNothing) {
  export_dcp(open("c"), optimizer_, folder_ / "out", {});
  LogicalModel model = open("c");
  model.weights.back().read = [](int64_t, int64_t, void*) { throw RunError("the disk is gone"); };
  ExportOptions overwrite;
  overwrite.overwrite = true;
  EXPECT_NE(error_of<RunError>([&] {
              export_dcp(model, optimizer_, folder_ / "out", overwrite);
            }).find("gone"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "out.writing"));
  expect_same("out");
}

TEST_F(ExportTorch, OnlyExportsAreReplaced) {
  ExportOptions overwrite;
  overwrite.overwrite = true;
  export_dcp(open("c"), optimizer_, folder_ / "dcp", {});
  export_dcp(open("c"), optimizer_, folder_ / "dcp", overwrite);
  EXPECT_NE(error_of<UserError>([&] {
              export_dcp(open("c"), {}, folder_ / "dcp", {});
            }).find("--overwrite"),
            std::string::npos);
  put(folder_ / "dcp/__1_0.distcp", "of a second rank");
  const auto refused = [&](const auto& fn) {
    return error_of<UserError>(fn).find("not an export") != std::string::npos;
  };
  EXPECT_TRUE(refused([&] { export_dcp(open("c"), {}, folder_ / "dcp", overwrite); }));
  EXPECT_TRUE(refused([&] { export_deepspeed(open("c"), {}, folder_ / "dcp", overwrite); }));
  export_deepspeed(open("c"), optimizer_, folder_ / "deep", {});
  export_deepspeed(open("c"), optimizer_, folder_ / "deep", overwrite);
  put(folder_ / "deep/latest", "global_step12");
  EXPECT_TRUE(refused([&] { export_deepspeed(open("c"), {}, folder_ / "deep", overwrite); }));
}

}  // namespace
}  // namespace weft

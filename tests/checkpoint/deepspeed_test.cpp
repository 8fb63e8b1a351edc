// tests/checkpoint/deepspeed_test.cpp: partitions of ZeRO, joined; and folders that are not whole.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/digest.h"
#include "checkpoint/logical.h"
#include "tests/checkpoint/foreign_files.h"
#include "tests/checkpoint/read_back.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::digest_of;
using testing::floats;
using testing::put;
using testing::read_all;
using testing::refusal;
using testing::TemporaryFolder;
using testing::TorchBytes;
using testing::pickled::call;
using testing::pickled::dict;
using testing::pickled::global;
using testing::pickled::list;
using testing::pickled::number;
using testing::pickled::ordered;
using testing::pickled::size;
using testing::pickled::text;
using testing::pickled::tuple;

// Seven elements in two tensors, on two ranks: values 0 to 6, states 100 and 200 more.
constexpr int kStep = 12;

std::vector<float> counted(float first, size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

struct ZeroFolder {
  int stage = 2;
  std::vector<std::vector<float>> parts;  // of the only group, by rank
  bool adam = true;
  int64_t padding = 0;                      // elements by which a state is longer than the weights
  std::vector<std::string> alignment = {};  // param_alignment_paddings of the group, pickled
  std::vector<size_t> frozen_parts = {2, 2, 2};  // elements of the frozen tensor, by rank

  static std::string shapes() {
    return list({ordered(dict({{"a", size({2, 2})}, {"b", size({3})}}))});
  }
  std::string optim(size_t rank) const {
    TorchBytes torch;
    const auto flat = [&](float more) {
      std::vector<float> values = parts[rank];
      for (float& v : values) v += more;
      values.resize(values.size() + static_cast<size_t>(more > 0 ? padding : 0), -1);
      return torch.tensor(floats(values), {static_cast<int64_t>(values.size())});
    };
    const std::string states =
        dict({{"exp_avg", flat(100)}, {adam ? "exp_avg_sq" : "momentum", flat(200)}});
    const std::string base = dict({{"state", "}(" + number(0) + states + "u"}});
    const std::string stage_value =
        call("deepspeed.runtime.zero.config", "ZeroStageEnum", tuple({number(stage)}));
    const std::string paddings = alignment.empty() ? "N" : list({list(alignment)});
    const std::string zero = dict(
        {{"zero_stage", stage_value},
         {"param_alignment_paddings", paddings},
         {"loss_scaler", global("deepspeed.runtime.fp16.loss_scaler", "LossScaler") + ")\x81" +
                             dict({{"cur_scale", number(1)}}) + "b"},
         {"partition_count", number(static_cast<int64_t>(parts.size()))},
         {stage == 3 ? "optimizer_state_dict" : "base_optimizer_state", base},
         {stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups", list({flat(0)})}});
    return torch.file(dict({{"optimizer_state_dict", zero}}));
  }
  std::string part_of_frozen(size_t rank, TorchBytes& torch) const {
    const size_t n = frozen_parts[rank];
    return torch.tensor(floats(counted(50 + 2 * static_cast<float>(rank), n)),
                        {static_cast<int64_t>(n)});
  }
  std::string model(size_t rank) const {
    TorchBytes torch;
    const std::string buffer =
        torch.tensor(std::string("\x80\x3f\x00\x40", 4), {2}, "BFloat16Storage");
    const std::string frozen =
        stage == 3 ? part_of_frozen(rank, torch) : torch.tensor(floats(counted(50, 3)), {3});
    const std::string held = torch.tensor(floats({7}), {1});
    return torch.file(
        dict({{"module", ordered(dict({{"buf", buffer}, {"held", held}, {"tied", held}}))},
              {"buffer_names", list({text("buf"), text("gone")})},
              {"param_shapes", shapes()},
              {"frozen_param_shapes", ordered(dict({{"f", size({3})}}))},
              {"frozen_param_fragments", ordered(dict({{"f", frozen}}))},
              {"shared_params", dict({{"tied", text("a")}})},
              {"global_steps", number(kStep)},
              {"mp_world_size", number(1)}}));
  }
  void store(const fs::path& folder) const {
    put(folder / "latest", "global_step12");
    for (size_t r = 0; r < parts.size(); ++r) {
      const std::string rank = fmt::format("zero_pp_rank_{}_mp_rank_00", r);
      put(folder / "global_step12" / (rank + "_optim_states.pt"), optim(r));
      if (stage == 3) put(folder / "global_step12" / (rank + "_model_states.pt"), model(r));
    }
    if (stage != 3) put(folder / "global_step12/mp_rank_00_model_states.pt", model(0));
  }
};
const ZeroFolder kZero2{2, {counted(0, 4), counted(4, 3)}, true, 1};
// Every tensor in equal parts: a 0 1 | 2 3, b 4 5 | 6 and one element of padding.
const ZeroFolder kZero3{3, {{0, 1, 4, 5}, {2, 3, 6, -9}}, true, 0};

TEST(DeepSpeed, PartitionsAreJoined) {
  for (const ZeroFolder& zero : {kZero2, kZero3}) {
    SCOPED_TRACE(zero.stage);
    TemporaryFolder folder;
    zero.store(folder / "ds");
    const LogicalModel model = open_logical((folder / "ds").string());
    EXPECT_EQ(model.format, fmt::format("DeepSpeed ZeRO-{} checkpoint", zero.stage));
    EXPECT_EQ(model.details.at("step").as_int(), kStep);
    std::map<std::string, std::vector<float>> values;
    for (const auto* part : {&model.weights, &model.states}) {
      for (const LogicalTensor& t : *part) values[t.name] = read_all(t);
    }
    std::map<std::string, std::vector<float>> wanted = {
        {"a", counted(0, 4)},     {"b", counted(4, 3)},     {"tied", counted(0, 4)},
        {"buf", {1, 2}},          {"f", counted(50, 3)},    {"a#m", counted(100, 4)},
        {"b#m", counted(104, 3)}, {"a#v", counted(200, 4)}, {"b#v", counted(204, 3)}};
    if (zero.stage == 2) wanted["held"] = {7};  // under ZeRO 3 the module's tensors are empty
    EXPECT_EQ(values, wanted);
    for (const LogicalTensor& t : model.weights) {  // every range of every tensor
      const std::vector<float> all = read_all(t);
      for (int64_t begin = 0; begin < num_elements(t.shape); ++begin) {
        std::vector<float> tail(static_cast<size_t>(num_elements(t.shape) - begin));
        t.read(begin, num_elements(t.shape), tail.data());
        EXPECT_EQ(tail, std::vector<float>(all.begin() + begin, all.end())) << t.name;
      }
    }
    EXPECT_EQ(digest_of(folder / "ds/global_step12").lines, digest_of(folder / "ds").lines);
  }
}

TEST(DeepSpeed, OtherOptimizersGiveWeightsOnly) {
  TemporaryFolder folder;
  ZeroFolder zero = kZero2;
  zero.adam = false;
  zero.store(folder / "ds");
  const LogicalModel model = open_logical((folder / "ds").string());
  EXPECT_TRUE(model.states.empty());
  ASSERT_EQ(model.notes.size(), 1u);
  EXPECT_NE(model.notes[0].find("weights only"), std::string::npos);
  EXPECT_EQ(model.weights.size(), 6u);
}

TEST(DeepSpeed, ConfigIsFoundAbove) {
  TemporaryFolder folder;
  kZero2.store(folder / "run/ds");
  put(folder / "run/config.json", R"({"model_type": "llama"})");
  put(folder / "run/tokenizer.json", "{}");
  const LogicalModel model = open_logical((folder / "run/ds").string());
  EXPECT_EQ(model.config.at("model_type").as_string(), "llama");
  EXPECT_EQ(read_side_files(model).size(), 1u);
}

TEST(DeepSpeed, WhatIsMissingOrOtherIsNamed) {
  TemporaryFolder folder;
  const fs::path ds = folder / "ds", step = ds / "global_step12";
  kZero2.store(ds);
  for (const char* tag : {"../ds/global_step12", "/etc", "..", ""}) {
    put(ds / "latest", tag);
    EXPECT_NE(refusal(ds).find("wanted a folder beside it"), std::string::npos) << tag;
  }
  put(ds / "latest", "global_step13\n");
  EXPECT_NE(refusal(ds).find("global_step13, which holds no"), std::string::npos);
  put(ds / "latest", "global_step12\n");
  EXPECT_EQ(open_logical(ds.string()).weights.size(), 6u);

  const fs::path second = step / "zero_pp_rank_1_mp_rank_00_optim_states.pt";
  const std::string bytes = read_file(second);
  fs::remove(second);
  EXPECT_NE(refusal(ds).find("1 files *_optim_states.pt, but 2 ranks wrote it"), std::string::npos);
  put(step / "zero_pp_rank_2_mp_rank_00_optim_states.pt", bytes);
  EXPECT_NE(refusal(ds).find("of rank 1"), std::string::npos);
  fs::remove(step / "zero_pp_rank_2_mp_rank_00_optim_states.pt");
  put(second, bytes.substr(0, bytes.size() - 9));
  EXPECT_NE(refusal(ds).find("rank_1_mp_rank_00_optim_states.pt"), std::string::npos);
  put(second, bytes);
  put(step / "mp_rank_01_model_states.pt", "x");
  EXPECT_NE(refusal(ds).find("tensor-parallel rank 1"), std::string::npos);
  fs::remove(step / "mp_rank_01_model_states.pt");
  put(step / "layer_01-model_00-model_states.pt", "x");
  EXPECT_NE(refusal(ds).find("pipeline stage"), std::string::npos);
}

TEST(DeepSpeed, PartitionsMustFitTheParameters) {
  TemporaryFolder folder;
  ZeroFolder{2, {counted(0, 4), counted(4, 2)}, true, 0}.store(folder / "short");
  EXPECT_NE(refusal(folder / "short").find("end inside \"b\""), std::string::npos);
  ZeroFolder{2, {counted(0, 9), counted(9, 9)}, true, 0}.store(folder / "long");
  EXPECT_NE(refusal(folder / "long").find("take 7 of 18 elements"), std::string::npos);
  ZeroFolder{3, {{0, 1, 4}, {2, 3, 6}}, true, 0}.store(folder / "short3");
  EXPECT_NE(refusal(folder / "short3").find("end inside \"b\""), std::string::npos);
}

// a is 0 1 | 2 3 | two of padding, b is 4 | 5 | 6: with a rank that is one element shorter or
// longer all that follows would be shifted.
TEST(DeepSpeed, RanksOfZero3HoldEqualParts) {
  TemporaryFolder folder;
  const auto with = [&](const std::vector<std::vector<float>>& parts) {
    ZeroFolder zero{3, parts, true, 0};
    zero.frozen_parts = {1, 1, 1};
    fs::remove_all(folder / "ds");
    zero.store(folder / "ds");
    return folder / "ds";
  };
  const std::vector<std::vector<float>> good = {{0, 1, 4}, {2, 3, 5}, {-9, -9, 6}};
  const LogicalModel model = open_logical(with(good).string());
  EXPECT_EQ(read_all(model.weights[0]), counted(0, 4));
  EXPECT_EQ(model.weights[0].name, "a");
  EXPECT_NE(refusal(with({good[0], {2, 3}, good[2]})).find("rank 1 holds 2 elements, rank 0 holds"),
            std::string::npos);
  EXPECT_NE(refusal(with({good[0], {2, 3, 5, 7}, good[2]})).find("rank 1 holds 4 elements"),
            std::string::npos);
  EXPECT_NE(refusal(with({good[0], good[1], {-9, -9, 6, 7}})).find("rank 2 holds 4 elements"),
            std::string::npos);
}

TEST(DeepSpeed, FrozenPartsMustBeEqual) {
  TemporaryFolder folder;
  ZeroFolder zero = kZero3;
  zero.frozen_parts = {1, 3};
  zero.store(folder / "ds");
  EXPECT_NE(refusal(folder / "ds").find("rank 0 holds 1 elements of the frozen \"f\", wanted 2"),
            std::string::npos);
  zero.frozen_parts = {2, 1};
  zero.store(folder / "ds");
  EXPECT_NE(refusal(folder / "ds").find("rank 1 holds 1 elements of the frozen"),
            std::string::npos);
}

// ZeRO 1 of bf16 aligns every tensor in the flat group by elements that belong to none.
TEST(DeepSpeed, PaddingBetweenTensorsIsSkipped) {
  TemporaryFolder folder;
  ZeroFolder zero{2, {{0, 1, 2, 3, -9}, {-9, 4, 5, 6, -9}}, true, 0};
  zero.alignment = {number(2), number(1)};
  zero.store(folder / "ds");
  const LogicalModel model = open_logical((folder / "ds").string());
  std::map<std::string, std::vector<float>> values;
  for (const LogicalTensor& t : model.weights) values[t.name] = read_all(t);
  EXPECT_EQ(values.at("a"), counted(0, 4));
  EXPECT_EQ(values.at("b"), counted(4, 3));
  ASSERT_EQ(model.states.size(), 4u);
  EXPECT_EQ(read_all(model.states[2]), counted(104, 3)) << model.states[2].name;

  zero.alignment = {number(4), number(0)};
  zero.store(folder / "ds");
  EXPECT_NE(refusal(folder / "ds").find("end inside \"b\""), std::string::npos);
  const std::string most = "\x8a\x08" + std::string(7, '\xff') + "\x7f";  // the largest int64
  zero.alignment = {most, number(0)};
  zero.store(folder / "ds");
  EXPECT_NE(refusal(folder / "ds").find("end inside \"b\""), std::string::npos);
  zero.alignment = {number(2)};
  zero.store(folder / "ds");
  EXPECT_NE(refusal(folder / "ds").find("of 1 elements"), std::string::npos);
}

}  // namespace
}  // namespace weft

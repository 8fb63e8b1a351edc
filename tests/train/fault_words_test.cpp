// tests/train/fault_words_test.cpp: values of WEFT_FAULT, and where a fault would have no effect.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "tests/batch_lists.h"
#include "tests/expect_part.h"
#include "tests/io/temporary_folder.h"
#include "train/faults.h"

namespace weft {
namespace {

using testing::error_of;
using testing::expect_part;

std::optional<Fault> read(const char* words) {
  ::setenv(kFaultVariable, words, 1);
  try {
    const std::optional<Fault> fault = Fault::from_environment();
    ::unsetenv(kFaultVariable);
    return fault;
  } catch (...) {
    ::unsetenv(kFaultVariable);
    throw;
  }
}

std::string refused(const char* words) {
  return error_of<UserError>([&] { read(words); });
}

TEST(Fault, IsNoneWithoutTheVariable) {
  ::unsetenv(kFaultVariable);
  EXPECT_FALSE(Fault::from_environment().has_value());
  EXPECT_FALSE(read("").has_value());
}

TEST(Fault, InvalidValuesAreNamed) {
  for (const char* words : {"flip", "swap,step=3", "double,tensor=a.b,rank=0", "norm",
                            "copy,rank=1", "flip,step=123456789"})
    EXPECT_TRUE(read(words).has_value()) << words;
  expect_part(refused("flib"), "no fault \"flib\"");
  expect_part(refused("flib"), "flip");
  expect_part(refused(",step=1"), "no fault \"\"");
  for (const char* words :
       {"flip,step=", "flip,step", "flip,rank=1x", "flip,rank=-1", "flip,step=1234567890"})
    expect_part(refused(words), "needs a number");
  expect_part(refused("flip,where=1"), "\"where=1\"; wanted: step, rank or tensor");
}

// Eight rows, one in a pass, in three layouts.
struct Place {
  Layout layout;
  RunConfig config;
  Place(int dp, int tp, Shard shard, bool is_exact, int64_t rows = 8) {
    layout.dp = dp;
    layout.tp = tp;
    layout.shard = shard;
    layout.is_exact = is_exact;
    config.parallel.dp = dp;
    config.parallel.tp = tp;
    config.parallel.mode = is_exact ? "exact" : "fast";
    config.train.global_batch = rows;
    config.train.micro_batch = 1;
    config.train.steps = 5;
  }
  std::string refuses(const char* words) const {
    const Fault fault = *read(words);
    try {
      fault.check(config, layout);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }
};

TEST(Fault, IsRejectedWithoutEffect) {
  const Place one(1, 1, Shard::kNone, true), fast(1, 1, Shard::kNone, false);
  EXPECT_EQ(one.refuses("flip"), "");
  EXPECT_EQ(one.refuses("flip,step=5"), "");
  expect_part(one.refuses("flip,step=6"), "the run has 5 steps");
  expect_part(one.refuses("flip,step=0"), "steps count from 1");
  expect_part(one.refuses("flip,rank=1"), "there is no rank 1 of 1");
  expect_part(fast.refuses("flip"), "set parallel.mode to exact");
  EXPECT_EQ(fast.refuses("double"), "");
  EXPECT_EQ(fast.refuses("norm,step=6"), "");  // in every step
  expect_part(fast.refuses("norm,tensor=a"), "does not accept a tensor");
  expect_part(fast.refuses("swap"), "needs exact mode and three passes");
  EXPECT_EQ(Place(1, 1, Shard::kNone, true, 3).refuses("swap"), "");
  expect_part(Place(1, 1, Shard::kNone, true, 2).refuses("swap"), "three passes");
  Place epochs = one;
  epochs.config.train.steps.reset();
  EXPECT_EQ(epochs.refuses("flip,step=99"), "");
}

TEST(Fault, OfACopyNeedsCopies) {
  const auto refuses = [](int dp, int tp, Shard shard) {
    return Place(dp, tp, shard, false).refuses("copy");
  };
  expect_part(refuses(1, 1, Shard::kNone), "no rank of dp=1 holds copies");
  EXPECT_EQ(refuses(2, 1, Shard::kNone), "");
  EXPECT_EQ(refuses(2, 1, Shard::kZero2), "");
  expect_part(refuses(2, 1, Shard::kZero3), "holds copies");
  EXPECT_EQ(refuses(2, 2, Shard::kZero3), "");
  EXPECT_EQ(refuses(1, 2, Shard::kZero3), "");
}

std::unique_ptr<Model> qwen2() {
  Json c;
  c.set("architectures", Json(Json::Array{Json("Qwen2ForCausalLM")}));
  for (const auto& [key, value] : {std::pair{"hidden_size", 16},
                                   {"intermediate_size", 32},
                                   {"num_hidden_layers", 1},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"vocab_size", 64}})
    c.set(key, value);
  return make_model(c, {});
}

TEST(Fault, MustNameATensorOfTheModel) {
  const auto model = qwen2();
  Place at(1, 1, Shard::kNone, true);
  const auto refuses = [&](const char* words) -> std::string {
    const Fault fault = *read(words);
    try {
      fault.check(at.config, at.layout, model.get());
    } catch (const UserError& e) {
      return std::string(e.what()) + e.hint();
    }
    return "";
  };
  EXPECT_EQ(refuses("flip"), "");
  EXPECT_EQ(refuses("flip,tensor=model.layers.0.self_attn.q_proj.weight"), "");
  expect_part(refuses("flip,tensor=nosuch"), "the model has no parameter \"nosuch\"");
  expect_part(refuses("flip,tensor=nosuch"), "`weft inspect`");
  expect_part(refuses("flip,tensor=model.norm.weigh"), "model.norm.weight");
  EXPECT_EQ(refuses("double"), "");
  EXPECT_EQ(refuses("double,tensor=model.norm.weight"), "");
  expect_part(refuses("double,tensor=model.layers.0.self_attn.q_proj.weight"), "has no vector \"");
  expect_part(refuses("double,tensor=model.layers.0.self_attn.q_proj.bias"),
              "is cut over tensor-parallel ranks");
  at.config.model.freeze = {"model.norm.*"};
  expect_part(refuses("double,tensor=model.norm.weight"), "model.norm.weight is frozen");
  EXPECT_EQ(refuses("flip,tensor=model.norm.weight"), "");  // found when no gradient is held
  EXPECT_EQ(refuses("double"), "");
  at.config.model.freeze = {"*norm*"};
  expect_part(refuses("double"), "no vector that is trained and on all ranks");
}

TEST(Fault, OfAStepThatWasNotRunIsAnError) {
  const Fault fault = *read("flip,step=5");
  fault.check_fired(1, 5);
  fault.check_fired(5, 9);
  for (const auto& [first, last] : {std::pair<int64_t, int64_t>{1, 4}, {6, 9}})
    EXPECT_THROW(fault.check_fired(first, last), RunError);
  read("norm,step=5")->check_fired(1, 2);
}

// Two rows in a pass: those of the second and the third pass are swapped.
TEST(Fault, SwapExchangesTheRowsOfTwoPasses) {
  Place at(1, 1, Shard::kNone, true);
  at.config.parallel.exact_rows = 2;
  const Ranks ranks(at.layout);
  Batch batch;
  testing::BatchLists lists;
  for (int32_t row = 0; row < 8; ++row) {
    lists.lengths.push_back(row);
    lists.numbers.push_back(100 + row);
    for (int32_t t = 0; t < 3; ++t) {
      lists.ids.push_back(10 * row + t);
      lists.targets.push_back(1000 + 10 * row + t);
    }
  }
  lists.put(3, &batch);
  const Fault fault = *read("swap,step=2");
  Batch other = batch;
  fault_before_passes(fault, 1, at.config, ranks, &other);
  EXPECT_EQ(testing::list_of(other, "ids"), lists.ids);
  fault_before_passes(fault, 2, at.config, ranks, &other);
  const std::vector<int32_t> wanted = {0, 1, 4, 5, 2, 3, 6, 7};
  EXPECT_EQ(testing::list_of(other, "lengths"), wanted);
  for (size_t i = 0; i < 24; ++i) {
    const size_t from = static_cast<size_t>(wanted[i / 3]) * 3 + i % 3;
    EXPECT_EQ(other.values("ids")[i], lists.ids[from]);
    EXPECT_EQ(other.values("targets")[i], lists.targets[from]);
    EXPECT_EQ(other.values<int64_t>("rows")[i / 3 * 2 + 1], 100 + wanted[i / 3]);
  }
  fault_before_passes(*read("flip,step=2"), 2, at.config, ranks, &batch);
  EXPECT_EQ(batch.values("lengths")[2], 2);
}

}  // namespace
}  // namespace weft

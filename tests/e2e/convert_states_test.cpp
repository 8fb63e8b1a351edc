// tests/e2e/convert_states_test.cpp: a run that goes on in another precision, to the bit.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "checkpoint/checkpoint.h"
#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
using Sets = std::vector<std::string>;

const Sets kFp32 = {"train.precision=fp32"}, kMasters = {"train.precision=bf16"},
           kPure = {"train.precision=bf16", "train.master_weights=false"};

Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A tensor of a checkpoint as fp32 values, and its type.
struct Values {
  Dtype dtype;
  std::vector<uint32_t> bits;  // of the fp32 values
};

std::map<std::string, Values> values_of(const fs::path& folder) {
  const CheckpointReader reader(folder);
  std::map<std::string, Values> all;
  for (const auto& [name, tensor] : reader.tensors()) {
    const auto n = static_cast<size_t>(num_elements(tensor.shape));
    std::vector<std::byte> bytes(n * static_cast<size_t>(dtype_bytes(tensor.dtype)));
    reader.read(whole_tensor(name, tensor.shape, tensor.dtype, bytes.data()));
    Values values{tensor.dtype, std::vector<uint32_t>(n)};
    for (size_t i = 0; i < n; ++i) {
      if (tensor.dtype == Dtype::kF32) {
        std::memcpy(&values.bits[i], &bytes[4 * i], 4);
      } else {
        uint16_t half = 0;
        std::memcpy(&half, &bytes[2 * i], 2);
        values.bits[i] = static_cast<uint32_t>(half) << 16;
      }
    }
    all[name] = std::move(values);
  }
  return all;
}

// bf16's nearest value, ties to even; no NaN here.
uint32_t rounded(uint32_t bits) { return (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u; }

struct Form {
  const char* name;
  Sets sets;
  bool has_masters;
  Dtype dtype;  // of weights or masters, and of states
};
const std::vector<Form> kForms = {{"fp32", kFp32, false, Dtype::kF32},
                                  {"masters", kMasters, true, Dtype::kF32},
                                  {"pure", kPure, false, Dtype::kBf16}};

// The checkpoint of step 2 in the form `to` is that of `from`, name by name and bit by bit.
void expect_converted(const fs::path& from, const fs::path& to, const Form& form) {
  const auto before = values_of(from), after = values_of(to);
  EXPECT_EQ(before.size(), after.size());
  int rounded_values = 0;
  for (const auto& [name, values] : before) {
    std::string there = name;
    if (const size_t at = name.find("#master"); at != std::string::npos) there.resize(at);
    if (there.find('#') == std::string::npos && form.has_masters) there += "#master";
    ASSERT_TRUE(after.contains(there)) << there;
    const Values& got = after.at(there);
    EXPECT_EQ(got.dtype, form.dtype) << there;
    std::vector<uint32_t> wanted = values.bits;
    for (uint32_t& bits : wanted) {
      const uint32_t exact = bits;
      if (form.dtype == Dtype::kBf16) bits = rounded(bits);
      rounded_values += bits != exact;
    }
    EXPECT_EQ(got.bits, wanted) << there;
  }
  const bool has_rounding =
      form.dtype == Dtype::kBf16 && before.begin()->second.dtype == Dtype::kF32;
  EXPECT_EQ(rounded_values > 0, has_rounding);
}

TEST(ConvertStates, EveryFormIntoEveryOtherToTheBit) {
  const TinyRun run;
  for (const Form& from : kForms) {
    const std::string source = std::string("from_") + from.name;
    run.train_well(from.sets + Sets{"name=" + source, "train.steps=2"});
    for (const Form& to : kForms) {
      if (&from == &to) continue;
      for (const Sets& layout : {Sets{}, Sets{"parallel.dp=2", "parallel.shard=zero3"}}) {
        const std::string name = source + "_" + to.name + (layout.empty() ? "" : "_zero3");
        const Sets sets = to.sets + layout + Sets{"name=" + name, "train.steps=2"};
        const Sets more = {"--resume", run.checkpoint(2, source).string()};
        const Ended refused = run.train(sets, more);
        EXPECT_EQ(refused.exit_code, 2) << refused.err;
        expect_parts(refused.err, {"--convert-states", "train."});
        const Ended ended = run.train(sets, more + Sets{"--convert-states"});
        ASSERT_EQ(ended.exit_code, 0) << name << ended.err;
        expect_parts(ended.err, {"--convert-states: weights ", " -> ", "states "});
        expect_converted(run.checkpoint(2, source), run.checkpoint(2, name), to);
      }
    }
  }
}

// The same run, further: once converted it needs no word more.
TEST(ConvertStates, ARunContinuesInBf16) {
  const TinyRun run;
  run.train_well(kFp32 + Sets{"train.steps=4"});
  const Sets further = kMasters + Sets{"train.steps=6"};
  const Ended refused = run.train(further);
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  expect_parts(refused.err, {"train.precision: fp32 -> bf16", "--convert-states"});
  const Ended ended = run.train(further, {"--convert-states"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  expect_parts(ended.err, {"weights fp32 -> fp32 master weights, unchanged", "rounded to bf16",
                           "states fp32 -> fp32, unchanged"});
  const auto events = event_lines(run.dir(), "converted");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].at("step").as_int(), 4);
  EXPECT_EQ(metric_texts(run.dir(), "grad_norm").size(), 6u);
  // A run that began in bf16 from the same masters has the same bits after.
  run.train_well(kMasters + Sets{"name=second", "train.steps=6"},
                 {"--resume", run.checkpoint(4).string(), "--convert-states"});
  EXPECT_EQ(hash_of(run.dir()), hash_of(run.dir("second")));
  run.train_well(kMasters + Sets{"train.steps=8"});
  run.train_well(kMasters + Sets{"train.steps=9"}, {"--convert-states"});
  EXPECT_EQ(event_lines(run.dir(), "converted").size(), 1u);
  EXPECT_EQ(metric_texts(run.dir(), "grad_norm").size(), 9u);
}

TEST(ConvertStates, OtherChangesAreRefusedAsBefore) {
  const TinyRun run;
  run.train_well(kFp32 + Sets{"train.steps=2"});
  const Ended ended = run.train(kMasters + Sets{"seed=8", "train.steps=4"}, {"--convert-states"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  expect_parts(ended.err, {"seed: 7 -> 8"});
  const Ended without = run.train(kMasters + Sets{"seed=8", "train.steps=4"});
  EXPECT_FALSE(contains(without.err, "--convert-states")) << without.err;
}

}  // namespace
}  // namespace weft::testing

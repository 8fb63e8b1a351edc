// tests/e2e/decoders_test.cpp: every family from the outside: inspect, plan, train, verify, resume,
// generate.
#include <gtest/gtest.h>

#include <tuple>

#include "io/safetensors.h"
#include "tests/e2e/tiny_run.h"
#include "tests/tiny_decoders.h"

namespace weft::testing {
namespace {

class DecoderRun : public ::testing::TestWithParam<TinyDecoder> {
 protected:
  DecoderRun() { run_.write("model/config.json", GetParam().config); }
  Json output_of(const std::vector<std::string>& words) const {
    const Ended ended = run_to_end(words);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return parse_json(ended.out, words[0]);
  }
  TinyRun run_;
};

TEST_P(DecoderRun, IsInspectedPlannedAndTrained) {
  const Json seen = output_of({"inspect", (run_ / "model").string(), "--json"});
  EXPECT_EQ(seen.find("cannot_train"), nullptr) << seen.dump();
  const int64_t parameters = seen.at("parameters").as_int();
  EXPECT_GT(parameters, 10000);
  const Json planned = output_of(run_.words("plan", {"parallel.tp=2"}, {"--json"}));
  EXPECT_EQ(planned.at("per_rank").as_array().size(), 2u);
  run_.train_well({"train.steps=4", "data.eval=[" + (run_ / "eval.txt").string() + "]"});
  EXPECT_EQ(metric_texts(run_.dir(), "loss").size(), 4u);
  const Json final_folder = output_of({"inspect", (run_.dir() / "final").string(), "--json"});
  EXPECT_EQ(final_folder.at("parameters").as_int(), parameters);
}

// From the weights that a run wrote.
TEST_P(DecoderRun, FinalStartsAnotherRun) {
  run_.train_well({"train.steps=2"});
  run_.train_well({"name=more", "train.steps=1", "model.init=pretrained",
                   "model.path=" + (run_.dir() / "final").string()});
  EXPECT_EQ(metric_texts(run_.dir("more"), "loss").size(), 1u);
}

// From a checkpoint of two ranks and from final/, by one rank and by two: the same tokens.
TEST_P(DecoderRun, GeneratesOnOneRankAndOnTwo) {
  run_.train_well({"train.steps=2", "parallel.tp=2"});
  const auto ids = [&](const std::filesystem::path& model, const char* tp) {
    return output_of({"generate", model.string(), "--prompt", "row a3 b4", "--tokenizer", "bytes",
                      "--max-new-tokens", "40", "--threads", "1", "--json", "--set",
                      std::string("parallel.tp=") + tp})
        .at("ids");
  };
  const Json one = ids(run_.dir() / "final", "1");
  EXPECT_FALSE(one.as_array().empty());
  EXPECT_EQ(ids(run_.dir() / "final", "2"), one);
  EXPECT_EQ(ids(run_.checkpoint(2), "2"), one);
}

// Rows padded, packed and of several lengths; dropout where the family has it.
class DecoderRunRows : public ::testing::TestWithParam<std::tuple<TinyDecoder, const char*>> {};

TEST_P(DecoderRunRows, ExactLayoutsAgree) {
  const auto& [family, rows] = GetParam();
  const TinyRun run;
  run.write("model/config.json", family.config);
  const Ended ended =
      run_to_end(run.words("verify", {"parallel.mode=exact", std::string("data.layout=") + rows},
                           {"--layouts", "dp=1; tp=2; dp=2,tp=2,shard=zero3", "--steps", "3",
                            "--out", (run / "verify").string()}));
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
}

INSTANTIATE_TEST_SUITE_P(All, DecoderRunRows,
                         ::testing::Combine(::testing::ValuesIn(tiny_decoders()),
                                            ::testing::Values("pad", "dynamic", "pack")),
                         [](const auto& p) {
                           return std::string(std::get<0>(p.param).name) + "_" +
                                  std::get<1>(p.param);
                         });

// Published GPT-2 files have h.0. for transformer.h.0., and the masks of attention.
TEST(Gpt2Run, ReadsFilesWithoutTheBasePrefix) {
  const TinyRun run;
  run.write("model/config.json", kTinyGpt2);
  run.train_well({"train.steps=2"});
  const std::filesystem::path final_folder = run.dir() / "final";
  const SafetensorsFile file(final_folder / "model.safetensors");
  const std::vector<float> mask(64, 1.0f);
  std::vector<TensorToWrite> tensors = {
      {"h.0.attn.bias", Dtype::kF32, {8, 8}, reinterpret_cast<const std::byte*>(mask.data())}};
  for (const TensorInfo& t : file.tensors()) {
    ASSERT_TRUE(t.name.starts_with("transformer."));
    tensors.push_back({t.name.substr(12), t.dtype, t.shape, file.data(t)});
  }
  write_safetensors(run / "model/model.safetensors", tensors, {{"format", "pt"}});
  const auto sets = [](const char* name, const std::filesystem::path& model) {
    return std::vector<std::string>{std::string("name=") + name, "train.steps=2",
                                    "model.init=pretrained", "model.path=" + model.string()};
  };
  run.train_well(sets("with", final_folder));
  const Ended ended = run.train(sets("without", run / "model"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(contains(ended.err, "does not define")) << ended.err;
  EXPECT_EQ(metric_texts(run.dir("without"), "loss"), metric_texts(run.dir("with"), "loss"));
  EXPECT_EQ(hash_of(run.dir("without") / "final"), hash_of(run.dir("with") / "final"));
}

INSTANTIATE_TEST_SUITE_P(All, DecoderRun, ::testing::ValuesIn(tiny_decoders()),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace weft::testing

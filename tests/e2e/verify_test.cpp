// tests/e2e/verify_test.cpp: weft verify from the outside: agreement, tolerances, files, controls.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

class Verify : public ::testing::Test {
 protected:
  // `weft verify run.yaml --layouts LAYOUTS --out out --json`.
  Ended verify(const std::string& layouts, const std::vector<std::string>& sets,
               std::vector<std::string> more = {}, const std::string& fault = "") const {
    more.insert(more.end(), {"--layouts", layouts, "--out", out().string(), "--json"});
    StartOptions options;
    if (!fault.empty()) options.env["WEFT_FAULT"] = fault;
    return run_to_end(run_.words("verify", sets, more), options);
  }
  fs::path out() const { return run_ / "out"; }
  std::string eval() const { return "data.eval=[" + (run_ / "eval.txt").string() + "]"; }
  static Json layout_of(const Ended& ended, size_t i) {
    return parse_json(ended.out, "verify").at("layouts").as_array().at(i);
  }

  TinyRun run_;
};

TEST_F(Verify, ExactLayoutsAgreeAndTheFilesExist) {
  const Ended ended =
      verify("dp=1; dp=2,shard=zero3; tp=2; dp=2,tp=2,shard=zero1",
             {"parallel.mode=exact", "train.precision=bf16", eval()}, {"--steps", "3"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const Json result = parse_json(ended.out, "verify");
  ASSERT_EQ(result.as_object().size(), 2u);
  EXPECT_TRUE(result.at("ok").as_bool());
  const auto& layouts = result.at("layouts").as_array();
  ASSERT_EQ(layouts.size(), 4u);
  for (const Json& layout : layouts) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : layout.as_object()) keys.push_back(key);
    EXPECT_EQ(keys,
              (std::vector<std::string>{"layout", "initial", "final", "min", "mean", "max_diff",
                                        "mean_diff", "final_diff", "first_bad_step", "tensor"}));
    EXPECT_EQ(layout.at("max_diff").as_number(), 0);
    EXPECT_TRUE(layout.at("first_bad_step").is_null());
  }
  EXPECT_EQ(layouts[1].at("layout").as_string(), "dp=2,shard=zero3");
  const Json losses = parse_json(slurp(out() / "loss_dp_2_tp_2_shard_zero1.json"), "losses");
  EXPECT_EQ(losses.at("layout").as_string(), "dp=2,tp=2,shard=zero1");
  EXPECT_EQ(losses.at("loss").as_array().size(), 3u);
  EXPECT_EQ(losses.at("loss").as_array()[0].as_number(), layouts[0].at("initial").as_number());
  for (const char* label : {"dp_2_shard_zero3", "tp_2", "dp_2_tp_2_shard_zero1"}) {
    EXPECT_EQ(slurp(out() / "dp_1/tensor_hashes.jsonl"),
              slurp(out() / label / "tensor_hashes.jsonl"))
        << label;
  }
  // Embedding, 2 layers of 9, last norm: as gradients, weights, m and v; at the start without them.
  const Json kept = parse_json(slurp(out() / "verify.json"), "verify.json");
  EXPECT_EQ(kept.at("layouts").as_array()[3].at("tensors").as_int(), 4 * 20);
  EXPECT_EQ(kept.at("layouts").as_array()[3].at("evals").as_int(), 1);
  EXPECT_TRUE(slurp(out() / "verify.png").starts_with("\x89PNG"));
  EXPECT_TRUE(contains(slurp(out() / "verify.svg"), "<svg"));
  EXPECT_TRUE(contains(slurp(out() / "tp_2.log"), "finished step 3"));
}

// dp 3 and 6 own no groups of rows: the same bits, and a swapped leaf is detected there too.
TEST_F(Verify, EveryDpThatDividesTheRowsAgrees) {
  const std::string layouts =
      "dp=1; dp=3; dp=3,shard=zero1; dp=6,shard=zero2; dp=3,tp=2,shard=zero3";
  const std::vector<std::string> sets = {"parallel.mode=exact", "train.global_batch=12", eval()};
  Ended ended = verify(layouts, sets, {"--steps", "3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  for (const char* label : {"dp_3", "dp_3_shard_zero1", "dp_6_shard_zero2"}) {
    EXPECT_EQ(slurp(out() / "dp_1/tensor_hashes.jsonl"),
              slurp(out() / label / "tensor_hashes.jsonl"))
        << label;
  }
  ended = verify("dp=1; dp=3; dp=3,shard=zero1; dp=3,shard=zero2", sets, {"--steps", "3"},
                 "swap,step=2");
  EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(layout_of(ended, i).at("first_bad_step").as_int(), 2) << ended.out;
  }
}

// Fast mode: 3 key/value heads on 2 ranks, and a bit of the one that both hold.
TEST_F(Verify, KeyValueHeadsBetweenRanksStayWithinTolerances) {
  run_.change_config("hidden_size", Json(48));
  run_.change_config("num_attention_heads", Json(6));
  run_.change_config("num_key_value_heads", Json(3));
  const std::string layouts = "dp=1; tp=2; tp=6; dp=2,tp=2,shard=zero3";
  Ended ended = verify(layouts, {"train.lr=1e-4", eval()}, {"--steps", "4"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_GT(layout_of(ended, 1).at("max_diff").as_number(), 0) << ended.out;
  const std::string tensor = "model.layers.1.self_attn.v_proj.weight";
  ended = verify("dp=1; tp=2", {"train.lr=1e-4"}, {"--steps", "3"},
                 "copy,step=2,rank=1,tensor=" + tensor);
  EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
  EXPECT_TRUE(contains(layout_of(ended, 1).at("tensor").as_string(), tensor)) << ended.out;
}

// exact_tp above the key/value heads, of the run file and of a layout.
TEST_F(Verify, CopiesOfKeyValueHeadsAgree) {
  const std::vector<std::string> sets = {"parallel.mode=exact", "parallel.exact_tp=4"};
  Ended ended = verify("dp=1; tp=4; dp=2,tp=2,shard=zero1", sets, {"--steps", "3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  const Json kept = parse_json(slurp(out() / "verify.json"), "verify.json");
  EXPECT_EQ(kept.at("layouts").as_array()[1].at("tensors").as_int(), 4 * 20);
  EXPECT_EQ(slurp(out() / "dp_1/tensor_hashes.jsonl"), slurp(out() / "tp_4/tensor_hashes.jsonl"));
  // Rank 2 owns the second head's gradient; rank 3 holds a copy of the head.
  const std::string tensor = "model.layers.1.self_attn.v_proj.weight";
  for (const std::string fault : {"flip,step=2,rank=2,tensor=", "copy,step=2,rank=3,tensor="}) {
    ended = verify("dp=1; tp=4", sets, {"--steps", "3"}, fault + tensor);
    EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
    EXPECT_EQ(layout_of(ended, 1).at("first_bad_step").as_int(), 2) << ended.out;
    EXPECT_TRUE(contains(layout_of(ended, 1).at("tensor").as_string(), tensor)) << ended.out;
  }
  // Checked against fast mode's tolerances where the constants differ.
  ended = verify("dp=1,exact_tp=2; tp=4,exact_tp=4", {"parallel.mode=exact", "train.lr=1e-4"},
                 {"--steps", "3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_GT(layout_of(ended, 1).at("max_diff").as_number(), 0) << ended.out;
  const Json other = parse_json(slurp(out() / "verify.json"), "verify.json");
  EXPECT_EQ(other.at("layouts").as_array()[1].at("notes").as_array().at(0).as_string(),
            "exact_tp is 4, the base's 2: bits are not compared; set it for all with --set "
            "parallel.exact_tp=4, not in a layout");
}

// The slow kernels too: a sum that absorbed another leaf before rounding once revealed which rank
// had added it.
TEST_F(Verify, ReferenceKernelsAreExactToo) {
  run_.change_config("attention_bias", Json(true));
  std::vector<std::string> words = run_.words(
      "verify", {"parallel.mode=exact", eval()},
      {"--layouts", "dp=1; dp=2; tp=2; dp=2,tp=2,shard=zero3; dp=2,shard=zero2,micro_batch=1",
       "--steps", "2", "--out", out().string(), "--json"});
  StartOptions options;
  options.env["WEFT_CPU_LEVEL"] = "ref";
  const Ended ended = run_to_end(words, options);
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_TRUE(contains(slurp(out() / "tp_2.log"), "kernels ref"));
}

TEST_F(Verify, FastDiffersWithinTolerances) {
  const std::string layouts = "dp=1; tp=2; dp=2,tp=2,shard=zero3; dp=1,mode=exact";
  Ended ended = verify(layouts, {"train.lr=1e-4"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  for (size_t i = 1; i <= 3; ++i) {
    EXPECT_GT(layout_of(ended, i).at("max_diff").as_number(), 0) << ended.out;
  }
  // The same with zero tolerance: the first one's folder is reused.
  ended = verify("dp=1; tp=2", {"train.lr=1e-4"}, {"--max-diff", "0"});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_TRUE(layout_of(ended, 1).at("first_bad_step").is_int()) << ended.out;
  EXPECT_TRUE(layout_of(ended, 1).at("tensor").is_string()) << ended.out;
  EXPECT_FALSE(fs::exists(out() / "loss_dp_2_tp_2_shard_zero3.json"));
  ended = verify("dp=1; tp=2", {"train.lr=1e-4"}, {"--mean-diff", "0"});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
}

TEST_F(Verify, PassesAndThreadsAreLayoutsToo) {
  const Ended ended = verify("dp=1,micro_batch=1; dp=1,micro_batch=4,threads=2; dp=4,micro_batch=2",
                             {"parallel.mode=exact"}, {"--steps", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
}

struct Control {
  const char *name, *fault;
  const char* layouts;  // in FastControls: the precision
  int64_t step;
  const char* tensor;
};
std::ostream& operator<<(std::ostream& out, const Control& c) { return out << c.name; }

class Controls : public Verify, public ::testing::WithParamInterface<Control> {};

TEST_P(Controls, AreDetectedWithStepAndTensor) {
  const Control& c = GetParam();
  const Ended ended = verify(c.layouts, {"parallel.mode=exact"}, {"--steps", "4"}, c.fault);
  EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
  const Json result = parse_json(ended.out, "verify");
  EXPECT_FALSE(result.at("ok").as_bool());
  const auto& layouts = result.at("layouts").as_array();
  EXPECT_TRUE(layouts.at(0).at("first_bad_step").is_null());
  for (size_t i = 1; i < layouts.size(); ++i) {
    const Json &step = layouts[i].at("first_bad_step"), &tensor = layouts[i].at("tensor");
    ASSERT_TRUE(step.is_int() && tensor.is_string()) << ended.out;
    EXPECT_EQ(step.as_int(), c.step);
    EXPECT_EQ(tensor.as_string(), c.tensor);
  }
  EXPECT_TRUE(contains(slurp(out() / "tp_2.log"), "deliberately wrong"));
  EXPECT_FALSE(contains(slurp(out() / "dp_1.log"), "deliberately wrong"));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Controls,
    ::testing::Values(
        Control{"flip", "flip,step=3,rank=1,tensor=model.layers.1.mlp.up_proj.weight",
                "dp=1; dp=2,shard=zero3; tp=2", 3, "model.layers.1.mlp.up_proj.weight#grad"},
        Control{"swap", "swap,step=2", "dp=1; dp=2; tp=2", 2, "model.embed_tokens.weight#grad"},
        Control{"doubled", "double,step=3", "dp=1; tp=2", 3,
                "model.layers.0.input_layernorm.weight#grad"},
        Control{"norm", "norm,rank=0", "dp=1; tp=2", 1, "model.embed_tokens.weight"},
        Control{"copy", "copy,step=3,rank=1", "dp=1; tp=2", 3,
                "model.layers.0.input_layernorm.weight"}),
    [](const auto& p) { return p.param.name; });

constexpr const char* kNormWeight = "model.layers.0.input_layernorm.weight";

// In fast mode the losses hide a doubled gradient in their rounding noise; the norms do not.
class FastControls : public Verify, public ::testing::WithParamInterface<Control> {};

TEST_P(FastControls, AreFoundByTheirNorms) {
  const Control& c = GetParam();
  const std::string fault = std::string(c.fault) + (*c.tensor == 0 ? "" : ",tensor=") + c.tensor;
  const Ended ended = verify("dp=1; tp=2; dp=2,shard=zero1",
                             {"train.lr=1e-4", std::string("train.precision=") + c.layouts},
                             {"--steps", "4"}, fault);
  EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
  for (size_t i : {1, 2}) {
    const Json layout = layout_of(ended, i);
    EXPECT_EQ(layout.at("first_bad_step").as_int(), c.step) << ended.out;
    if (*c.tensor != 0) {
      EXPECT_EQ(layout.at("tensor").as_string(), std::string(c.tensor) + "#grad") << ended.out;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, FastControls,
    ::testing::Values(Control{"double_first_step", "double,step=1", "fp32", 1, kNormWeight},
                      Control{"double_later", "double,step=3", "fp32", 3, kNormWeight},
                      Control{"double_bf16", "double,step=3", "bf16", 3, kNormWeight},
                      Control{"norm", "norm", "fp32", 1, ""}),
    [](const auto& p) { return p.param.name; });

// Also where one of the two is in exact mode, which has hashes too.
class MixedModes : public Verify, public ::testing::WithParamInterface<const char*> {};

TEST_P(MixedModes, GradientsAreCompared) {
  const Ended ended = verify(GetParam(), {"train.lr=1e-4"}, {"--steps", "2", "--max-diff", "1e-5"},
                             std::string("double,step=2,tensor=") + kNormWeight);
  EXPECT_EQ(ended.exit_code, 1) << ended.err << ended.out;
  EXPECT_EQ(layout_of(ended, 1).at("first_bad_step").as_int(), 2) << ended.out;
  EXPECT_EQ(layout_of(ended, 1).at("tensor").as_string(), std::string(kNormWeight) + "#grad")
      << ended.out;
}

INSTANTIATE_TEST_SUITE_P(Layouts, MixedModes,
                         ::testing::Values("dp=1,mode=exact; dp=2", "dp=1; dp=2,mode=exact"),
                         [](const auto& p) {
                           return p.index == 0 ? "exact_is_the_base" : "fast_is_the_base";
                         });

TEST_F(Verify, AFaultWithoutEffectIsRejected) {
  run_.change_config("attention_bias", Json(true));
  struct Case {
    std::string fault;
    std::vector<std::string> sets, parts;
  };
  const std::vector<std::string> exact = {"parallel.mode=exact"};
  const Case cases[] = {
      {"double,step=99", exact, {"WEFT_FAULT=double,step=99", "the run has 4 steps"}},
      {"flip,step=2", {}, {"set parallel.mode to exact"}},
      {"norm,tensor=model.norm.weight", exact, {"does not accept a tensor"}},
      {"flip,tensor=model.norm.wieght",
       exact,
       {"no parameter \"model.norm.wieght\"", "did you mean \"model.norm.weight\"?"}},
      {"double,tensor=model.layers.0.mlp.up_proj.weight", exact, {"the model has no vector"}},
      {"double,tensor=model.layers.0.self_attn.q_proj.bias",
       {},
       {"q_proj.bias is cut over tensor-parallel ranks", "would have no effect"}},
      {"double,tensor=model.norm.weight",
       {"model.freeze=[model.norm*]"},
       {"model.norm.weight is frozen", "would have no effect"}},
      {"double",
       {"model.freeze=['*norm*', '*.bias']"},
       {"no vector that is trained and on all ranks"}},
      {"copy,tensor=x", exact, {"no parameter \"x\"", "weft inspect"}}};
  for (const Case& c : cases) {
    const Ended ended = verify("dp=1; tp=2", c.sets, {"--steps", "4"}, c.fault);
    EXPECT_EQ(ended.exit_code, 2) << c.fault << ended.err;
    expect_parts(ended.err, c.parts);
    EXPECT_FALSE(fs::exists(out())) << c.fault << ": something was trained before it was refused";
  }
  // With epochs the end is known only when it is reached: 5 steps each.
  StartOptions options;
  options.env["WEFT_FAULT"] = "double,step=99";
  const Ended ended = run_to_end(
      run_.words("train", {"train.steps=null", "train.epochs=1", "parallel.tp=2"}), options);
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"WEFT_FAULT=double,step=99", "steps 1 to 5", "had no effect"});
}

class ChangedCopy : public ::testing::TestWithParam<std::pair<Variant, const char*>> {};

TEST_P(ChangedCopy, StopsTheRunWithItsName) {
  const auto& [layout, tensor] = GetParam();
  const TinyRun run;
  StartOptions options;
  options.env["WEFT_FAULT"] = std::string("copy,step=2,rank=1,tensor=") + tensor;
  const Ended ended = run_to_end(run.words("train", layout.sets), options);
  EXPECT_EQ(ended.exit_code, 70) << ended.err;
  expect_parts(ended.err,
               {std::string("step 2: ") + tensor + " differs between ranks", "WEFT_FAULT"});
}

// zero3: each rank of the data axis holds its own shard, replicated over the tensor axis. tp 4:
// ranks 0 and 1 hold the first of two key/value heads.
INSTANTIATE_TEST_SUITE_P(
    Layouts, ChangedCopy,
    ::testing::Values(
        std::pair{Variant{"dp2", {"parallel.dp=2"}}, "model.norm.weight"},
        std::pair{Variant{"tp2", {"parallel.tp=2"}}, "model.norm.weight"},
        std::pair{Variant{"zero3", {"parallel.dp=2", "parallel.tp=2", "parallel.shard=zero3"}},
                  kNormWeight},
        std::pair{Variant{"tp4", {"parallel.tp=4"}}, "model.layers.1.self_attn.k_proj.weight"},
        std::pair{
            Variant{"tp4_exact", {"parallel.tp=4", "parallel.mode=exact", "parallel.exact_tp=4"}},
            "model.layers.1.self_attn.v_proj.weight"}),
    [](const auto& p) { return std::string(p.param.first.name); });

TEST_F(Verify, RefusesBadInputBeforeAnythingIsTrained) {
  struct Case {
    std::string layouts;
    std::vector<std::string> sets, parts;
  };
  const Case cases[] = {
      {"dp=1; dp=2,sharp=zero1", {}, {"unknown key \"sharp\"", "did you mean \"shard\"?"}},
      {"dp=1; tp=3", {}, {"\"tp=3\"", "admissible values of parallel.tp: 1, 2, 4"}},
      {"dp=1; dp=3", {}, {"\"dp=3\"", "train.global_batch 8 is not a multiple of parallel.dp 3"}},
      {"dp=1; tp=4", {"parallel.mode=exact"}, {"exact_tp=2", "admissible values", "1, 2"}},
      {"dp=2", {}, {"gives 1 layout,", "needs two"}},
      {"", {}, {"gives 0 layouts"}},
      {"dp=2; tp=2; dp = 2", {}, {"layout \"dp=2\" is given twice"}},
      {"dp=1; dp=2,shard", {}, {"\"shard\" is not key=value"}},
      {"dp=1; dp=2,shard=zero4", {}, {"zero4", "zero1"}},
      {"dp=1; dp=2,bad=1; tp=3", {"train.steps=-1"}, {"unknown key \"bad\""}},
      {"dp=1; dp=2",
       {"train.precision=fp16", "launch.device=cpu"},
       {"\"dp=1\"", "\"dp=2\"", "fp16, which needs a GPU"}},
  };
  for (const Case& c : cases) {
    const Ended ended = verify(c.layouts, c.sets);
    EXPECT_EQ(ended.exit_code, 2) << c.layouts << "\n" << ended.err;
    expect_parts(ended.err, c.parts);
    EXPECT_FALSE(fs::exists(out())) << c.layouts;
  }
}

TEST_F(Verify, LeavesAForeignFolderAlone) {
  fs::create_directory(out());
  run_.write("out/thesis.tex", "years of work");
  Ended ended = verify("dp=1; dp=2", {});
  EXPECT_EQ(ended.exit_code, 2);
  expect_parts(ended.err, {"is not empty", "an earlier weft verify"});
  run_.write("out/verify.json", "{\"ok\": true}");
  EXPECT_EQ(verify("dp=1; dp=2", {}).exit_code, 2);
  EXPECT_EQ(slurp(out() / "thesis.tex"), "years of work");
  EXPECT_FALSE(fs::exists(out() / "dp_1"));
}

TEST_F(Verify, AFailedBaseIsReported) {
  const Ended ended = verify("dp=1; dp=2", {"train.lr=1e30"});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  expect_parts(ended.err, {"the base failed: dp=1: ", "dp_1.log"});
}

TEST_F(Verify, ASignalReachesTheRun) {
  Program program(run_.words("verify", {"train.steps=100000"},
                             {"--layouts", "dp=2; tp=2", "--out", out().string()}));
  EXPECT_TRUE(program.wait_until([&] { return fs::exists(out() / "dp_2/metrics.jsonl"); }));
  program.send(SIGINT);
  const Ended ended = program.wait(20);
  EXPECT_EQ(ended.exit_code, 130);
  expect_parts(ended.err, {"SIGINT: stopped in layout 1 of 2; partial results: nothing"});
  EXPECT_TRUE(contains(slurp(out() / "dp_2.log"), "SIGINT: finishing the current step"));
  EXPECT_FALSE(fs::exists(out() / "tp_2.log"));
}

}  // namespace
}  // namespace weft::testing

// cmd/generate.cpp: weft generate MODEL: one rank here, or a supervisor and its ranks.
#include <algorithm>
#include <bit>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/suggest.h"
#include "checkpoint/load.h"
#include "cmd/command.h"
#include "cmd/continuation_printer.h"
#include "cmd/generate_prompts.h"
#include "cmd/text_input.h"
#include "generate/stop_ids.h"
#include "launch/job.h"
#include "launch/rank_context.h"
#include "planning/backend.h"
#include "train/local_copy.h"
#include "train/rank_generator.h"
#include "train/run_history.h"
#include "train/signals.h"

namespace weft {
namespace {

struct GenerateWords {
  std::string model, tokenizer, device = "auto";
  PromptOptions prompts;
  std::optional<double> temperature;
  SampleOptions sample;
  std::vector<std::string> stops, sets;
  bool json = false, force = false;
  int threads = 0;
  int64_t batch = 64;
};

std::unique_ptr<Tokenizer> find_tokenizer(const GenerateWords& options,
                                          const LogicalModel& source) {
  const std::string hint =
      "give --tokenizer FOLDER, or --tokenizer bytes for a model trained with data.tokenizer: "
      "bytes";
  if (!options.tokenizer.empty()) return open_tokenizer(options.tokenizer, hint);
  return tokenizer_beside(source, hint);
}

GenerateOptions choose_sizes(const Model& model, const std::vector<std::vector<int32_t>>& prompts,
                             const GenerateWords& options) {
  int64_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, static_cast<int64_t>(p.size()));
  const bool has_source = reads_source(model);
  const int64_t given = has_source ? 1 : longest, most = model.max_positions();
  GenerateOptions o;
  o.max_batch = std::clamp<int64_t>(static_cast<int64_t>(prompts.size()), 1, options.batch);
  o.max_positions =
      options.sample.max_new_tokens < most - given ? given + options.sample.max_new_tokens : most;
  o.max_source_positions = longest;
  return o;
}

// The same hints as for launch.device.
std::string device_word(const std::string& word) {
  const std::vector<std::string> known = {"auto", "cpu", "cuda"};
  if (std::find(known.begin(), known.end(), word) != known.end()) return "";
  const std::string answer_text = other_device_words(word);
  return fmt::format("wanted auto | cpu | cuda, got {}{}", word,
                     answer_text.empty() ? did_you_mean(word, known) : answer_text);
}

// The layout that --set describes; the rest of a run file has no meaning here.
RunConfig read_sets(const GenerateWords& options) {
  RunConfig c;
  OptionTable table;
  bind_options(&table, &c);
  std::vector<std::string> complaints;
  for (const std::string& set : options.sets) {
    if (set.starts_with("parallel.")) {
      table.set(set, complaints);
    } else {
      complaints.push_back(
          fmt::format("--set {}: generation reads the keys of parallel alone", set));
    }
  }
  refuse(complaints);
  c.launch.device = options.device;
  c.train.global_batch = c.parallel.dp;
  return c;
}

// What all ranks have in common.
struct Work {
  explicit Work(GenerateWords given)
      : options(std::move(given)),
        config(read_sets(options)),
        copy(options.model),
        source(open_logical(copy.path())),
        model(open_model_of(source)),
        layout(resolve_layout(config, *model)),
        tokenizer(find_tokenizer(options, source)),
        prompts(read_prompts(options.prompts)),
        ids(encode_prompts(options.prompts, prompts, *tokenizer, *model)) {
    check_ids(options.prompts, ids, model->vocab_size());
    check_generate_layout(layout);
    options.sample.stop_ids = read_stop_ids(*tokenizer, source.config, source.path);
    move_special_stops(*tokenizer, &options.stops, &options.sample.stop_ids);
    if (stored_dtype(source, *model) == Dtype::kBf16) compute = Dtype::kBf16;
    config.train.precision = compute == Dtype::kBf16 ? "bf16" : "fp32";
  }

  std::unique_ptr<Model> open_model_of(const LogicalModel& of) const {
    require(!of.config.is_null(), "{} has no config.json next to its weights", options.model);
    return make_model(of.config, {0, 0.0}, of.path);
  }

  GenerateWords options;
  RunConfig config;
  LocalCopy copy;  // of the model, where it is in an object store
  LogicalModel source;
  std::unique_ptr<Model> model;
  Layout layout;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<std::string> prompts;
  std::vector<std::vector<int32_t>> ids;
  Dtype compute = Dtype::kF32;
};

Backend open_backend_of(const Work& work, int rank) {
  if (work.layout.num_ranks() > 1) return open_backend(work.config, rank);
  return open_backend(work.options.device, work.compute);
}

// Where auto has led to.
void report_place(const Work& work, const Backend& backend) {
  if (work.options.device != "auto") return;
  const std::string gpu = backend.device->is_host() ? "" : first_gpu();
  const std::string why = gpu.empty() ? why_on_cpu(work.config, find_gpus()) : "";
  log_info("on {}{}{}", gpu.empty() ? "the CPU" : gpu, why.empty() ? "" : ": ", why);
}

void generate_on_rank(const Work& work, Ranks* ranks, int threads) {
  const GenerateWords& o = work.options;
  const bool is_first = ranks->rank() == 0;
  ThreadPool pool(threads);
  const Backend backend = open_backend_of(work, ranks->rank());
  if (is_first) report_place(work, backend);
  GenerateOptions sizes = choose_sizes(*work.model, work.ids, o);
  sizes.compute = work.compute;
  // A GPU selects algorithms for every batch size it meets: so there are few.
  if (!backend.device->is_host()) {
    const auto rows = static_cast<uint64_t>(sizes.max_batch);
    sizes.max_batch = std::min(static_cast<int64_t>(std::bit_ceil(rows)), o.batch);
  }
  std::string hint = "lower --batch or --max-new-tokens";
  if (!backend.device->is_host()) hint += ", or --device cpu";
  RankGenerator generator(*work.model, work.source, sizes, ranks, backend, &pool, hint, o.force);
  const ContinuationStyle style = o.json                    ? ContinuationStyle::kJson
                                  : !o.prompts.file.empty() ? ContinuationStyle::kLines
                                                            : ContinuationStyle::kText;
  ContinuationPrinter printer(*work.tokenizer, work.prompts, o.sample.stop_ids, o.stops, style);
  StopStrings stops(*work.tokenizer, o.sample.stop_ids, o.stops, work.ids.size());
  GenerateEvents events = is_first ? printer.events() : GenerateEvents{};
  if (!o.stops.empty())
    events.ends = [&](size_t prompt, int32_t id) { return stops.ends(prompt, id); };
  const auto made = generator->generate(work.ids, o.sample, events);
  if (o.sample.max_new_tokens > 0 || !is_first) return;
  for (size_t i = 0; i < made.size(); ++i) printer.end(i, made[i]);
}

int supervise_generate(const Work& work) {
  check_backend(work.config);
  JobOptions job;
  job.num_ranks = work.layout.num_ranks();
  job.argv = work.copy.in(command_words());
  job.threads = work.options.threads;
  job.early_words = ": stopped";
  job.noted_words = ": stopping";
  std::optional<PromptFile> prompt;
  if (work.options.prompts.is_standard_input()) job.input = prompt.emplace(work.prompts[0]).path();
  return run_local_job(job, [](const char*, int, const std::string&) {});
}

constexpr StopWords kWords{": stopped", ": stopping", ", the second signal: exiting at once",
                           128 + SIGINT};

int run_generate(GenerateWords options) {
  const bool cuts = options.sample.top_k > 0 || options.sample.top_p < 1;
  options.sample.temperature = options.temperature.value_or(cuts ? 1 : 0);
  check_options(options.sample);
  for (const std::string& stop : options.stops)
    require(!stop.empty(), "--stop is empty: give at least one character");
  const auto rank = RankContext::from_environment();
  set_log_quiet(rank && rank->rank > 0);
  const Work work(std::move(options));
  if (!rank) warn_of_early_stop(work.copy.path());
  if (!rank) warn_of_unknown_tensors(work.source);
  if (rank) {
    const StopSignals signals(rank->world.get(), kWords);
    signals.hold();
    Ranks ranks(work.layout, rank->world, rank->rank);
    generate_on_rank(work, &ranks, rank->threads);
    return 0;
  }
  if (work.layout.num_ranks() > 1) return supervise_generate(work);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Ranks alone(work.layout);
  generate_on_rank(work, &alone, work.options.threads > 0 ? work.options.threads : cores);
  return 0;
}

}  // namespace

RunCommand add_generate(CommandOptions& app) {
  const auto o = std::make_shared<GenerateWords>();
  app.add_option("MODEL", o->model, "Hugging Face folder, checkpoint or run directory")->required();
  auto* prompt =
      app.add_option("--prompt", o->prompts.prompt, "text to continue; default: standard input");
  app.add_option("--prompts", o->prompts.file, "file with one prompt per line")->excludes(prompt);
  app.add_option("--max-new-tokens", o->sample.max_new_tokens,
                 "maximum number of tokens to add; default: 128");
  app.add_option("--temperature", o->temperature,
                 "0: always the likeliest token; default: 0, or 1 with --top-k or --top-p");
  app.add_option("--top-k", o->sample.top_k, "draw among the K likeliest; default: 0 (all)");
  app.add_option("--top-p", o->sample.top_p,
                 "draw among the fewest tokens that reach this probability; default: 1 (all)");
  app.add_option("--seed", o->sample.seed, "of the draws; default: 0");
  app.add_option("--stop", o->stops, "text before which the continuation ends; may be repeated")
      ->take_all()
      ->expected(1);
  app.add_option("--set", o->sets,
                 "parallel.key=value: several ranks, with the weights cut over them")
      ->take_all()
      ->expected(1);
  app.add_flag("--json", o->json, "one line {\"prompt\", \"text\", \"ids\"} per prompt");
  app.add_flag("--force", o->force, "generate even if this machine has too little memory");
  app.add_option("--threads", o->threads, "default: all cores")->check(at_least(0), "N");
  app.add_option("--batch", o->batch, "prompts per batch; default: 64")->check(at_least(1), "N");
  app.add_option("--device", o->device,
                 "auto, cpu or cuda; default: auto (a GPU where there is one)")
      ->check(device_word, "DEVICE");
  app.add_option("--tokenizer", o->tokenizer, "folder, or bytes; default: the model's");
  return [o] { return run_generate(*o); };
}

}  // namespace weft

// cmd/generate.cpp: weft generate MODEL.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/suggest.h"
#include "checkpoint/load.h"
#include "cmd/command.h"
#include "cmd/continuation_printer.h"
#include "cmd/text_input.h"
#include "generate/generator.h"
#include "generate/stop_ids.h"
#include "planning/backend.h"
#include "planning/gpu_memory_check.h"
#include "planning/memory_check.h"

namespace weft {
namespace {

struct Options {
  std::string model, prompts_file, tokenizer, device = "auto";
  std::optional<std::string> prompt;
  std::optional<double> temperature;
  SampleOptions sample;
  bool json = false, force = false;
  int threads = 0;
  int64_t batch = 64;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t size = end - begin - (end > begin && text[end - 1] == '\r' ? 1 : 0);
    lines.push_back(text.substr(begin, size));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> read_prompts(const Options& options) {
  if (options.prompt) return {repaired(*options.prompt, "--prompt")};
  if (!options.prompts_file.empty()) {
    return split_lines(repaired(read_file(options.prompts_file), options.prompts_file));
  }
  if (::isatty(STDIN_FILENO)) {
    throw UserError("no prompt was given",
                    "give --prompt TEXT or --prompts FILE, or write it to standard input");
  }
  std::string text = read_standard_input();
  if (text.ends_with('\n')) text.pop_back();  // from the shell, not part of the prompt
  return {text};
}

// How the user can find prompt i: lines count from 1, as in editors.
std::string name_prompt(const Options& options, size_t i) {
  if (!options.prompts_file.empty()) return fmt::format("{}:{}", options.prompts_file, i + 1);
  return options.prompt ? "--prompt" : "the prompt on standard input";
}

std::vector<int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& text,
                                   const std::string& name, int64_t max_positions) {
  std::vector<int32_t> ids;
  tokenizer.encode(text, true, ids);
  if (ids.empty() && tokenizer.bos_id()) ids.push_back(*tokenizer.bos_id());
  if (ids.empty()) {
    throw UserError(fmt::format("{} is empty, and this tokenizer has no bos token", name),
                    "give a prompt of at least one character");
  }
  const auto size = static_cast<int64_t>(ids.size());
  require(size < max_positions, "{} has {} tokens, but the model has only {} positions", name, size,
          max_positions);
  return ids;
}

std::unique_ptr<Tokenizer> find_tokenizer(const Options& options, const LogicalModel& source) {
  const std::string hint =
      "give --tokenizer FOLDER, or --tokenizer bytes for a model trained with data.tokenizer: "
      "bytes";
  if (!options.tokenizer.empty()) return open_tokenizer(options.tokenizer, hint);
  return tokenizer_beside(source, hint);
}

GenerateOptions choose_sizes(const Model& model, const std::vector<std::vector<int32_t>>& prompts,
                             const Options& options) {
  int64_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, static_cast<int64_t>(p.size()));
  const int64_t most = model.max_positions();
  GenerateOptions o;
  o.max_batch = std::clamp<int64_t>(static_cast<int64_t>(prompts.size()), 1, options.batch);
  o.max_positions = options.sample.max_new_tokens < most - longest
                        ? longest + options.sample.max_new_tokens
                        : most;
  o.max_positions = std::max(o.max_positions, longest + 1);
  return o;
}

Generator make_generator(const Model& model, const LogicalModel& source,
                         const GenerateOptions& sizes, const Backend& backend, ThreadPool* pool,
                         bool is_forced) {
  GeneratePlans plans = make_generate_plans(model, sizes, *backend.kernels, pool->num_threads());
  const int64_t bytes = layout_of(plans).total_bytes();
  const std::string hint = "lower --batch or --max-new-tokens";
  if (backend.device->is_host()) {
    check_arena_memory("generation", bytes, hint, is_forced);
  } else {
    check_gpu_memory("generation", bytes, *backend.device, hint + ", or --device cpu");
  }
  return Generator(
      model, std::move(plans), pool,
      [&](const ParameterSpec& spec, Dtype dtype, void* data) {
        load_parameter(source, spec, dtype, data);
      },
      backend.device);
}

// The same hints as for launch.device.
std::string device_word(const std::string& word) {
  const std::vector<std::string> known = {"auto", "cpu", "cuda"};
  if (std::find(known.begin(), known.end(), word) != known.end()) return "";
  const std::string answer_text = other_device_words(word);
  return fmt::format("wanted auto | cpu | cuda, got {}{}", word,
                     answer_text.empty() ? did_you_mean(word, known) : answer_text);
}

int run_generate(Options options) {
  const bool cuts = options.sample.top_k > 0 || options.sample.top_p < 1;
  options.sample.temperature = options.temperature.value_or(cuts ? 1 : 0);
  check_options(options.sample);
  const LogicalModel source = open_logical(options.model);
  require(!source.config.is_null(), "{} has no config.json next to its weights", options.model);
  const auto model = make_model(source.config, {0, 0.0}, source.path);
  warn_of_unknown_tensors(source);
  const auto tokenizer = find_tokenizer(options, source);
  options.sample.stop_ids = read_stop_ids(*tokenizer, source.config, source.path);
  const std::vector<std::string> prompts = read_prompts(options);
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < prompts.size(); ++i) {
    ids.push_back(
        encode_prompt(*tokenizer, prompts[i], name_prompt(options, i), model->max_positions()));
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  ThreadPool pool(options.threads > 0 ? options.threads : cores);
  GenerateOptions sizes = choose_sizes(*model, ids, options);
  if (stored_dtype(source, *model) == Dtype::kBf16) sizes.compute = Dtype::kBf16;
  const Backend backend = open_backend(options.device, sizes.compute);
  // A GPU selects algorithms for every batch size it meets: so there are few.
  if (!backend.device->is_host()) {
    const auto rows = static_cast<uint64_t>(sizes.max_batch);
    sizes.max_batch = std::min(static_cast<int64_t>(std::bit_ceil(rows)), options.batch);
  }
  Generator generator = make_generator(*model, source, sizes, backend, &pool, options.force);
  const ContinuationStyle style = options.json                    ? ContinuationStyle::kJson
                                  : !options.prompts_file.empty() ? ContinuationStyle::kLines
                                                                  : ContinuationStyle::kText;
  ContinuationPrinter printer(*tokenizer, prompts, options.sample.stop_ids, style);
  const auto made = generator.generate(ids, options.sample, printer.events());
  if (options.sample.max_new_tokens == 0) {
    for (size_t i = 0; i < made.size(); ++i) printer.end(i, made[i]);
  }
  return 0;
}

}  // namespace

RunCommand add_generate(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  app.add_option("MODEL", o->model, "Hugging Face folder, checkpoint or run directory")->required();
  auto* prompt = app.add_option("--prompt", o->prompt, "text to continue; default: standard input");
  app.add_option("--prompts", o->prompts_file, "file with one prompt per line")->excludes(prompt);
  app.add_option("--max-new-tokens", o->sample.max_new_tokens,
                 "maximum number of tokens to add; default: 128");
  app.add_option("--temperature", o->temperature,
                 "0: always the likeliest token; default: 0, or 1 with --top-k or --top-p");
  app.add_option("--top-k", o->sample.top_k, "draw among the K likeliest; default: 0 (all)");
  app.add_option("--top-p", o->sample.top_p,
                 "draw among the fewest tokens that reach this probability; default: 1 (all)");
  app.add_option("--seed", o->sample.seed, "of the draws; default: 0");
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

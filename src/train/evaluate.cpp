// train/evaluate.cpp: one pass of the loss over the rows, then greedy answers where there are
// targets.
#include "train/evaluate.h"

#include <cmath>

#include "base/error.h"
#include "checkpoint/load.h"
#include "data/example.h"
#include "generate/generator.h"
#include "generate/stop_ids.h"
#include "graph/autodiff.h"
#include "train/engine.h"
#include "train/session.h"

namespace weft {
namespace {

std::string choose_model(const RunConfig& c, const std::string& given) {
  if (!given.empty()) return given;
  const std::filesystem::path run = std::filesystem::path(c.storage) / c.name;
  if (!list_checkpoints(run).empty()) return run.string();
  return resolve_model_path(c.model.path).string();
}

void measure_loss(const Session& session, const RowSource& rows, const LogicalModel& source,
                  ThreadPool* pool, EvalReport* report) {
  const RunConfig& c = session.config;
  const auto plan = make_eval_plan(c, *session.model, cpu_kernels(), pool->num_threads());
  ArenaLayout layout;
  layout.add(plan);
  const Arena arena(layout.total_bytes());
  Executor executor(plan, layout, arena, pool);
  session.model->fill_constants(plan.graph, [&](const std::string& n) { return executor.find(n); });
  const std::vector<ParameterSpec> specs = session.model->parameters();
  pool->run(static_cast<int64_t>(specs.size()), [&](int64_t i, int) {
    const ParameterSpec& spec = specs[static_cast<size_t>(i)];
    load_parameter(source, spec, c.compute_dtype(), executor.find(spec.name));
  });
  BatchStream stream(c.data, rows, *session.tokenizer, session.eval_stream());
  Batch batch;
  while (stream.next(batch)) {
    report->loss_sum += eval_loss_sum(&executor, batch, c.micro_batch());
    report->rows += batch.num_rows;
    report->target_tokens += batch.target_tokens;
  }
}

// Prompts and answers of every row of the evaluation part.
struct Questions {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> answers;
  int64_t longest_prompt = 0, longest_answer = 0;
};

Questions read_questions(const Session& session, const RowSource& rows) {
  const RunConfig& c = session.config;
  const ExampleMaker maker(c.data, *session.tokenizer, session.model->vocab_size());
  const auto longer = [](int64_t most, const std::vector<int32_t>& ids) {
    return std::max(most, static_cast<int64_t>(ids.size()));
  };
  Questions q;
  Row row;
  for (int64_t i = 0; i < rows_taken(c.data, rows.size()); ++i) {
    if (c.data.eval_fraction > 0 &&
        !is_eval_row(static_cast<uint64_t>(c.seed), i, c.data.eval_fraction)) {
      continue;
    }
    rows.read(i, row);
    std::vector<int32_t> prompt, answer;
    session.tokenizer->encode(maker.prompt(rows, i, row), true, prompt);
    q.answers.push_back(maker.answer(rows, i, row));
    session.tokenizer->encode(q.answers.back(), false, answer);
    q.longest_prompt = longer(q.longest_prompt, prompt);
    q.longest_answer = longer(q.longest_answer, answer);
    q.prompts.push_back(std::move(prompt));
  }
  return q;
}

double measure_exact_match(const Session& session, const RowSource& rows,
                           const LogicalModel& source, ThreadPool* pool) {
  const Questions q = read_questions(session, rows);
  GenerateOptions options;
  options.compute = session.config.compute_dtype();
  options.max_positions =
      std::min(session.model->max_positions(), q.longest_prompt + q.longest_answer + 2);
  Generator generator(*session.model, options, cpu_kernels(), pool,
                      [&](const ParameterSpec& spec, Dtype dtype, void* data) {
                        load_parameter(source, spec, dtype, data);
                      });
  SampleOptions sample;
  sample.max_new_tokens = q.longest_answer + 1;
  sample.stop_ids = find_stop_ids(session.tokenizer.get(), source.config, nullptr);
  const auto made = generator.generate(q.prompts, sample);
  int64_t equal = 0;
  for (size_t i = 0; i < made.size(); ++i) {
    equal += session.tokenizer->decode(made[i], true) == q.answers[i];
  }
  return made.empty() ? 0 : static_cast<double>(equal) / static_cast<double>(made.size());
}

}  // namespace

std::optional<double> EvalReport::loss() const {
  if (target_tokens == 0) return std::nullopt;
  return loss_sum / static_cast<double>(target_tokens);
}

Json EvalReport::to_json() const {
  const auto value = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
  const std::optional<double> mean = loss();
  Json out;
  out.set("eval_loss", value(mean));
  out.set("perplexity", mean ? Json(std::exp(*mean)) : Json());
  out.set("rows", rows);
  out.set("target_tokens", target_tokens);
  out.set("exact_match", value(exact_match));
  return out;
}

EvalReport evaluate(const RunConfig& config, const std::string& model) {
  if (!config.has_eval()) {
    throw UserError(
        "the run file names no rows for evaluation",
        "give data.eval, or data.eval_fraction, for example with --set data.eval=[FILE]");
  }
  const Session session(config);
  const auto rows = session.open_eval_rows();
  EvalReport report;
  report.model = choose_model(config, model);
  const LogicalModel source = open_logical(report.model);
  ThreadPool pool(choose_threads(config.launch));
  measure_loss(session, *rows, source, &pool, &report);
  if (!config.data.target.empty()) {
    report.exact_match = measure_exact_match(session, *rows, source, &pool);
  }
  return report;
}

}  // namespace weft

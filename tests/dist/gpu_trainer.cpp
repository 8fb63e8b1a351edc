// tests/dist/gpu_trainer.cpp: a run file in a temporary folder, and ranks as threads.
#include "tests/dist/gpu_trainer.h"

#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "comm/comm.h"
#include "kernel/cpu/level.h"
#include "net/shm_world.h"
#include "tests/dist/queued_kernels.h"
#include "tests/emulated_device.h"
#include "tests/tiny_config.h"
#include "train/trainer.h"

namespace weft::testing {
namespace {

std::string rows() {
  std::string text;
  for (int i = 0; i < 43; ++i) {
    text += "row";
    for (int w = 0; w < (i * 7 + 3) % 11; ++w) text += fmt::format(" {}{}", "abcdefg"[w % 7], i);
    text += "\n";
  }
  return text;
}

Backend make_backend(GpuKind kind, int rank, const GpuTrainer::MakeFault& fault) {
  if (kind == GpuKind::kCpu) return {&cpu_kernels(), &host_device(), nullptr};
  if (kind == GpuKind::kEmulated) {
    std::unique_ptr<Device> own = std::make_unique<EmulatedDevice>();
    Device* device = own.get();
    return {&emulated_kernels(), device, std::move(own)};
  }
  auto own = std::make_unique<FakeDevice>();
  own->fault.gpu = rank;
  if (fault) fault(rank, *own);
  Device* device = own.get();
  return {&queued_kernels(), device, std::move(own)};
}

// As in main and the supervisor; a killed rank reports nothing.
RankEnd run_rank(const RunFile& file, const RankPlace& place) {
  TrainOptions options;
  options.quiet = true;
  try {
    return {train_rank(file, options, place), ""};
  } catch (const Error& e) {
    return {e.exit_code(), e.what()};
  } catch (const Killed&) {
    if (place.world) place.world->abort(fmt::format("rank {} was killed by SIGKILL", place.rank));
    return {128 + 9, "killed"};
  }
}

}  // namespace

GpuTrainer::GpuTrainer() {
  std::filesystem::create_directory(folder_ / "model");
  std::ofstream(folder_ / "model/config.json") << kTinyConfig;
  std::ofstream(folder_ / "train.txt") << rows();
  std::ofstream(folder_ / "run.yaml") << fmt::format(R"(name: tiny
storage: {0}/runs
seed: 7
model: {{path: {0}/model, init: random}}
data: {{train: [{0}/train.txt], tokenizer: bytes, seq_length: 24}}
train: {{steps: 6, global_batch: 8, micro_batch: 4, lr: 1.0e-2}}
checkpoint: {{every: 2, keep: 3}}
launch: {{threads: 1}}
)",
                                                     folder_.path().string());
}

std::filesystem::path GpuTrainer::checkpoint(int64_t step) const {
  return dir() / fmt::format("checkpoints/step-{:08}", step);
}

void GpuTrainer::write_rows(const std::string& text) const {
  std::ofstream(folder_ / "train.txt") << text;
}

std::vector<RankEnd> GpuTrainer::train(GpuKind kind, const std::vector<std::string>& sets,
                                       const MakeFault& fault) const {
  set_log_quiet(true);
  const RunFile file(folder_ / "run.yaml", sets);
  const auto num_ranks = static_cast<int>(file.config().parallel.dp * file.config().parallel.tp);
  std::vector<RankEnd> ends(static_cast<size_t>(num_ranks));
  FakeNccl nccl;
  std::shared_ptr<ShmWorld> world;
  if (num_ranks > 1) {
    WorldOptions options;
    options.num_ranks = num_ranks;
    world = ShmWorld::create(options);
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; ++r) {
    threads.emplace_back([&, r] {
      RankPlace place{r, 1, world, [&, r] { return make_backend(kind, r, fault); }, nullptr};
      if (kind == GpuKind::kNccl) place.nccl = &nccl;
      RankEnd& end = ends[static_cast<size_t>(r)] = run_rank(file, place);
      // As the supervisor does; a rank that only lost its peers is not reported.
      if (world && end.exit_code != 0) world->abort(end.message);
    });
  }
  for (std::thread& t : threads) t.join();
  return ends;
}

void GpuTrainer::train_well(GpuKind kind, const std::vector<std::string>& sets) const {
  for (const RankEnd& end : train(kind, sets)) EXPECT_EQ(end.exit_code, 0) << end.message;
}

std::vector<std::string> GpuTrainer::metrics(const std::string& key) const {
  std::vector<std::string> found;
  std::ifstream text(dir() / "metrics.jsonl");
  const std::string mark = "\"" + key + "\":";
  for (std::string line; std::getline(text, line);) {
    const size_t at = line.find(mark);
    if (at == std::string::npos) continue;
    const size_t begin = at + mark.size();
    found.push_back(line.substr(begin, line.find_first_of(",}", begin) - begin));
  }
  return found;
}

std::vector<double> GpuTrainer::losses() const {
  std::vector<double> values;
  for (const std::string& text : metrics("loss")) values.push_back(std::stod(text));
  return values;
}

}  // namespace weft::testing

// tests/dist/gpu_trainer.cpp: a run file in a temporary folder, and ranks as threads.
#include "tests/dist/gpu_trainer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "base/log.h"
#include "comm/comm.h"
#include "kernel/cpu/level.h"
#include "net/shm_world.h"
#include "net/snapshot_slots.h"
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

bool is_over_nccl(GpuKind kind) { return kind == GpuKind::kNccl || kind == GpuKind::kNcclOnCpu; }

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
  const Kernels& kernels = kind == GpuKind::kNccl ? queued_kernels() : queued_cpu_kernels();
  return {&kernels, device, std::move(own)};
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

// The ranks as threads, each with its own view of the shared memory, as processes have.
class ThreadJob {
 public:
  using MakePlace = std::function<RankPlace(int rank)>;
  ThreadJob(const RunFile& file, int num_ranks, MakePlace make_place)
      : file_(file),
        make_place_(std::move(make_place)),
        world_(ShmWorld::create({.num_ranks = num_ranks})),
        slots_(SnapshotSlots::create(num_ranks)),
        ranks_(static_cast<size_t>(num_ranks)) {}

  GpuTrainer::Survived run() {
    world_->set_recovers(true);
    for (size_t r = 0; r < ranks_.size(); ++r) start(r);
    while (!has_ended()) {
      if (is_any_failed()) {  // as it would again
        world_->set_recovers(false);
        world_->abort("a rank failed");
      } else if (is_any_dead() || is_aborted_by_parked()) {
        recover();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (Rank& rank : ranks_) {
      rank.thread.join();
      survived_.ends.push_back(rank.end);
    }
    return survived_;
  }

 private:
  struct Rank {
    std::thread thread;
    std::atomic<bool> has_ended{false};
    RankEnd end;
    bool is_dead() const { return has_ended && (end.exit_code == 75 || end.exit_code == 137); }
  };

  void start(size_t r) {
    Rank& rank = ranks_[r];
    rank.has_ended = false;
    rank.thread = std::thread([this, &rank, r] {
      RankPlace place = make_place_(static_cast<int>(r));
      place.world = ShmWorld::attach(::dup(world_->fd()));
      place.slots = SnapshotSlots::attach(::dup(slots_->fd()));
      rank.end = run_rank(file_, place);
      rank.has_ended = true;
    });
  }
  bool is_any_failed() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) {
      return r.has_ended && r.end.exit_code != 0 && !r.is_dead();
    });
  }
  bool has_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& r) {
      return r.has_ended && (!r.is_dead() || is_any_failed());
    });
  }
  bool is_any_dead() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.is_dead(); });
  }
  bool is_parked(size_t r) const { return world_->is_parked(static_cast<int>(r)); }
  bool is_aborted_by_parked() const {
    bool is_any = false;
    for (size_t r = 0; r < ranks_.size(); ++r) is_any |= is_parked(r);
    return is_any && world_->is_aborted();
  }

  // Until nobody runs.
  void wait_for_all() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      while (!ranks_[r].has_ended && !is_parked(r))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void recover() {
    world_->abort("a rank died");
    wait_for_all();
    const std::optional<int64_t> step = slots_->newest_common();
    if (!step) {
      world_->set_recovers(false);  // those that have parked end
      for (Rank& rank : ranks_) {
        while (!rank.has_ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      slots_->drop_all();
    }
    std::vector<int> dead;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].is_dead()) dead.push_back(static_cast<int>(r));
    }
    survived_.starts.push_back(step);
    survived_.num_replaced += static_cast<int>(dead.size());
    world_->set_recovers(true);
    for (const int r : dead) ranks_[static_cast<size_t>(r)].thread.join();
    world_->reset(dead, step.value_or(-1));
    for (const int r : dead) start(static_cast<size_t>(r));
  }

  const RunFile& file_;
  MakePlace make_place_;
  std::shared_ptr<ShmWorld> world_;
  std::shared_ptr<SnapshotSlots> slots_;
  std::vector<Rank> ranks_;
  GpuTrainer::Survived survived_;
};

}  // namespace

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

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
                                       const MakeFault& fault,
                                       std::shared_ptr<ShmWorld> world) const {
  set_log_quiet(true);
  const RunFile file(folder_ / "run.yaml", sets);
  const auto num_ranks = static_cast<int>(file.config().parallel.dp * file.config().parallel.tp);
  std::vector<RankEnd> ends(static_cast<size_t>(num_ranks));
  FakeNccl nccl;
  if (num_ranks > 1 && !world) {
    WorldOptions options;
    options.num_ranks = num_ranks;
    world = ShmWorld::create(options);
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < num_ranks; ++r) {
    threads.emplace_back([&, r] {
      RankPlace place{r, 1, world, [&, r] { return make_backend(kind, r, fault); }, nullptr};
      if (is_over_nccl(kind)) place.nccl = &nccl;
      RankEnd& end = ends[static_cast<size_t>(r)] = run_rank(file, place);
      // As the supervisor does; a rank that only lost its peers is not reported.
      if (world && end.exit_code != 0) world->abort(end.message);
    });
  }
  for (std::thread& t : threads) t.join();
  return ends;
}

GpuTrainer::Survived GpuTrainer::survive(GpuKind kind, const std::vector<std::string>& sets,
                                         const MakeFault& fault) const {
  set_log_quiet(true);
  const RunFile file(folder_ / "run.yaml", sets);
  FakeNccl nccl;
  ThreadJob job(file, static_cast<int>(file.config().parallel.dp * file.config().parallel.tp),
                [&](int r) {
                  RankPlace place;
                  place.rank = r;
                  place.open_device = [&, r] { return make_backend(kind, r, fault); };
                  if (is_over_nccl(kind)) place.nccl = &nccl;
                  return place;
                });
  return job.run();
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

// tests/dist/gpu_trainer.h: whole runs of the trainer on test GPUs, with run directories.
//
// Ranks are threads; what a supervisor does for processes (aborting the others when one dies) is
// done here.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/shm_world.h"
#include "tests/fake_device.h"
#include "tests/fake_nccl.h"
#include "tests/io/temporary_folder.h"

namespace weft::testing {

std::string text_of(const std::filesystem::path& file);

// Settings, as `--set` has them: key=value.
using Sets = std::vector<std::string>;
Sets with(Sets sets, const Sets& more);

// Thrown by a rank that must die at once.
struct Killed {};

enum class GpuKind {
  kCpu,        // none
  kEmulated,   // one, emulated on the CPU, that the ranks share
  kShared,     // one with async queues, of the CPU's kernels
  kNccl,       // one each, with queues, over the fake NCCL
  kNcclOnCpu,  // the same with the CPU's kernels, which are faster
};

struct RankEnd {
  int exit_code = 0;
  std::string message;  // of the exception
};

class GpuTrainer {
 public:
  // 2 layers, hidden 32, GQA, bytes; 43 rows of unequal length. 6 steps of 8 rows, saved every 2.
  GpuTrainer();

  std::filesystem::path dir() const { return folder_ / "runs/tiny"; }
  std::filesystem::path checkpoint(int64_t step) const;
  void write_rows(const std::string& text) const;  // in place of the 43
  void clear() const { std::filesystem::remove_all(dir()); }

  // fault: what is wrong with the device of a rank (kShared, kNccl). world: null: a new one.
  using MakeFault = std::function<void(int rank, FakeDevice&)>;
  std::vector<RankEnd> train(GpuKind kind, const std::vector<std::string>& sets = {},
                             const MakeFault& fault = nullptr,
                             std::shared_ptr<ShmWorld> world = nullptr) const;
  // Fails the test where a rank does not succeed.
  void train_well(GpuKind kind, const std::vector<std::string>& sets = {}) const;

  // With what a supervisor does when a rank dies or its GPU fails: the others park, it is replaced,
  // and all go back to a step that their snapshots hold. `fault` is called for every device that is
  // opened, replacements included.
  struct Survived {
    std::vector<RankEnd> ends;
    std::vector<std::optional<int64_t>> starts;  // after each death: the step; none: from storage
    int num_replaced = 0;
  };
  Survived survive(GpuKind kind, const std::vector<std::string>& sets,
                   const MakeFault& fault) const;

  // Of metrics.jsonl: the text after a key, line by line. Equal text means equal bits.
  std::vector<std::string> metrics(const std::string& key) const;
  std::vector<double> losses() const;

 private:
  TemporaryFolder folder_;
};

}  // namespace weft::testing

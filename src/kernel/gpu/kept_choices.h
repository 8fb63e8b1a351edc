// kernel/gpu/kept_choices.h: the choices of one kind of GPU, which all processes of a machine
// share.
//
// The first process that meets a product measures it and stores its choice at once; others that
// meet it meanwhile wait, and use that choice. So ranks on one machine compute alike, also one that
// takes another's place, and they do not disturb each other's measurements.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "kernel/gpu/gemm_choices.h"

namespace weft {

class KeptChoices {
 public:
  // path: of gemm_choices_path(); empty: nothing is shared or stored.
  KeptChoices(std::string measured_on, std::filesystem::path path);

  struct Measured {
    LtAlgorithm algorithm;
    bool is_kept;  // false: there was no memory to measure it
  };
  // The stored choice where there is one and accepts() takes it, which may complete it; else what
  // measure() returns.
  LtAlgorithm choose(const LtProblem& problem, const std::function<bool(LtAlgorithm*)>& accepts,
                     const std::function<Measured()>& measure);

  // Exact mode's, which needs no lock: all algorithms that it may choose have the same bits.
  const LtAlgorithm* find(const LtProblem& problem);
  void keep(const LtProblem& problem, const LtAlgorithm& algorithm);
  // Reports what was measured once no new products appear.
  void note_known_call();

 private:
  void load();

  std::string measured_on_;
  std::filesystem::path path_;
  GemmChoices choices_;
  bool is_loaded_ = false;
  int num_unreported_ = 0, quiet_calls_ = 0;
};

}  // namespace weft

// config/device_fallback.cpp: hints name only what helps in the given case.
#include "config/device_fallback.h"

#include <fmt/core.h>

namespace weft {
namespace {

int64_t num_ranks(const RunConfig& c) { return c.ranks_per_node(); }  // on this machine

// What follows "set".
const char* other_precision(Purpose purpose) {
  return purpose == Purpose::kEval ? "train.precision to fp32 (--set train.precision=fp32)"
                                   : "train.precision to bf16 or fp32";
}

std::string why_not_served(const RunConfig& c, const GpusHere& here) {
  if (!here.is_built) return "this weft was built without CUDA";
  if (here.count == 0) return "no GPU can be used: " + here.why_none;
  return fmt::format("{} ranks need one GPU each, but this machine has {}", num_ranks(c),
                     here.count);
}

std::string way_to_a_gpu(const GpusHere& here) {
  if (!here.is_built) return ", or build weft with -DWEFT_CUDA=ON (README, On a GPU)";
  if (here.count == 0) return "; `weft doctor` shows what is missing";
  return ", lower dp or tp, or set WEFT_COMM=cuda_ipc to let ranks share a GPU";
}

}  // namespace

std::string why_on_cpu(const RunConfig& c, const GpusHere& here) {
  const bool is_asked = c.launch.device == "cpu", is_served = here.serve(num_ranks(c));
  std::string why = is_asked ? "launch.device is cpu" : "";
  if (!is_served) why += (is_asked ? ", and " : "") + why_not_served(c, here);
  return why;
}

std::string cpu_line(const RunConfig& c, const GpusHere& here) {
  if (c.launch.device != "auto" || !here.is_built || here.serve(num_ranks(c))) return "";
  return "on the CPU: " + why_on_cpu(c, here);
}

UserError no_fp16_here(const RunConfig& c, const GpusHere& here, Purpose purpose) {
  const std::string hint =
      here.serve(num_ranks(c))
          ? fmt::format("set launch.device to cuda, or {}", other_precision(purpose))
          : fmt::format("set {}{}", other_precision(purpose), way_to_a_gpu(here));
  return UserError("train.precision is fp16, which needs a GPU; this run would use the CPU: " +
                       why_on_cpu(c, here),
                   hint);
}

UserError no_gpu_here(const RunConfig& c, const std::string& why_none, Purpose purpose) {
  const std::string precision =
      c.train.precision == "fp16"
          ? fmt::format(" and {}, since the CPU has no fp16", other_precision(purpose))
          : "";
  return UserError(
      "no GPU can be used: " + why_none,
      fmt::format("set launch.device to cpu{}; `weft doctor` shows what is missing", precision));
}

}  // namespace weft

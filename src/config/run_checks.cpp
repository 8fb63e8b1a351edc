// config/run_checks.cpp: contradictions in a run file, and what to set instead.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/byte_size.h"
#include "base/error.h"
#include "base/printable.h"
#include "config/elastic.h"
#include "config/launch_env.h"
#include "config/run_config.h"

namespace weft {

std::string list_divisors(int64_t n) {
  constexpr int64_t kMostTried = 1 << 20;
  constexpr int kMostShown = 24;
  std::string text;
  int shown = 0;
  for (int64_t d = 1; d <= std::min(n, kMostTried) && shown < kMostShown; ++d) {
    if (n % d != 0) continue;
    text += fmt::format("{}{}", shown++ > 0 ? ", " : "", d);
  }
  return text;
}

namespace {

std::optional<int64_t> read_steps(const std::string& text) {
  int64_t steps = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, steps);
  if (error != std::errc() || stop != end || steps < 0) return std::nullopt;
  return steps;
}

}  // namespace

int64_t LaunchConfig::snapshot_steps() const {
  const int64_t steps = read_steps(snapshot_every).value_or(0);
  return steps > 0 ? steps : snapshot_every == "auto" ? 0 : -1;
}

namespace {

void check_snapshots(const std::string& every, std::vector<std::string>* complaints) {
  if (every == "auto" || read_steps(every)) return;
  complaints->push_back(
      fmt::format("launch.snapshot_every is \"{}\", wanted auto or a number of steps, 0 = none",
                  printable_line(every)));
}

// For tests: nodes that are one machine.
bool may_share_lo() { return std::getenv("WEFT_NODES_ON_LO") != nullptr; }

void check_nodes(const RunConfig& c, std::vector<std::string>* complaints) {
  const int64_t ranks = c.parallel.dp * c.parallel.tp, nodes = c.launch.nodes;
  const int64_t there = c.launch.ranks_per_node;
  if (ranks % nodes != 0 || (there != 0 && there * nodes != ranks)) {
    complaints->push_back(
        fmt::format("parallel.dp={} x parallel.tp={} needs {} rank{}, but launch.nodes is {}{}: "
                    "set launch.nodes to one of {} and launch.ranks_per_node to 0, or change dp",
                    c.parallel.dp, c.parallel.tp, ranks, ranks == 1 ? "" : "s", nodes,
                    there == 0 ? "" : fmt::format(" and launch.ranks_per_node {}", there),
                    list_divisors(c.parallel.dp)));  // tensor-parallel ranks share a node
  } else if (ranks / nodes % c.parallel.tp != 0) {
    const int64_t here = ranks / nodes;
    complaints->push_back(fmt::format(
        "parallel.tp={} does not divide the number of ranks of a node, {} (launch.nodes={}): "
        "tensor-parallel ranks share a node; set tp to {}, or use fewer nodes",
        c.parallel.tp, here, nodes, here == 1 ? "1" : "one of " + list_divisors(here)));
  }
  const std::string& interface = c.launch.interface;
  if ((interface == "lo" || interface.starts_with("127.")) && !may_share_lo())
    complaints->push_back(fmt::format(
        "launch.interface is {}, which other machines cannot reach, but launch.nodes is "
        "{}: name the interface or address of the network between the nodes",
        interface, nodes));
}

// The ranks that the layout needs against launch.ranks_per_node.
void check_ranks(const RunConfig& c, std::vector<std::string>* complaints) {
  const int64_t wanted = c.parallel.dp * c.parallel.tp, there = c.launch.ranks_per_node;
  if (c.launch.nodes > 1) return check_nodes(c, complaints);
  if (there == 0 || wanted == there) return;
  complaints->push_back(fmt::format(
      "parallel.dp={} x parallel.tp={} needs {} rank{}, but launch.ranks_per_node is {}: set it "
      "to {} (or 0), or parallel.tp to one of {} and parallel.dp to {} / tp",
      c.parallel.dp, c.parallel.tp, wanted, wanted == 1 ? "" : "s", there, wanted,
      list_divisors(there), there));
}

void check_rows(const DataConfig& d, std::vector<std::string>* complaints) {
  const bool pair = !d.source.empty() || !d.target.empty();
  if (pair && (d.source.empty() || d.target.empty())) {
    complaints->push_back(fmt::format("data.{} is given without data.{}: both are needed",
                                      d.source.empty() ? "target" : "source",
                                      d.source.empty() ? "source" : "target"));
  }
  if (pair + !d.text.empty() + !d.messages.empty() > 1) {
    complaints->push_back(
        "more than one of data.text, data.source + data.target and data.messages is given: give "
        "exactly one");
  }
  if (!d.eval.empty() && d.eval_fraction > 0) {
    complaints->push_back("data.eval and data.eval_fraction are both given: give only one");
  }
  try {
    parse_byte_size(d.max_row_bytes, "data.max_row_bytes");
  } catch (const UserError& e) {
    complaints->push_back(e.what());
  }
  if (d.layout == "pack" && !d.mask_padding) {
    complaints->push_back(
        "data.mask_padding: false cannot be combined with data.layout: pack, whose padding belongs "
        "to no row; set layout to pad or dynamic, or mask_padding to true");
  }
}

void check_scaling(const TrainConfig& t, std::vector<std::string>* complaints) {
  if (t.precision == "fp16" && !t.master_weights) {
    complaints->push_back(
        "train.master_weights: false cannot be combined with train.precision: fp16, whose 11 bits "
        "lose small updates; leave it at true, or set precision to bf16");
  }
  if (std::exp2(std::round(std::log2(t.loss_scale))) != t.loss_scale) {
    complaints->push_back(
        fmt::format("train.loss_scale is {}, wanted a power of two such as 65536", t.loss_scale));
  }
}

void check_tf32(const RunConfig& c, std::vector<std::string>* complaints) {
  if (!c.train.tf32 || c.parallel.mode != "exact") return;
  complaints->push_back(
      "train.tf32: true cannot be combined with parallel.mode: exact, which computes in true fp32; "
      "set tf32 to "
      "false, or mode to fast");
}

// The name is that of a folder, and appears in messages, JSON lines and on the curve.
void check_name(const std::string& name, std::vector<std::string>* complaints) {
  constexpr size_t kMostBytes = 255 - 16;  // NAME_MAX, less temporary suffixes
  const std::string shown = printable_line(name.substr(0, 40)) + (name.size() > 40 ? "..." : "");
  if (name.size() > kMostBytes) {
    complaints->push_back(
        fmt::format("name \"{}\" has {} bytes, but a folder name may have at most {}", shown,
                    name.size(), kMostBytes));
  } else if (printable_line(name) != name) {
    complaints->push_back(
        fmt::format("name \"{}\" has a line end, a control character or bytes that are not UTF-8, "
                    "wanted a plain folder name",
                    shown));
  } else if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
    complaints->push_back(fmt::format("name \"{}\" must be a plain folder name", name));
  }
}

// For exact mode, where exact_rows itself divides the batch.
std::string other_dp(int64_t batch, const ParallelConfig& p) {
  if (batch % p.exact_rows != 0) return "";
  return fmt::format(", or parallel.dp to one of {}", list_divisors(batch / p.exact_rows));
}

}  // namespace

void check_batch(const RunConfig& c, std::vector<std::string>* complaints) {
  const TrainConfig& t = c.train;
  const int64_t dp = c.parallel.dp, micro = c.micro_batch();
  if (t.global_batch % dp != 0) {
    complaints->push_back(fmt::format(
        "train.global_batch {} is not a multiple of parallel.dp {}, but every rank computes the "
        "same number of rows: set parallel.dp to one of {}, or change the batch",
        t.global_batch, dp, list_divisors(t.global_batch)));
    return;
  }
  if (c.parallel.mode == "exact" && t.global_batch % (dp * c.parallel.exact_rows) != 0) {
    complaints->push_back(fmt::format(
        "train.global_batch {} is not a multiple of parallel.dp {} x exact_rows {}: set "
        "parallel.exact_rows to a divisor of {} ({}){}",
        t.global_batch, dp, c.parallel.exact_rows, t.global_batch / dp,
        list_divisors(t.global_batch / dp), other_dp(t.global_batch, c.parallel)));
    return;
  }
  if (c.parallel.mode == "exact" && c.parallel.exact_rows > t.micro_batch) {
    complaints->push_back(
        fmt::format("parallel.exact_rows {} rows are computed together, but train.micro_batch "
                    "allows {}: raise it, or lower exact_rows",
                    c.parallel.exact_rows, t.micro_batch));
    return;
  }
  const int64_t rows = t.global_batch / dp;
  if (rows % micro != 0) {
    complaints->push_back(fmt::format(
        "train.global_batch {}{} is not a multiple of train.micro_batch {}: set "
        "micro_batch to a divisor ({})",
        t.global_batch, dp > 1 ? fmt::format(" / dp {}", dp) : "", micro, list_divisors(rows)));
  } else if (t.grad_accum != 0 && t.grad_accum != rows / micro) {
    complaints->push_back(fmt::format(
        "train.grad_accum is {}, but global_batch {} / (dp {} x {} {}) is {}: leave it "
        "at 0",
        t.grad_accum, t.global_batch, dp,
        c.parallel.mode == "exact" ? "parallel.exact_rows" : "micro_batch", micro, rows / micro));
  }
}

void check_config(const OptionTable& table, const RunConfig& c,
                  std::vector<std::string>* complaints) {
  check_rows(c.data, complaints);
  check_ranks(c, complaints);
  check_batch(c, complaints);
  check_elastic(c, complaints);
  check_scaling(c.train, complaints);
  check_tf32(c, complaints);
  check_evaluation(c, complaints);
  check_snapshots(c.launch.snapshot_every, complaints);
  check_launch_env(c.launch.env, complaints);
  // A resolved file has both: a default next to the given one is no contradiction.
  if (c.train.steps && table.was_given("train.epochs") && c.train.epochs != TrainConfig().epochs) {
    complaints->push_back("train.steps and train.epochs are both given: give only one");
  }
  if (table.was_given("name")) check_name(c.name, complaints);
  if (printable_line(c.storage) != c.storage) {
    complaints->push_back(
        fmt::format("storage \"{}\" has a line end, a control character or bytes that are not "
                    "UTF-8, wanted a plain folder",
                    printable_line(c.storage)));
  }
  if (c.storage.find("://") != std::string::npos && !c.storage.starts_with("s3://")) {
    complaints->push_back(fmt::format(
        "storage \"{}\" is of an unknown kind, wanted a folder or s3://bucket/prefix", c.storage));
  }
}

}  // namespace weft

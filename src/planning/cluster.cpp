// planning/cluster.cpp: the table of keys of a cluster file, and checks over several of them.
#include "planning/cluster.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/file.h"

namespace weft {
namespace {

// Far above anything that exists: what is typed wrong is refused, and no time becomes infinite.
constexpr double kMostSpeed = 1e9, kLeastSpeed = 1e-6;

void bind_device(OptionTable& t, DeviceSpeeds& d) {
  const auto speed = [&](const char* key, double* target, const char* help) -> Option& {
    return t.add(key, target, help).at_most(kMostSpeed);
  };
  const auto speeds = [&](const char* key, std::vector<double>* target, const char* help) {
    t.add(key, target, help).between(kLeastSpeed, kMostSpeed);
  };
  t.add("device.kind", &d.kind, "what computes: GPUs (cuda) or CPU ranks (cpu)")
      .one_of({"cuda", "cpu"});
  speed("device.memory_gb", &d.memory_gb, "of one device, in 10^9 bytes; 0 = not checked")
      .at_least(0);
  speed("device.peak_tflops", &d.peak_tflops, "of the data sheet: MFU is relative to it")
      .at_least(kLeastSpeed)
      .required();
  speeds("device.product_gflop", &d.product_gflop,
         "sizes of the matrix products that were measured, growing; empty: one speed for all");
  speeds("device.tflops_fp32", &d.tflops_fp32,
         "measured speed of a matrix product, one for each of product_gflop");
  speeds("device.tflops_bf16", &d.tflops_bf16, "the same for bf16 (and fp16)");
  speeds("device.attention_gflop", &d.attention_gflop, "sizes of attention (one call, one pass)");
  speeds("device.attention_tflops_fp32", &d.attention_tflops_fp32,
         "its speed, one for each of attention_gflop; empty: that of products");
  speeds("device.attention_tflops_bf16", &d.attention_tflops_bf16, "the same for bf16 (and fp16)");
  speed("device.copy_gb_per_s", &d.copy_gb_per_s, "memory, bytes read plus bytes written")
      .at_least(kLeastSpeed)
      .required();
  t.add("device.node_us", &d.node_us, "between the end of one operation and the start of the next")
      .between(0, 1e6);
  t.add("device.communication_share", &d.communication_share,
        "of the device, which a collective takes from the computation that it overlaps")
      .between(0, 1);
  speed("device.snapshot_gb_per_s", &d.snapshot_gb_per_s, "copy of the state to host memory")
      .at_least(kLeastSpeed);
}

void bind_link(OptionTable& t, const std::string& section, LinkSpeed& link, const char* of) {
  t.add(section + ".gb_per_s", &link.gb_per_s,
        fmt::format("bandwidth of {}, in each direction", of))
      .between(0, kMostSpeed);
  t.add(section + ".latency_us", &link.latency_us, "of one message").between(0, 1e9);
}

using Numbers = std::vector<double>;

// Speeds by size: as many as sizes, which grow.
void check_speeds(const char* key, const Numbers& sizes,
                  std::initializer_list<std::pair<const char*, const Numbers*>> speeds,
                  std::vector<std::string>* complaints) {
  const size_t wanted = std::max<size_t>(1, sizes.size());
  for (const auto& [name, given] : speeds) {
    if (given->empty() || given->size() == wanted) continue;
    complaints->push_back(fmt::format("{} has {} speeds, wanted {}: one for each size of {}", name,
                                      given->size(), wanted, key));
  }
  const auto falls = std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>());
  if (falls != sizes.end())
    complaints->push_back(fmt::format("{} must grow: {} follows {}", key, falls[1], falls[0]));
}

void check_cluster(const Cluster& c, std::vector<std::string>* complaints) {
  const DeviceSpeeds& d = c.device;
  const auto complain = [&](std::string text) { complaints->push_back(std::move(text)); };
  check_speeds("device.product_gflop", d.product_gflop,
               {{"device.tflops_fp32", &d.tflops_fp32}, {"device.tflops_bf16", &d.tflops_bf16}},
               complaints);
  check_speeds("device.attention_gflop", d.attention_gflop,
               {{"device.attention_tflops_fp32", &d.attention_tflops_fp32},
                {"device.attention_tflops_bf16", &d.attention_tflops_bf16}},
               complaints);
  if (d.tflops_fp32.empty() && d.tflops_bf16.empty())
    complain("neither device.tflops_fp32 nor device.tflops_bf16 is given: products have no speed");
  if (c.devices_per_node > 1 && c.inside.gb_per_s == 0)
    complain(fmt::format("inside.gb_per_s is needed: devices_per_node is {}", c.devices_per_node));
  if (c.nodes > 1 && c.between.gb_per_s == 0)
    complain(fmt::format("between.gb_per_s is needed: nodes is {}", c.nodes));
}

}  // namespace

void bind_cluster(OptionTable* table, Cluster* c) {
  OptionTable& t = *table;
  t.add("name", &c->name, "for the report");
  t.add("nodes", &c->nodes, "machines").between(1, 1 << 20).required();
  t.add("devices_per_node", &c->devices_per_node, "ranks that a machine can hold, one per device")
      .between(1, 1 << 10)
      .required();
  bind_device(t, c->device);
  bind_link(t, "inside", c->inside, "one device to the others of its node");
  bind_link(t, "between", c->between, "one node to the others, all its network cards together");
  t.add("collectives.algorithm", &c->algorithm,
        "of groups of ranks; auto: what NCCL (on cpu: shared memory and gloo) does")
      .one_of({"auto", "ring", "tree", "direct", "hierarchical"});
  t.add("storage.gb_per_s", &c->storage_gb_per_s, "checkpoints, of all nodes together")
      .between(kLeastSpeed, kMostSpeed);
  t.add("failures.node_mtbf_hours", &c->failures.node_mtbf_hours,
        "mean time between failures of one node with its devices; 0 = nothing fails")
      .between(0, 1e9);
  t.add("failures.recovery_s", &c->failures.recovery_s,
        "from a failure until training continues from snapshots in memory")
      .between(0, 1e7);
  t.add("failures.restart_s", &c->failures.restart_s,
        "from a failure until all ranks run again; loading the checkpoint is added")
      .between(0, 1e7);
}

Cluster parse_cluster(std::string_view text, const std::string& source) {
  Cluster cluster;
  OptionTable table;
  bind_cluster(&table, &cluster);
  std::vector<std::string> complaints;
  table.read(parse_yaml(text, source), source, complaints);
  table.check_required(complaints);
  if (complaints.empty()) check_cluster(cluster, &complaints);
  for (std::string& line : complaints) {
    if (!line.starts_with(source)) line = source + ": " + line;
  }
  refuse(complaints);
  return cluster;
}

Cluster read_cluster(const std::filesystem::path& path) {
  return parse_cluster(read_file(path, kMaxYamlBytes), path.string());
}

}  // namespace weft

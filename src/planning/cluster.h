// planning/cluster.h: a cluster on paper: its nodes, the speeds of devices and links, its failures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"

namespace weft {

struct DeviceSpeeds {
  std::string kind = "cuda";  // or cpu: which form of the graph its ranks run
  double memory_gb = 0;       // 0: not checked
  double peak_tflops = 0;     // the denominator of MFU
  // Speed of a product of so many GFLOP; one entry: of every product.
  std::vector<double> product_gflop, tflops_fp32, tflops_bf16;
  // The same for attention, forward and backward alike; no speeds: as products.
  std::vector<double> attention_gflop, attention_tflops_fp32, attention_tflops_bf16;
  double copy_gb_per_s = 0;        // bytes read plus bytes written
  double node_us = 1;              // between the end of a node and the start of the next
  double communication_share = 0;  // of the device, taken by a collective in flight
  double snapshot_gb_per_s = 25;   // to host memory
};

struct LinkSpeed {
  double gb_per_s = 0;    // in each direction
  double latency_us = 0;  // of one message
};

struct Failures {
  double node_mtbf_hours = 0;  // of one node; 0: nothing fails
  double recovery_s = 2;       // from memory, until training continues
  double restart_s = 300;      // from storage: found, queued, started; without loading
};

struct Cluster {
  std::string name;
  int64_t nodes = 1, devices_per_node = 1;
  DeviceSpeeds device;
  LinkSpeed inside, between;  // of one device; of one node
  std::string algorithm = "auto";
  double storage_gb_per_s = 10;  // of all nodes together
  Failures failures;

  bool has_gpus() const { return device.kind == "cuda"; }
};

void bind_cluster(OptionTable* table, Cluster* cluster);
// UserError with all complaints, each with its line. source: the file's name.
Cluster parse_cluster(std::string_view text, const std::string& source);
Cluster read_cluster(const std::filesystem::path& path);

}  // namespace weft

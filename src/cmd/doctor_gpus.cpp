// cmd/doctor_gpus.cpp: driver, libraries and devices, each queried separately.
#include "cmd/doctor_gpus.h"

#include <fmt/core.h>

#include "comm/nccl/nccl_library.h"
#include "kernel/device_kernels.h"
#include "kernel/gpu/cuda_options.h"
#include "planning/backend.h"
#include "tensor/device.h"

namespace weft {
namespace {

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string show(const Json& version) { return version.is_null() ? "none" : version.as_string(); }

}  // namespace

Json gather_gpus() {
  if (!cuda_kernels()) return {};
  const CudaInfo info = read_cuda_info();
  std::string why;
  const NcclLibrary* nccl = find_nccl(&why);
  Json::Array devices;
  for (const CudaInfo::Gpu& gpu : info.gpus) {
    devices.emplace_back(Json::Object{{"name", Json(gpu.name)},
                                      {"memory_bytes", Json(gpu.memory_bytes)},
                                      {"capability", fmt::format("{}.{}", gpu.major, gpu.minor)}});
  }
  return Json::Object{
      {"driver", text_or_null(info.driver)},           {"runtime", text_or_null(info.runtime)},
      {"cublas", text_or_null(cublas_version())},      {"cudnn", text_or_null(cudnn_version())},
      {"nccl", nccl ? Json(nccl->version()) : Json()}, {"devices", devices}};
}

void print_gpus(const Json& gpus) {
  if (gpus.is_null()) return;
  const Json& driver = gpus.at("driver");
  fmt::print("cuda        {}, built with {}; cuBLASLt {}, cuDNN {}, NCCL {}\n",
             driver.is_null() ? "no driver" : "driver for " + driver.as_string(),
             show(gpus.at("runtime")), show(gpus.at("cublas")), show(gpus.at("cudnn")),
             show(gpus.at("nccl")));
  constexpr double kGib = 1024.0 * 1024 * 1024;
  int number = 0;
  for (const Json& gpu : gpus.at("devices").as_array()) {
    fmt::print("  gpu {}     {}, {:.1f} GiB, compute capability {}\n", number++,
               gpu.at("name").as_string(),
               static_cast<double>(gpu.at("memory_bytes").as_int()) / kGib,
               gpu.at("capability").as_string());
  }
}

std::vector<std::string> missing_gpu_parts() {
  if (!cuda_kernels()) return {"CUDA back end: GPUs are not used"};
  std::vector<std::string> parts;
  std::string why;
  if (count_cuda_devices(&why) == 0) parts.push_back("a GPU: " + why);
  if (cublas_version().empty())
    parts.push_back(
        "cuBLASLt: without it no GPU is used; pip's nvidia-cublas or CUDA's own has it");
  if (cudnn_version().empty())
    parts.push_back(
        fmt::format("cuDNN: the built-in kernel computes all attention ({})", why_no_cudnn()));
  const NcclLibrary* nccl = find_nccl(&why);
  if (!nccl)
    parts.push_back(fmt::format("NCCL: needed for several ranks with one GPU each ({})", why));
  else if (!serves_two_groups(nccl->version()))
    parts.push_back(
        fmt::format("NCCL {} or newer: needed for dp and tp at the same time (found {})",
                    kNcclForTwoGroups, nccl->version()));
  return parts;
}

}  // namespace weft

// tests/dist/alone.h: one rank without the mesh's harness, whose steps can be inspected.
#pragma once

#include <memory>
#include <vector>

#include "tests/backends.h"
#include "tests/dist/mesh_run.h"
#include "train/engine.h"
#include "train/host_slices.h"

namespace weft::testing {

struct Alone {
  explicit Alone(const MeshRun& run)
      : backend(run.backend),
        model(make_model(run.model, {})),
        engine(run.config, *model, &ranks, *backend.kernels, 1, backend.device) {
    engine.init_weights(5);
  }
  // Masters and states.
  std::vector<std::byte> bytes() const {
    const HostSlices held(engine.weights().checkpoint_slices(), backend.device);
    std::vector<std::byte> all;
    for (const Slice& s : held.slices()) {
      const auto* at = static_cast<const std::byte*>(s.data);
      all.insert(all.end(), at, at + num_elements(s.extent) * dtype_bytes(s.dtype));
    }
    return all;
  }

  RankBackend backend;
  std::unique_ptr<Model> model;
  Ranks ranks{Layout{}};
  Engine engine;
};

}  // namespace weft::testing

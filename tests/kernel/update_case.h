// tests/kernel/update_case.h: what the update kernels of every optimizer must guarantee.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tests/kernel/each_device.h"

namespace weft {

// One optimizer: its kernel over one parameter and its kernel over all of them, on a GPU.
struct UpdateForm {
  const char* name;
  int num_states;
  OptimizerScalars (*scalars)(int step, bool decay);
  void (*one)(const Kernels&, const Context&, const UpdateTypes&, const UpdateItem&,
              double grad_scale, const OptimizerScalars&);
  void (*DeviceKernels::*all)(const Context&, const UpdateListArgs&);
  // States that hold sums or means of squares: the values to start from are not negative.
  bool squares[kMaxUpdateStates] = {false, true};
};

// A parameter with gradient and states.
struct UpdatedParameter {
  UpdateTypes types;
  int num_states;
  Buffer p, master, grad, first, second;

  UpdatedParameter(const UpdateForm& form, const UpdateTypes& of, int64_t n, uint64_t stream)
      : types(of),
        num_states(form.num_states),
        p(Buffer::random(of.dtype, n, stream)),
        master(Buffer::random(Dtype::kF32, n, stream)),
        grad(Buffer::random(of.grad_dtype, n, stream + 1)),
        first(Buffer::random(of.state_dtypes[0], n, stream + 2, 0.1)),
        second(Buffer::random(of.state_dtypes[1], n, stream + 3, 0.1)) {
    for (int64_t i = 0; i < n; ++i) {
      if (form.squares[0]) first.set(i, first[i] * first[i]);
      if (form.squares[1]) second.set(i, second[i] * second[i]);
    }
  }
  UpdateItem item(bool decay) {
    return {p.size(),
            p.data(),
            types.has_master ? master.floats() : nullptr,
            grad.data(),
            {num_states > 0 ? first.data() : nullptr, num_states > 1 ? second.data() : nullptr},
            decay};
  }
  std::vector<Buffer> changed() const {
    std::vector<Buffer> all = {p};
    if (types.has_master) all.push_back(master);
    if (num_states > 0) all.push_back(first);
    if (num_states > 1) all.push_back(second);
    return all;
  }
};

inline std::vector<UpdateTypes> update_types() {
  const Dtype f = Dtype::kF32, b = Dtype::kBf16, h = Dtype::kF16;
  return {{f, f, {f, f}, false}, {b, b, {b, b}, false}, {b, f, {f, f}, true}, {b, b, {f, f}, true},
          {b, b, {b, b}, true},  {f, b, {b, b}, false}, {h, f, {f, f}, true}};
}

inline std::string update_words(const UpdateForm& form, const UpdateTypes& t) {
  return fmt::format("{} {} gradient {} state {}{}", form.name, dtype_name(t.dtype),
                     dtype_name(t.grad_dtype), dtype_name(t.state_dtypes[0]),
                     t.has_master ? " master" : "");
}

// Three steps on every backend, against ref.
inline void compare_update_levels(const UpdateForm& form) {
  for (const UpdateTypes& types : update_types()) {
    for (const int64_t n : {1, 70, 333, 17001}) {
      const bool is_narrow = form.num_states > 0 && types.state_dtypes[0] == Dtype::kBf16;
      compare_levels(
          fmt::format("{} n {}", update_words(form, types), n), types.dtype,
          [&](const Kernels& kernels, Bench& bench) {
            UpdatedParameter p(form, types, n, 1);
            // What a bf16 state rounded the other way may nearly cancel in the next step.
            for (int step = 5; step < (is_narrow ? 6 : 8); ++step) {
              p.grad = Buffer::random(types.grad_dtype, n, static_cast<uint64_t>(step));
              form.one(kernels, bench.context(0), types, p.item(true), 0.5,
                       form.scalars(step, true));
            }
            Outputs outputs;
            for (const Buffer& b : p.changed()) outputs.push_back(b);
            return outputs;
          },
          tolerance_of(is_narrow ? Dtype::kBf16 : types.dtype));
    }
  }
}

// On a GPU the list has the bits of single calls, and a scale that is NaN changes nothing.
inline void compare_update_list(const UpdateForm& form) {
  TestVector<UpdateScalars> scalars(1);
  scalars[0].optimizer = form.scalars(3, true);
  for (UpdateTypes types : update_types()) {
    types.num_states = form.num_states;
    for (const float scale_value : {0.25f, std::numeric_limits<float>::quiet_NaN()}) {
      const TestVector<float> scale = {scale_value};
      each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
        std::vector<UpdatedParameter> got, want;
        for (const int64_t n : {1, 333, 16384, 18000, 8})
          got.emplace_back(form, types, n, static_cast<uint64_t>(n));
        want = got;
        std::vector<UpdateItem> items;
        for (UpdatedParameter& p : got) items.push_back(p.item(items.size() % 2 == 0));
        const auto count = static_cast<int64_t>(items.size());
        TestVector<std::byte> table(k.update_table_bytes(items.data(), count));
        const int64_t blocks = k.update_table(items.data(), count, table.data());
        (k.*form.all)(bench.context(0),
                      {types, table.data(), blocks, scalars.data(), scale.data()});
        for (size_t i = 0; i < want.size(); ++i) {
          const UpdatedParameter before = want[i];
          const bool counts = scale_value == 0.25f;
          if (counts)
            form.one(kernels_named(name), bench.context(0), types, want[i].item(true), 0.25,
                     form.scalars(3, i % 2 == 0));
          const auto made = got[i].changed(), wanted = want[i].changed();
          for (size_t b = 0; b < made.size(); ++b)
            EXPECT_TRUE(made[b].same_bits(wanted[b]))
                << update_words(form, types) << ", " << name << ", parameter " << i << ", " << b;
          if (counts && i > 0) {
            EXPECT_FALSE(got[i].p.same_bits(before.p)) << name;
          }
        }
      });
    }
  }
}

// An update that also sums the squares of its gradients: its bits are those of the list above, the
// squares' those of squares_list. Addresses that allow no vectors, and cells that are not whole.
inline void compare_update_with_squares(const UpdateForm& form) {
  TestVector<UpdateScalars> scalars(1);
  scalars[0].target_tokens = 4;
  scalars[0].optimizer = form.scalars(3, true);
  const TestVector<float> scale = {0.25f};
  int num_compared = 0;
  for (UpdateTypes types : update_types()) {
    types.num_states = form.num_states;
    if (!can_sum_squares(types)) continue;
    ++num_compared;
    each_device([&](const DeviceKernels& k, Bench& bench, const std::string& name) {
      std::vector<UpdatedParameter> got;
      for (const int64_t n : {1, 256, 333, 16384, 18000, 40960, 8})
        got.emplace_back(form, types, n, static_cast<uint64_t>(n));
      std::vector<UpdatedParameter> want = got;
      std::vector<TestVector<double>> squares, wanted_squares;
      const auto run = [&](std::vector<UpdatedParameter>& parameters, bool sums) {
        std::vector<UpdateItem> items;
        for (UpdatedParameter& p : parameters) {
          items.push_back(p.item(items.size() % 2 == 0));
          UpdateItem& item = items.back();
          if (item.n == 40960) {  // from its second element on
            item.n -= 1;
            item.grad = static_cast<const std::byte*>(item.grad) + 2;
          }
          const auto cells = static_cast<size_t>((item.n + 255) / 256);
          if (sums) item.partials = squares.emplace_back(cells, -1.0).data();
          if (sums) continue;
          wanted_squares.emplace_back(cells, -2.0);
          kernels_named(name).squares(bench.context(0), {item.n, types.grad_dtype, item.grad,
                                                         wanted_squares.back().data()});
        }
        const auto count = static_cast<int64_t>(items.size());
        TestVector<std::byte> table(k.update_table_bytes(items.data(), count));
        const int64_t blocks = k.update_table(items.data(), count, table.data());
        (k.*form.all)(bench.context(0),
                      {types, table.data(), blocks, scalars.data(), scale.data(), sums});
      };
      run(got, true);
      run(want, false);
      EXPECT_EQ(squares, wanted_squares) << update_words(form, types) << ", " << name;
      for (size_t i = 0; i < want.size(); ++i) {
        const auto made = got[i].changed(), wanted = want[i].changed();
        for (size_t b = 0; b < made.size(); ++b)
          EXPECT_TRUE(made[b].same_bits(wanted[b]))
              << update_words(form, types) << ", " << name << ", parameter " << i << ", " << b;
      }
    });
  }
  EXPECT_GT(num_compared, 0);
}

}  // namespace weft

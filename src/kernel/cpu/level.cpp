// kernel/cpu/level.cpp: selects the instruction level at program start.
#include "kernel/cpu/level.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "kernel/kernels.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace weft {

// What every level's table.cpp and math.cpp define. A level with a base has no math.cpp of its own.
#define WEFT_DECLARE_TABLE(level) \
  namespace level {               \
  const Kernels& kernels();       \
  }
#define WEFT_DECLARE_LEVEL(level)                    \
  WEFT_DECLARE_TABLE(level)                          \
  namespace level {                                  \
  void exp_all(const float* x, float* y, int64_t n); \
  void log_all(const float* x, float* y, int64_t n); \
  void erf_all(const float* x, float* y, int64_t n); \
  }
#if defined(__aarch64__)
WEFT_DECLARE_LEVEL(neon)
WEFT_DECLARE_LEVEL(neon_bf16)
#elif defined(__x86_64__)
WEFT_DECLARE_LEVEL(avx2)
WEFT_DECLARE_LEVEL(avx512)
#ifdef WEFT_HAS_avx512_bf16  // levels.cmake
WEFT_DECLARE_TABLE(avx512_bf16)
#endif
#ifdef WEFT_HAS_amx
WEFT_DECLARE_TABLE(amx)
#endif
#endif

namespace {

struct Level {
  const Kernels& (*kernels)();
  bool (*present)();
  LevelMath math;
};

#if defined(__aarch64__)
constexpr unsigned long kHwcap2Bf16 = 1ul << 14;  // HWCAP2_BF16; older headers lack the name
bool has_neon() { return true; }
bool has_neon_bf16() { return (getauxval(AT_HWCAP2) & kHwcap2Bf16) != 0; }

constexpr Level kLevels[] = {
    {neon::kernels, has_neon, {neon::exp_all, neon::log_all, neon::erf_all}},
    {neon_bf16::kernels,
     has_neon_bf16,
     {neon_bf16::exp_all, neon_bf16::log_all, neon_bf16::erf_all}}};
#elif defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know the name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
// __builtin_cpu_supports also checks whether the system saves the wide registers.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2") && has_f16c();
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#ifdef WEFT_HAS_avx512_bf16
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

#ifdef WEFT_HAS_amx
// Linux grants the tile registers only on request.
bool has_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmxBf16) == 0 || (d & kAmxTile) == 0) return false;
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}
#endif

constexpr LevelMath kAvx512Math = {avx512::exp_all, avx512::log_all, avx512::erf_all};
constexpr Level kLevels[] = {
    {avx2::kernels, has_avx2, {avx2::exp_all, avx2::log_all, avx2::erf_all}},
    {avx512::kernels, has_avx512, kAvx512Math},
#ifdef WEFT_HAS_avx512_bf16
    {avx512_bf16::kernels, has_avx512_bf16, kAvx512Math},
#endif
#ifdef WEFT_HAS_amx
    {amx::kernels, has_amx, kAvx512Math},
#endif
};
#endif

std::string names_of_levels() {
  std::string names;
  for (const char* name : available_levels()) names += std::string(name) + ", ";
  return names + "ref";
}

const Kernels& choose_kernels() {
  if (const char* wanted = std::getenv("WEFT_CPU_LEVEL"); wanted && *wanted) {
    if (const Kernels* found = find_kernels(wanted)) return *found;
    throw UserError(
        fmt::format("WEFT_CPU_LEVEL={}, but this machine has {}", wanted, names_of_levels()),
        "unset WEFT_CPU_LEVEL to use the best");
  }
  const std::vector<const char*> names = available_levels();
  if (names.empty()) {
    throw UserError("this processor has none of the instruction levels that weft is built for",
                    "set WEFT_CPU_LEVEL=ref for the slow reference kernels");
  }
  return *find_kernels(names.back());
}

}  // namespace

std::vector<const char*> available_levels() {
  std::vector<const char*> names;
  for (const Level& level : kLevels) {
    if (level.present()) names.push_back(level.kernels().name);
  }
  return names;
}

LevelMath level_math(const char* name) {
  for (const Level& level : kLevels) {
    if (level.present() && std::string_view(name) == level.kernels().name) return level.math;
  }
  throw BugError(fmt::format("no level {} on this machine", name));
}

const Kernels* find_kernels(const char* name) {
  if (std::string_view(name) == "ref") return &ref_kernels();
  for (const Level& level : kLevels) {
    if (level.present() && std::string_view(name) == level.kernels().name) return &level.kernels();
  }
  return nullptr;
}

const Kernels& cpu_kernels() {
  static const Kernels& chosen = choose_kernels();
  return chosen;
}

}  // namespace weft

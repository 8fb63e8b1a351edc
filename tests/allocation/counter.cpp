// tests/allocation/counter.cpp: counting versions of malloc and its kin, overriding the C
// library's.
//
// operator new of libstdc++ calls malloc through the same symbol, so one set of functions sees
// both; the aligned form calls aligned_alloc. Address and thread sanitizers bring their own malloc.
#include "tests/allocation/counter.h"

#include <atomic>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_COUNTS 0
#elif defined(__has_feature)
#define WEFT_COUNTS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define WEFT_COUNTS 1
#endif

namespace weft::testing {
namespace {

std::atomic<bool> is_counting{false};
std::atomic<int64_t> calls{0};

}  // namespace

void note_call() {
  if (is_counting.load(std::memory_order_relaxed)) calls.fetch_add(1, std::memory_order_relaxed);
}

void start_counting() {
  calls = 0;
  is_counting = true;
}

int64_t stop_counting() {
  is_counting = false;
  return calls;
}

}  // namespace weft::testing

#if WEFT_COUNTS

#include <cerrno>
#include <cstddef>

// glibc's own names for the real functions: no dlsym, which itself allocates.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  weft::testing::note_call();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  weft::testing::note_call();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  weft::testing::note_call();
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  weft::testing::note_call();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  weft::testing::note_call();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  weft::testing::note_call();
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}
}

#endif

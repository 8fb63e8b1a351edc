// base/mapped_files.cpp: a table that the SIGBUS handler reads without a lock.
#include "base/mapped_files.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <string>

#include "base/error.h"

namespace weft {
namespace {

// Chunks are linked and never freed: the handler may walk them at any time. `begin` is set last and
// cleared first; the path is accessed only under the mutex.
struct Entry {
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> size{0};
  std::atomic<bool> is_lost{false};
  std::string path;
};
struct Chunk {
  std::array<Entry, 256> entries;
  std::atomic<Chunk*> next{nullptr};
};

struct Table {
  Chunk first;
  std::mutex mutex;
  std::string lost_path;  // of a mapping that no longer exists
  size_t lost_size = 0;
};
// Never destroyed: threads and exit handlers may still read files.
Table& table() {
  static Table* const made = new Table;
  return *made;
}
std::atomic<Chunk*> chunks{nullptr};  // how the handler reaches the table
std::atomic<bool> any_lost{false};
std::atomic<size_t> page_bytes{4096};
struct sigaction before;

// Async-signal-safe.
void* lose(Entry& entry, uintptr_t begin, uintptr_t address) {
  const uintptr_t page = address / page_bytes * page_bytes;
  entry.is_lost = true;  // before another thread can read the zeros
  any_lost = true;
  return ::mmap(reinterpret_cast<void*>(page), begin + entry.size - page, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void handle_bus_error(int, siginfo_t* info, void*) {
  const int saved = errno;  // of the code that was interrupted
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Chunk* chunk = chunks; chunk != nullptr; chunk = chunk->next) {
    for (Entry& entry : chunk->entries) {
      const uintptr_t begin = entry.begin;
      if (begin == 0 || address < begin || address - begin >= entry.size) continue;
      if (lose(entry, begin, address) == MAP_FAILED) continue;
      errno = saved;
      return;
    }
  }
  ::sigaction(SIGBUS, &before, nullptr);  // raised again, and handled by the previous handler
  errno = saved;
}

void set_handler() {
  page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  chunks = &table().first;
  struct sigaction action {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &before);
}

// Under the mutex.
Entry& free_entry() {
  Chunk* chunk = &table().first;
  for (;; chunk = chunk->next) {
    for (Entry& entry : chunk->entries) {
      if (entry.begin == 0) return entry;
    }
    if (chunk->next == nullptr) chunk->next = new Chunk;
  }
}

// Under the mutex.
void keep_lost(const Entry& entry) {
  if (!entry.is_lost || !table().lost_path.empty()) return;
  table().lost_path = entry.path;
  table().lost_size = entry.size;
}

}  // namespace

void watch_mapping(const void* at, size_t size, const std::filesystem::path& path) {
  static std::once_flag once;
  std::call_once(once, set_handler);
  const std::lock_guard lock(table().mutex);
  Entry& entry = free_entry();
  entry.path = path.string();
  entry.size = size;
  entry.is_lost = false;
  entry.begin = reinterpret_cast<uintptr_t>(at);
}

void unwatch_mapping(const void* at) {
  const std::lock_guard lock(table().mutex);
  for (Chunk* chunk = &table().first; chunk != nullptr; chunk = chunk->next) {
    for (Entry& entry : chunk->entries) {
      if (at == nullptr || entry.begin != reinterpret_cast<uintptr_t>(at)) continue;
      keep_lost(entry);
      entry.begin = 0;
      return;
    }
  }
}

void check_mapped_files() {
  if (!any_lost) return;
  const std::lock_guard lock(table().mutex);
  for (Chunk* chunk = &table().first; chunk != nullptr; chunk = chunk->next) {
    for (Entry& entry : chunk->entries) {
      if (entry.begin != 0) keep_lost(entry);
    }
  }
  struct stat now {};
  const bool is_there = ::stat(table().lost_path.c_str(), &now) == 0;
  if (is_there && static_cast<size_t>(now.st_size) == table().lost_size) {
    throw RunError(
        fmt::format("{} could not be read: a page is missing although the file still has {} bytes",
                    table().lost_path, table().lost_size),
        "check the disk or the file server (dmesg), then run the same command again");
  }
  throw RunError(
      fmt::format("{} changed while it was in use: it had {} bytes, now {}", table().lost_path,
                  table().lost_size, is_there ? std::to_string(now.st_size) : "it is gone"),
      "restore the file, then run the same command again");
}

void check_mapped_file(const void* at) {
  if (!any_lost) return;
  const auto address = reinterpret_cast<uintptr_t>(at);
  for (Chunk* chunk = chunks; chunk != nullptr; chunk = chunk->next) {
    for (const Entry& entry : chunk->entries) {
      const uintptr_t begin = entry.begin;
      const bool is_it = begin != 0 && address >= begin && address - begin < entry.size;
      if (is_it && entry.is_lost) check_mapped_files();
    }
  }
}

void forget_lost_files() {
  const std::lock_guard lock(table().mutex);
  any_lost = false;
  table().lost_path.clear();
}

}  // namespace weft

// launch/process_stack.cpp: registers by ptrace, return addresses from the stack, names from ELF.
//
// Frames are followed by their frame pointers where the compiler keeps them: all on aarch64, on
// x86_64 those of a few functions. Beyond these the words of the stack that point behind a call are
// listed: some may be left over from earlier calls.
#include "launch/process_stack.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/core.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

namespace weft {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

// Of the words beyond the chain of frames many may be left over: 40 were too few to reach the
// caller.
constexpr size_t kMostFrames = 100, kMostThreads = 64;
// Whoever asks has others to answer: threads that do not stop must not hold it up.
constexpr std::chrono::milliseconds kMostTimeOfThread{200}, kMostTime{2000};

struct Registers {
  uint64_t pc = 0, frame = 0, stack = 0;
};

// An executable part of a file that the process has mapped.
struct Module {
  uint64_t begin, end, offset;
  std::string path;
};

std::vector<Module> modules_of(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::vector<Module> found;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, device, inode, path;
    words >> range >> rights >> offset >> device >> inode >> path;
    if (rights.size() < 3 || rights[2] != 'x') continue;
    const size_t dash = range.find('-');
    found.push_back({std::stoull(range.substr(0, dash), nullptr, 16),
                     std::stoull(range.substr(dash + 1), nullptr, 16),
                     std::stoull(offset, nullptr, 16), path});
  }
  return found;
}

// The functions of an ELF file, by address.
struct Symbols {
  struct Function {
    uint64_t begin, size;
    std::string name;
  };
  std::vector<Function> functions;
  std::vector<Elf64_Phdr> segments;

  explicit Symbols(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Elf64_Ehdr header{};
    if (!read_at(file, 0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG))
      return;
    segments.resize(header.e_phnum);
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    if (!read_at(file, header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr)) ||
        !read_at(file, header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr)))
      return;
    for (const uint32_t kind : {uint32_t{SHT_SYMTAB}, uint32_t{SHT_DYNSYM}}) {
      for (const Elf64_Shdr& table : sections) {
        if (table.sh_type == kind && table.sh_link < sections.size() && functions.empty())
          add(file, table, sections[table.sh_link]);
      }
    }
    std::sort(functions.begin(), functions.end(),
              [](const Function& a, const Function& b) { return a.begin < b.begin; });
  }

  std::string name_at(uint64_t file_offset) const {
    for (const Elf64_Phdr& s : segments) {
      if (s.p_type != PT_LOAD || file_offset < s.p_offset || file_offset >= s.p_offset + s.p_filesz)
        continue;
      const uint64_t address = s.p_vaddr + (file_offset - s.p_offset);
      const auto after =
          std::upper_bound(functions.begin(), functions.end(), address,
                           [](uint64_t a, const Function& f) { return a < f.begin; });
      if (after == functions.begin()) return "";
      const Function& f = *(after - 1);
      return address < f.begin + std::max<uint64_t>(f.size, 1) ? f.name : "";
    }
    return "";
  }

 private:
  static bool read_at(std::ifstream& file, uint64_t at, void* to, size_t bytes) {
    file.clear();
    file.seekg(static_cast<std::streamoff>(at));
    file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    return static_cast<size_t>(file.gcount()) == bytes;
  }
  void add(std::ifstream& file, const Elf64_Shdr& table, const Elf64_Shdr& names) {
    std::vector<Elf64_Sym> symbols(table.sh_size / sizeof(Elf64_Sym));
    std::vector<char> text(names.sh_size + 1);
    if (!read_at(file, table.sh_offset, symbols.data(), symbols.size() * sizeof(Elf64_Sym)) ||
        !read_at(file, names.sh_offset, text.data(), names.sh_size))
      return;
    for (const Elf64_Sym& s : symbols) {
      if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_value != 0 && s.st_name < names.sh_size)
        functions.push_back({s.st_value, s.st_size, text.data() + s.st_name});
    }
  }
};

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

// Of one stopped process.
class ModuleNames {
 public:
  explicit ModuleNames(pid_t pid) : pid_(pid), modules_(modules_of(pid)) {}

  const Module* find(uint64_t address) const {
    for (const Module& m : modules_) {
      if (address >= m.begin && address < m.end) return &m;
    }
    return nullptr;
  }

  std::string describe(uint64_t address) {
    const Module* m = find(address);
    if (m == nullptr) return fmt::format("{:#x}", address);
    const uint64_t offset = address - m->begin + m->offset;
    const std::string name = symbols_of(m->path).name_at(offset);
    const std::string file = fs::path(m->path).filename();
    return name.empty() ? fmt::format("{}+{:#x}", file, offset)
                        : fmt::format("{} ({})", readable(name), file);
  }

 private:
  const Symbols& symbols_of(const std::string& path) {
    for (const auto& [known, symbols] : symbols_) {
      if (known == path) return *symbols;
    }
    // As the process sees it: the program may have been replaced since it was started.
    const bool is_program = fs::path(path) == program_;
    symbols_.emplace_back(
        path, std::make_unique<Symbols>(is_program ? fmt::format("/proc/{}/exe", pid_) : path));
    return *symbols_.back().second;
  }

  pid_t pid_;
  std::vector<Module> modules_;
  fs::path program_ = [this] {
    std::error_code unknown;
    return fs::read_symlink(fmt::format("/proc/{}/exe", pid_), unknown);
  }();
  std::vector<std::pair<std::string, std::unique_ptr<Symbols>>> symbols_;
};

bool read_words(pid_t pid, uint64_t at, uint64_t* words, size_t count) {
  iovec here{words, count * sizeof(uint64_t)};
  iovec there{reinterpret_cast<void*>(at), count * sizeof(uint64_t)};
  return ::process_vm_readv(pid, &here, 1, &there, 1, 0) ==
         static_cast<ssize_t>(count * sizeof(uint64_t));
}

bool read_registers(pid_t thread, Registers* found) {
  user_regs_struct regs{};
  iovec place{&regs, sizeof regs};
  if (::ptrace(PTRACE_GETREGSET, thread, reinterpret_cast<void*>(NT_PRSTATUS), &place) != 0)
    return false;
#if defined(__aarch64__)
  *found = {regs.pc, regs.regs[29], regs.sp};
#else
  *found = {regs.rip, regs.rbp, regs.rsp};
#endif
  return true;
}

std::vector<uint64_t> addresses(pid_t pid, const Registers& regs, const ModuleNames& names) {
#if defined(__aarch64__)
  constexpr bool kKeepsFrames = true;
#else
  constexpr bool kKeepsFrames = false;
#endif
  std::vector<uint64_t> found = {regs.pc};
  uint64_t frame = regs.frame, beyond = regs.stack;
  std::array<uint64_t, 2> link;
  while (found.size() < kMostFrames && frame >= regs.stack && frame % 8 == 0 &&
         read_words(pid, frame, link.data(), 2) && names.find(link[1])) {
    found.push_back(link[1]);
    beyond = frame + sizeof link;
    if (link[0] <= frame) break;
    frame = link[0];
  }
  const bool is_chain = found.size() > 2;  // a single link may be chance
  if (kKeepsFrames && is_chain) return found;
  if (!is_chain) beyond = regs.stack;
  std::array<uint64_t, 256> words;
  for (uint64_t at = beyond; found.size() < kMostFrames && at < beyond + (16 << 10);
       at += sizeof words) {
    if (!read_words(pid, at & ~uint64_t{7}, words.data(), words.size())) break;
    for (const uint64_t word : words) {
      if (found.size() < kMostFrames && names.find(word)) found.push_back(word);
    }
  }
  return found;
}

// Attached and stopped while it lives, unless the system forbids it.
class StoppedThread {
 public:
  StoppedThread(pid_t thread, Clock::time_point until) : thread_(thread) {
    is_attached_ = ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) == 0;
    if (!is_attached_ || ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
      error_ = errno;
      return;
    }
    do {
      int status = 0;
      is_stopped_ = ::waitpid(thread, &status, __WALL | WNOHANG) == thread && WIFSTOPPED(status);
      if (!is_stopped_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } while (!is_stopped_ && Clock::now() < until);
  }
  ~StoppedThread() {
    if (is_stopped_) ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
  }
  StoppedThread(const StoppedThread&) = delete;
  StoppedThread& operator=(const StoppedThread&) = delete;
  bool is_stopped() const { return is_stopped_; }
  std::string why_not() const { return error_ ? std::strerror(error_) : "it does not stop"; }

 private:
  pid_t thread_;
  bool is_attached_ = false, is_stopped_ = false;
  int error_ = 0;
};

std::string thread_name(pid_t pid, pid_t thread) {
  std::string name;
  std::ifstream file(fmt::format("/proc/{}/task/{}/comm", pid, thread));
  std::getline(file, name);
  return name;
}

}  // namespace

std::string process_stack(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/task", pid), gone))
    threads.push_back(std::atoi(entry.path().filename().c_str()));
  std::sort(threads.begin(), threads.end());
  if (threads.size() > kMostThreads) threads.resize(kMostThreads);
  ModuleNames names(pid);
  std::string text;
  const Clock::time_point end = Clock::now() + kMostTime;
  for (const pid_t thread : threads) {
    text += fmt::format("thread {} ({})\n", thread, thread_name(pid, thread));
    const StoppedThread stopped(thread, std::min(end, Clock::now() + kMostTimeOfThread));
    Registers regs;
    if (!stopped.is_stopped() || !read_registers(thread, &regs)) {
      text += fmt::format("  its stack cannot be read: {}\n", stopped.why_not());
      continue;
    }
    for (const uint64_t address : addresses(pid, regs, names))
      text += fmt::format("  {}\n", names.describe(address));
  }
  return text;
}

}  // namespace weft

// io/hf_cache.cpp: where the Hugging Face tools keep their downloads.
//
// <cache>/models--Org--Name/refs/<revision> holds a commit; snapshots/<commit>/ is the folder. A
// revision may also be the commit itself. Datasets are below datasets--Org--Name. weft downloads
// nothing: where a model is absent, it prints the command that does.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "io/hf_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct HubName {
  std::string name;      // Org/Name, or Name alone
  std::string revision;  // empty: not given
};

// The hub's rule: letters, digits and -_. , at most one slash, no ".." and no empty part.
std::optional<HubName> parse_hub_name(const std::string& text) {
  const size_t at = text.find('@');
  HubName hub{text.substr(0, at), at == std::string::npos ? "" : text.substr(at + 1)};
  if (at != std::string::npos && hub.revision.empty()) return std::nullopt;
  if (hub.revision.find("..") != std::string::npos || hub.revision.starts_with('/')) {
    return std::nullopt;
  }
  int slashes = 0;
  char before = '/';
  for (char c : hub.name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
    if (!plain && c != '.' && c != '/') return std::nullopt;
    if (before == '/' && !plain) return std::nullopt;
    if (before == '.' && c == '.') return std::nullopt;
    slashes += c == '/';
    before = c;
  }
  if (before == '/' || slashes > 1) return std::nullopt;
  return hub;
}

// Clearly not a hub name: a relative or absolute path, a file name, or something in an existing
// folder.
bool is_local_path(const std::string& text) {
  if (text.starts_with('/') || text.starts_with('.') || text.starts_with('~')) return true;
  const fs::path path = text;
  const std::string extension = path.extension().string();
  for (const char* known : {".safetensors", ".json", ".jsonl", ".yaml", ".yml", ".txt", ".csv",
                            ".parquet", ".arrow", ".bin", ".pt", ".gguf"}) {
    if (extension == known) return true;
  }
  return path.has_parent_path() && fs::is_directory(path.parent_path());
}

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path cache_folder() {
  if (const fs::path hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const fs::path home = variable("HF_HOME"); !home.empty()) return home / "hub";
  if (const fs::path xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "huggingface/hub";
  return variable("HOME") / ".cache/huggingface/hub";
}

// `kind` is "models" or "datasets".
std::optional<fs::path> find_snapshot(const fs::path& cache, const HubName& hub,
                                      const std::string& kind) {
  std::string folder = kind + "--" + hub.name;
  if (const size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  const fs::path model = cache / folder;
  std::string commit = hub.revision.empty() ? "main" : hub.revision;
  if (const fs::path ref = model / "refs" / commit; fs::is_regular_file(ref)) {
    commit = read_file(ref, 4096);
    while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back()))) {
      commit.pop_back();
    }
    require(!commit.empty() && commit.find_first_of("./") == std::string::npos,
            "{} holds \"{}\", wanted a commit", ref.string(), commit);
  }
  const fs::path snapshot = model / "snapshots" / commit;
  if (!fs::is_directory(snapshot)) return std::nullopt;
  return snapshot;
}

constexpr std::string_view kDatasets = "hf://datasets/";

}  // namespace

fs::path resolve_model_path(const std::string& path_or_name) {
  if (fs::is_directory(path_or_name)) return path_or_name;
  if (fs::exists(path_or_name))
    throw UserError(fmt::format("{} is a file, wanted a Hugging Face folder", path_or_name),
                    "weft export FILE FOLDER --config MODEL makes one of a file of tensors");
  const bool is_local = is_local_path(path_or_name);
  const auto hub = parse_hub_name(path_or_name);
  if (!hub && !is_local) {
    throw UserError(fmt::format("there is no folder {}", path_or_name),
                    "give a Hugging Face folder, or a hub name Org/Name[@revision]");
  }
  const fs::path cache = cache_folder();
  if (const auto snapshot = hub ? find_snapshot(cache, *hub, "models") : std::nullopt;
      snapshot && fs::exists(*snapshot / "config.json")) {
    return *snapshot;
  }
  require(!is_local, "there is no folder or file {}", path_or_name);
  const std::string revision = hub->revision.empty() ? "" : " --revision " + hub->revision;
  throw UserError(fmt::format("{} is neither a folder nor in the Hugging Face cache {}",
                              path_or_name, cache.string()),
                  fmt::format("fetch it: hf download {}{}", hub->name, revision));
}

bool is_hf_dataset(std::string_view path) { return path.starts_with(kDatasets); }

namespace {

// Common training data sets from the hub's early years, whose names had no organisation. The hub
// has since moved them into organisations.
constexpr std::string_view kNamesWithoutOrg[] = {
    "ag_news",       "bookcorpus",  "c4",       "cifar10",    "cnn_dailymail",
    "fashion_mnist", "glue",        "gsm8k",    "imdb",       "lambada",
    "mnist",         "openwebtext", "oscar",    "pile",       "ptb_text_only",
    "samsum",        "squad",       "squad_v2", "super_glue", "wikipedia",
    "wikisql",       "wikitext",    "wmt14",    "xsum"};

struct AskedDataset {
  HubName hub;
  std::string file;  // a path or pattern in the data set; empty: all files
};

// ORG/NAME/FILE and NAME/FILE look alike. A name has no organisation if a file follows it, or if it
// is one of the old names.
AskedDataset guess_dataset(const std::string& uri, const std::string& rest) {
  const auto part_end = [&rest](size_t from) {
    return std::min(rest.find('/', from), rest.size());
  };
  const auto below = [&rest](size_t end) { return end < rest.size() ? rest.substr(end + 1) : ""; };
  const size_t first = part_end(0), second = first < rest.size() ? part_end(first + 1) : first;
  const auto first_hub = parse_hub_name(rest.substr(0, first));
  require(first_hub.has_value(), "{}: {} is not the name of a dataset", uri, rest.substr(0, first));
  const bool is_old = std::find(std::begin(kNamesWithoutOrg), std::end(kNamesWithoutOrg),
                                first_hub->name) != std::end(kNamesWithoutOrg);
  const bool has_file = second == rest.size() && below(first).find_first_of(".*?[") < rest.size();
  if (is_old || has_file || second == first) return {*first_hub, below(first)};
  const auto hub = parse_hub_name(rest.substr(0, second));
  if (!hub || !first_hub->revision.empty()) return {*first_hub, below(first)};
  return {*hub, below(second)};
}

// The cached ORG/NAME for a requested NAME; empty: none.
std::string cached_with_org(const fs::path& cache, const std::string& name) {
  constexpr std::string_view kPrefix = "datasets--";
  for (const std::string& folder : folder_names(cache)) {
    if (!folder.starts_with(kPrefix) || !folder.ends_with("--" + name)) continue;
    const size_t org = folder.size() - kPrefix.size() - name.size();
    if (org > 2) return folder.substr(kPrefix.size(), org - 2) + "/" + name;
  }
  return "";
}

std::string way_to_fetch(const AskedDataset& asked, const fs::path& cache) {
  if (const size_t slash = asked.hub.name.find('/'); slash == std::string::npos) {
    if (const std::string name = cached_with_org(cache, asked.hub.name); !name.empty())
      return fmt::format("the cache has {0}: use {1}{0}{2}{3}", name, kDatasets,
                         asked.file.empty() ? "" : "/", asked.file);
  }
  std::string command = "hf download --repo-type dataset " + asked.hub.name;
  if (!asked.hub.revision.empty()) command += " --revision " + asked.hub.revision;
  const bool is_pattern = asked.file.find_first_of("*?[") != std::string::npos;
  const bool is_file = fs::path(asked.file).has_extension();
  if (is_pattern) command += fmt::format(" --include '{}'", asked.file);
  if (!is_pattern && is_file) command += " " + asked.file;
  if (!is_pattern && !is_file && !asked.file.empty())
    command += fmt::format(" --include '{}/*'", asked.file);
  return "fetch it: " + command;
}

}  // namespace

// hf://datasets/[ORG/]NAME[@revision][/FILE]. The content of the cache decides whether the
// first component is an organisation.
std::string resolve_hf_dataset(const std::string& uri) {
  const std::string rest = uri.substr(kDatasets.size());
  require(!rest.empty(), "{}: wanted {}[ORG/]NAME[/FILE]", uri, kDatasets);
  const AskedDataset asked = guess_dataset(uri, rest);
  const fs::path cache = cache_folder();
  size_t end = 0;
  for (int parts = 1; parts <= 2 && end < rest.size(); ++parts) {
    end = std::min(rest.find('/', end + (parts > 1 ? 1 : 0)), rest.size());
    const auto hub = parse_hub_name(rest.substr(0, end));
    require(hub.has_value(), "{}: {} is not the name of a dataset", uri, rest.substr(0, end));
    const auto snapshot = find_snapshot(cache, *hub, "datasets");
    if (!snapshot) continue;
    const std::string path = end < rest.size() ? rest.substr(end + 1) : "";
    require(path.find("..") == std::string::npos, "{}: '..' is not allowed in a path of a dataset",
            uri);
    return (path.empty() ? *snapshot : *snapshot / path).string();
  }
  throw UserError(fmt::format("{} is not in the Hugging Face cache {}", uri, cache.string()),
                  way_to_fetch(asked, cache));
}

}  // namespace weft

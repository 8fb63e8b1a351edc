// data/corpus.cpp: the grammar of the quickstart's corpus.
#include "data/corpus.h"

#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/path.h"
#include "base/random.h"
#include "io/file_system.h"

namespace weft {
namespace {

using Words = std::vector<std::string_view>;

const Words kTables = {"users", "items", "books", "films", "songs",  "cars",
                       "teams", "vans",  "pets",  "games", "hotels", "lakes"};
constexpr size_t kNumNumeric = 10;  // the first columns hold numbers, the others words
const Words kColumns = {"age",  "cost", "depth", "fuel",  "gain", "level", "price", "rank",
                        "size", "year", "brand", "color", "kind", "name",  "owner", "town"};
const std::array<Words, 6> kValues = {{{"acme", "nova", "zeta", "ford"},
                                       {"red", "blue", "green", "white"},
                                       {"old", "big", "tiny", "new"},
                                       {"luna", "rex", "milo", "kira"},
                                       {"ann", "bob", "eve", "max"},
                                       {"rome", "oslo", "lima", "cairo"}}};

// A sequence of random choices, each a pure function of seed and count.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  size_t below(size_t n) {
    constexpr uint64_t kStream = 0x73716c;
    return static_cast<size_t>(uniform_at(seed_, kStream, count_++) * static_cast<double>(n));
  }
  std::string_view of(const Words& words) { return words[below(words.size())]; }
  // Draws without replacement.
  size_t take(std::vector<size_t>& from) {
    const size_t at = below(from.size());
    const size_t taken = from[at];
    from.erase(from.begin() + static_cast<int64_t>(at));
    return taken;
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

// The columns of each table that a part may use.
using Allowed = std::vector<std::vector<size_t>>;

struct Split {
  Allowed train, test;
};

Split split_columns(Dice& dice) {
  Split split;
  for (size_t t = 0; t < kTables.size(); ++t) {
    std::vector<size_t> numeric, words;
    for (size_t c = 0; c < kColumns.size(); ++c) (c < kNumNumeric ? numeric : words).push_back(c);
    std::vector<size_t> held = {dice.take(numeric), dice.take(numeric), dice.take(numeric),
                                dice.take(words)};
    numeric.insert(numeric.end(), words.begin(), words.end());
    split.train.push_back(std::move(numeric));
    split.test.push_back(std::move(held));
  }
  return split;
}

// One question: a table, and columns of it that are not used twice.
class Drawing {
 public:
  Drawing(Dice& dice, const Allowed& allowed)
      : dice_(dice), table_index_(dice.below(kTables.size())), left_(allowed[table_index_]) {}

  SqlPair draw() {
    // Kinds with a value are drawn more often: copying values is learned last.
    constexpr std::array<int, 14> kKinds = {0, 1, 2, 2, 2, 3, 3, 3, 4, 5, 5, 5, 6, 7};
    const std::string_view t = kTables[table_index_];
    switch (kKinds[dice_.below(kKinds.size())]) {
      case 0: {
        const std::string_view a = column();
        return {fmt::format("{} {} of {}", show(), a, t), fmt::format("select {} from {}", a, t)};
      }
      case 1: {
        const std::string_view a = column(), b = column();
        return {fmt::format("{} {} and {} of {}", show(), a, b, t),
                fmt::format("select {}, {} from {}", a, b, t)};
      }
      case 2: {
        const std::string_view a = column();
        const SqlPair c = condition();
        return {fmt::format("{} {} of {} with {}", show(), a, t, c.question),
                fmt::format("select {} from {} where {}", a, t, c.sql)};
      }
      case 3: {
        const SqlPair c = condition();
        return {fmt::format("{} {} with {}", dice_.of({"how many", "count"}), t, c.question),
                fmt::format("select count(*) from {} where {}", t, c.sql)};
      }
      case 4:
        return extreme(t);
      case 5:
        return first_ones(t);
      case 6: {
        const std::string_view a = column();
        const SqlPair c = condition(), d = condition();
        return {fmt::format("{} of {} with {} and {}", a, t, c.question, d.question),
                fmt::format("select {} from {} where {} and {}", a, t, c.sql, d.sql)};
      }
      default: {
        const SqlPair c = condition(), d = condition();
        return {fmt::format("count {} with {} and {}", t, c.question, d.question),
                fmt::format("select count(*) from {} where {} and {}", t, c.sql, d.sql)};
      }
    }
  }

 private:
  std::string_view show() { return dice_.of({"show", "list", "find"}); }
  std::string_view column() { return kColumns[dice_.take(left_)]; }

  std::string_view numeric_column() {
    std::vector<size_t> numeric;
    for (const size_t c : left_) {
      if (c < kNumNumeric) numeric.push_back(c);
    }
    return kColumns[dice_.take(numeric)];
  }

  // "age over 30" and "age > 30", or "town is rome" and "town = 'rome'".
  SqlPair condition() {
    const size_t c = dice_.take(left_);
    const std::string_view name = kColumns[c];
    if (c >= kNumNumeric) {
      const std::string_view value = dice_.of(kValues[c - kNumNumeric]);
      return {fmt::format("{} is {}", name, value), fmt::format("{} = '{}'", name, value)};
    }
    struct Relation {
      const char* sign;
      Words words;
    };
    const std::array<Relation, 3> relations = {
        {{">", {"over", "above"}}, {"<", {"under", "below"}}, {"=", {"is"}}}};
    const Relation& relation = relations[dice_.below(relations.size())];
    const size_t value = (1 + dice_.below(9)) * 10;
    return {fmt::format("{} {} {}", name, dice_.of(relation.words), value),
            fmt::format("{} {} {}", name, relation.sign, value)};
  }

  SqlPair extreme(std::string_view t) {
    struct Function {
      const char* name;
      Words words;
    };
    const std::array<Function, 3> functions = {
        {{"max", {"highest", "most"}}, {"min", {"lowest", "least"}}, {"avg", {"average", "mean"}}}};
    const Function& f = functions[dice_.below(functions.size())];
    const std::string_view a = numeric_column();
    return {fmt::format("{} {} of {}", dice_.of(f.words), a, t),
            fmt::format("select {}({}) from {}", f.name, a, t)};
  }

  SqlPair first_ones(std::string_view t) {
    const bool is_top = dice_.below(2) == 0;
    const std::string_view a = numeric_column();
    const size_t n = 2 + dice_.below(8);
    return {fmt::format("{} {} {} by {}", is_top ? "top" : "last", n, t, a),
            fmt::format("select * from {} order by {}{} limit {}", t, a, is_top ? " desc" : "", n)};
  }

  Dice& dice_;
  size_t table_index_;
  std::vector<size_t> left_;
};

SqlPair draw_short(Dice& dice, const Allowed& allowed) {
  while (true) {
    SqlPair pair = Drawing(dice, allowed).draw();
    const size_t bytes = pair.question.size() + 1 + pair.sql.size() + 1;
    if (bytes <= kSqlPairBytes) return pair;
  }
}

std::string as_json_lines(const std::vector<SqlPair>& pairs) {
  std::string text;
  for (const SqlPair& pair : pairs) {
    text += Json(Json::Object{{"question", pair.question}, {"sql", pair.sql}}).dump();
    text += '\n';
  }
  return text;
}

}  // namespace

SqlCorpus make_sql_corpus(uint64_t seed, int64_t num_train, int64_t num_test) {
  // The held-out pairs allow some ten thousand questions; half of them can surely be drawn.
  constexpr int64_t kMostTest = 5000;
  require(num_train >= 1 && num_test >= 0 && num_test <= kMostTest,
          "the corpus: wanted at least 1 training question and 0 to {} test questions, got {} and "
          "{}",
          kMostTest, num_train, num_test);
  Dice dice(seed);
  const Split split = split_columns(dice);
  SqlCorpus corpus;
  std::set<std::string> seen;
  for (int64_t i = 0; i < num_train; ++i) {
    corpus.train.push_back(draw_short(dice, split.train));
    seen.insert(corpus.train.back().question);
  }
  while (static_cast<int64_t>(corpus.test.size()) < num_test) {
    SqlPair pair = draw_short(dice, split.test);
    if (seen.insert(pair.question).second) corpus.test.push_back(std::move(pair));
  }
  return corpus;
}

namespace {

// A user's rows are not replaced; the same corpus may be written again.
void check_own(const std::filesystem::path& path, const std::string& text) {
  if (path_kind(path) == PathKind::kNothing || read_file(path) == text) return;
  throw UserError(fmt::format("{} already exists, with other rows", path.string()),
                  "give another folder, or move that file away");
}

}  // namespace

void write_sql_corpus(const std::string& folder, uint64_t seed, int64_t num_train,
                      int64_t num_test) {
  const SqlCorpus corpus = make_sql_corpus(seed, num_train, num_test);
  if (is_uri(folder)) {
    write_uri(folder + "/train.jsonl", as_json_lines(corpus.train));
    write_uri(folder + "/test.jsonl", as_json_lines(corpus.test));
    return;
  }
  std::error_code bad;
  std::filesystem::create_directories(folder, bad);
  if (bad) throw RunError(fmt::format("cannot create {}: {}", folder, bad.message()));
  const std::filesystem::path train = std::filesystem::path(folder) / "train.jsonl";
  const std::filesystem::path test = std::filesystem::path(folder) / "test.jsonl";
  const std::string train_text = as_json_lines(corpus.train),
                    test_text = as_json_lines(corpus.test);
  check_own(train, train_text);
  check_own(test, test_text);
  write_file_atomic(train, train_text);
  write_file_atomic(test, test_text);
}

}  // namespace weft

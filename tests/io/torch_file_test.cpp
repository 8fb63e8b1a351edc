// tests/io/torch_file_test.cpp: state dicts of torch.save: dtypes, views, shared storages, lies.
#include "io/torch_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

using testing::error_of;
using testing::floats;
using testing::TemporaryFolder;
using testing::TorchBytes;
using testing::ZipBytes;
using testing::pickled::call;
using testing::pickled::dict;
using testing::pickled::global;
using testing::pickled::list;
using testing::pickled::number;
using testing::pickled::ordered;
using testing::pickled::text;
using testing::pickled::tuple;
using testing::pickled::whole;

std::vector<float> values_of(const TorchArchive& archive, const TorchTensor& t) {
  std::vector<float> values(static_cast<size_t>(num_elements(t.shape)));
  archive.read(t, 0, num_elements(t.shape), values.data());
  return values;
}

TorchTensor only_tensor(const std::string& file) {
  const TorchArchive archive(file, "lie.pt");
  return archive.tensor(archive.root());
}
std::string torch_refusal(const std::string& file) {
  return error_of<UserError>([&] { only_tensor(file); });
}

TEST(TorchFile, NestedDictsAndEveryWrapper) {
  TorchBytes torch;
  const std::string a = torch.tensor(floats({1, 2, 3, 4, 5, 6}), {2, 3});
  const std::string b = torch.tensor(floats({7}), {});
  const std::string parameter = call("torch._utils", "_rebuild_parameter",
                                     tuple({b, "\x88", call("collections", "OrderedDict", ")")}));
  const std::string typed =
      call("torch._tensor", "_rebuild_from_type_v2",
           tuple({global("torch._utils", "_rebuild_tensor_v2"), global("torch", "Tensor"),
                  a.substr(a.find("\n(") + 1, a.size() - a.find("\n(") - 2), "}"}));
  const std::string file =
      torch.file(ordered(dict({{"a", a},
                               {"step", number(3)},
                               {"inner", dict({{"p", parameter}, {"list", list({b, "N"})}})},
                               {"typed", typed},
                               {"object", call("os", "system", tuple({text("x")}))}})));
  const TorchArchive archive(file, "nested");
  const auto tensors = named_tensors(archive, archive.root());
  std::vector<std::string> names;
  for (const auto& [name, t] : tensors) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "inner.list.0", "inner.p", "typed"}));
  EXPECT_EQ(tensors.at("a").shape, (Shape{2, 3}));
  EXPECT_EQ(values_of(archive, tensors.at("typed")), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(values_of(archive, tensors.at("inner.p")), (std::vector<float>{7}));
}

TEST(TorchFile, ViewsAreReadThroughTheirStrides) {
  TorchBytes torch;
  std::vector<float> base(24);
  for (size_t i = 0; i < 24; ++i) base[i] = static_cast<float>(i);
  torch.storages.push_back(floats(base));
  const std::string file =
      torch.file(dict({{"transposed", TorchBytes::view(0, 0, {6, 4}, {1, 6})},
                       {"every_second", TorchBytes::view(0, 6, {2, 3}, {6, 2})},
                       {"cube", TorchBytes::view(0, 1, {2, 3, 2}, {12, 2, 6})},
                       {"rows", TorchBytes::view(0, 6, {2, 6}, {6, 1})},
                       {"one_row", TorchBytes::view(0, 0, {1, 6}, {999, 1})},
                       {"empty", TorchBytes::view(0, 24, {0, 4}, {4, 1})}}));
  const TorchArchive archive(file, "views");
  const auto tensors = named_tensors(archive, archive.root());
  EXPECT_TRUE(tensors.at("rows").is_contiguous());
  EXPECT_TRUE(tensors.at("one_row").is_contiguous());
  EXPECT_FALSE(tensors.at("transposed").is_contiguous());
  for (const auto& [name, t] : tensors) {
    SCOPED_TRACE(name);
    std::vector<float> wanted;
    const std::string key = name;
    const int64_t offset = key == "every_second" || key == "rows" ? 6 : key == "cube" ? 1 : 0;
    for (int64_t i = 0; i < num_elements(t.shape); ++i) {
      int64_t rest = i, at = offset;
      for (size_t d = t.shape.size(); d-- > 0;) {
        at += rest % t.shape[d] * t.strides[d];
        rest /= t.shape[d];
      }
      wanted.push_back(static_cast<float>(at));
    }
    EXPECT_EQ(values_of(archive, t), wanted);
    for (int64_t begin = 0; begin <= num_elements(t.shape); ++begin) {  // every range
      for (int64_t end = begin; end <= num_elements(t.shape); ++end) {
        std::vector<float> part(static_cast<size_t>(end - begin));
        archive.read(t, begin, end, part.data());
        EXPECT_EQ(part, std::vector<float>(wanted.begin() + begin, wanted.begin() + end));
      }
    }
  }
}

TEST(TorchFile, AsAFileOfTensors) {
  TemporaryFolder folder;
  TorchBytes torch;
  const std::string w = torch.tensor(floats({1, 2, 3, 4, 5, 6}), {2, 3});
  const std::string half = torch.tensor("\x80\x3f", {1}, "BFloat16Storage");
  std::ofstream(folder / "a.bin") << torch.file(
      dict({{"w", w},
            {"t", TorchBytes::view(0, 0, {3, 2}, {1, 3})},
            {"h", half},
            {"complex", torch.tensor(std::string(8, '\0'), {1}, "ComplexFloatStorage")},
            {"expanded", TorchBytes::view(0, 0, {1000000, 6}, {0, 1})}}));
  const TorchFile file(folder / "a.bin");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.find("h")->dtype, Dtype::kBf16);
  const TensorInfo* t = file.find("t");
  const auto* values = reinterpret_cast<const float*>(file.data(*t));
  EXPECT_EQ(std::vector<float>(values, values + 6), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(file.data(*t), file.data(*t));  // copied once
  float part[2];
  file.read(*t, 1, 3, part);
  EXPECT_EQ(part[0], 4);
  EXPECT_EQ(part[1], 2);
  ASSERT_EQ(file.unread().size(), 2u);
  EXPECT_EQ(file.unread().at("complex"),
            "is of torch.ComplexFloatStorage, which weft does not have");
  EXPECT_NE(file.unread().at("expanded").find("repeats"), std::string::npos);
}

// Left out silently, an export would lack them.
TEST(TorchFile, TensorsOfOtherKindsAreNamedAsUnread) {
  TemporaryFolder folder;
  TorchBytes torch;
  const std::string dense = torch.tensor(floats({1, 2}), {2});
  const std::string sparse =
      call("torch._utils", "_rebuild_sparse_tensor", tuple({number(0), tuple({dense, dense})}));
  const std::string parameter = call("torch._utils", "_rebuild_parameter", tuple({sparse, "\x88"}));
  const std::string typed = call("torch._tensor", "_rebuild_from_type_v2",
                                 tuple({global("torch._utils", "_rebuild_nested_tensor"),
                                        global("torch", "Tensor"), tuple({dense}), "}"}));
  std::ofstream(folder / "a.bin") << torch.file(
      dict({{"a", dense},
            {"s", sparse},
            {"p", list({parameter})},
            {"typed", typed},
            {"size", call("torch", "Size", tuple({tuple({number(2)})}))},
            {"device", call("torch", "device", tuple({text("cpu")}))},
            {"dtype", global("torch", "float32")},
            {"object", call("os", "system", tuple({text("x")}))}}));
  const TorchFile file(folder / "a.bin");
  ASSERT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  const std::string reason = "is made by torch._utils._rebuild_sparse_tensor, which is not read";
  EXPECT_EQ(file.unread(),
            (std::map<std::string, std::string>{
                {"s", reason},
                {"p.0", reason},
                {"typed", "is made by torch._utils._rebuild_nested_tensor, which is not read"}}));
}

// The values of one dict, named over and over: `levels` dicts, each of which holds the one below
// `width` times under keys of `key_bytes`.
std::string shared_dicts(const std::string& inner, int levels, int width, size_t key_bytes) {
  std::string bytes = inner + "q" + '\0';
  for (int i = 0; i < levels; ++i) {
    bytes = "}(" + text("0" + std::string(key_bytes, 'k')) + bytes;
    for (int k = 1; k < width; ++k)
      bytes += text(std::to_string(k) + std::string(key_bytes, 'k')) + "h" + static_cast<char>(i);
    bytes += std::string("uq") + static_cast<char>(i + 1);
  }
  return bytes;
}

TEST(TorchFile, SharedDictsAreNotUnfoldedWithoutEnd) {
  TorchBytes torch;
  const std::string tensor = torch.tensor(floats({1}), {1});
  const auto names = [&](const std::string& value) {
    const std::string file = torch.file(value);
    const TorchArchive archive(file, "shared.pt");
    return named_tensors(archive, archive.root()).size();
  };
  EXPECT_EQ(names(shared_dicts(tensor, 5, 8, 0)), 32768u);
  const auto refused = [&](const std::string& value) {
    return error_of<UserError>([&] { names(value); });
  };
  EXPECT_NE(refused(shared_dicts(tensor, 7, 8, 0)).find("more than 1048576 tensors"),
            std::string::npos);
  EXPECT_NE(refused(shared_dicts(tensor, 2, 100, 60000)).find("names have more than"),
            std::string::npos);
  // Names are built only for what may hold a tensor.
  EXPECT_EQ(names(shared_dicts("N", 2, 100, 60000)), 0u);
}

TEST(TorchFile, DimensionsAreBounded) {
  TorchBytes torch;
  torch.storages.push_back(floats({1}));
  const auto with = [&](size_t dims) {
    const std::vector<int64_t> ones(dims, 1);
    return torch.file(TorchBytes::view(0, 0, ones, ones));
  };
  EXPECT_EQ(only_tensor(with(64)).shape.size(), 64u);
  EXPECT_NE(torch_refusal(with(65)).find("65 dimensions"), std::string::npos);
}

TEST(TorchFile, AViewMustBeWithinItsStorage) {
  TorchBytes torch;
  torch.storages.push_back(floats({1, 2, 3, 4}));
  const auto view = [&](int64_t offset, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& strides) {
    return torch.file(TorchBytes::view(0, offset, shape, strides));
  };
  EXPECT_EQ(only_tensor(view(0, {2, 2}, {2, 1})).shape, (Shape{2, 2}));
  EXPECT_NE(torch_refusal(view(1, {2, 2}, {2, 1})).find("ends at element 5 of a storage of 4"),
            std::string::npos);
  EXPECT_NE(torch_refusal(view(0, {2, 2}, {3, 1})).find("ends at element 5"), std::string::npos);
  EXPECT_NE(torch_refusal(view(-1, {2}, {1})).find("no size"), std::string::npos);
  EXPECT_NE(torch_refusal(view(0, {2}, {-1})).find("negative"), std::string::npos);
  EXPECT_NE(torch_refusal(view(0, {2, 2}, {1})).find("1 strides"), std::string::npos);
  const int64_t many = 0x7fffffff;
  EXPECT_NE(torch_refusal(view(0, {many, many, many}, {0, 0, 0})).find("no size"),
            std::string::npos);
  EXPECT_NE(only_tensor(view(0, {many}, {0})).fault, "");  // a bomb of four bytes
  EXPECT_NE(torch_refusal(torch.file(TorchBytes::view(3, 0, {1}, {1}))).find("no storage \"3\""),
            std::string::npos);
  EXPECT_NE(torch_refusal(torch.file("N")).find("wanted a tensor"), std::string::npos);
}

TEST(TorchFile, OtherFilesAreNamed) {
  TorchBytes torch;
  const auto as_archive = [](const std::string& file) {
    return error_of<UserError>([&] { TorchArchive(file, "lie.pt"); });
  };
  using namespace std::string_literals;
  EXPECT_NE(as_archive("\x80\x02\x8a\x0al\xfc\x9c"s).find("older format"), std::string::npos);
  EXPECT_NE(as_archive(std::string(257, 'x') + "ustar" + std::string(99, 'x')).find("older format"),
            std::string::npos);
  EXPECT_NE(as_archive("version https://git-lfs").find("not a zip archive"), std::string::npos);
  EXPECT_NE(as_archive(ZipBytes().add("a/b", "c").bytes()).find("no data.pkl"), std::string::npos);
  EXPECT_NE(as_archive(ZipBytes().add("a/data.pkl", whole("N")).add("a/constants.pkl", "").bytes())
                .find("TorchScript"),
            std::string::npos);
  EXPECT_NE(as_archive(ZipBytes().add("a/data.pkl", whole("N")).add("a/byteorder", "big").bytes())
                .find("big-endian"),
            std::string::npos);
  EXPECT_NE(
      as_archive(ZipBytes().add("a/data.pkl", whole("N")).add("b/data.pkl", whole("N")).bytes())
          .find("two pickles"),
      std::string::npos);
}

TEST(TorchFile, FlippedBitsNeverReadOutside) {
  TorchBytes torch;
  const std::string good = torch.file(dict({{"w", torch.tensor(floats({1, 2, 3, 4}), {2, 2})},
                                            {"v", TorchBytes::view(0, 0, {2, 2}, {1, 2})}}));
  int read = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      try {
        const TorchArchive archive(bad, "flip");
        for (const auto& [name, t] : named_tensors(archive, archive.root())) {
          if (!t.fault.empty() || num_elements(t.shape) > 1000) continue;
          std::vector<std::byte> out(static_cast<size_t>(num_elements(t.shape) * 8));
          archive.read(t, 0, num_elements(t.shape), out.data());
          ++read;
        }
      } catch (const UserError&) {
      }
    }
  }
  EXPECT_GT(read, 1000);
}

}  // namespace
}  // namespace weft

// tests/io/torch_writer_test.cpp: what the writers of torch's files write, the strict readers read.
#include "io/torch_writer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "io/dcp_metadata.h"
#include "io/torch_file.h"
#include "io/zip_file.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TemporaryFolder;
using Kind = Pickle::Kind;

TEST(PickleWriter, EveryValueIsReadBack) {
  PickleWriter out;
  out.list([&] {
    out.none();
    out.boolean(true);
    for (const int64_t n : {int64_t{-1}, int64_t{1} << 31, INT64_MIN, INT64_MAX}) out.integer(n);
    out.real(0.1);
    out.text("näme");
    out.dict([&] {
      out.text("k");
      out.numbers({3, 4});
    });
    out.size({5});
    out.object("module", "Class", [&] { out.integer(7); });
    out.persistent([&] { out.text("storage"); });
  });
  const std::string bytes = out.finish();
  const Pickle pickle(bytes, "written");
  const PickleValue v = pickle.root();
  ASSERT_EQ(v.size(), 12u);
  EXPECT_TRUE(v[0].is_null());
  EXPECT_EQ(v[1].kind(), Kind::kBool);
  EXPECT_EQ(v[2].as_int(), -1);
  EXPECT_EQ(v[3].as_int(), int64_t{1} << 31);
  EXPECT_EQ(v[4].as_int(), INT64_MIN);
  EXPECT_EQ(v[5].as_int(), INT64_MAX);
  EXPECT_EQ(v[6].kind(), Kind::kFloat);
  EXPECT_EQ(v[7].as_string(), "näme");
  EXPECT_EQ(shape_of(v[8].at("k")), (Shape{3, 4}));
  EXPECT_EQ(shape_of(v[9]), (Shape{5}));
  EXPECT_TRUE(v[10].is_object("module.Class"));
  EXPECT_EQ(v[10].state()->as_int(), 7);
  EXPECT_EQ(v[11].arguments()[0].as_string(), "storage");
  EXPECT_NE(bytes.find("\x3f\xb9\x99\x99\x99\x99\x99\x9a"), std::string::npos);  // 0.1, big-endian
}

class TorchWriting : public ::testing::Test {
 protected:
  // A dict of three tensors, one of them empty, in pieces that end inside of tensors.
  uint64_t write(const std::string& name, size_t before = 0) {
    std::iota(values_.begin(), values_.end(), 0.5f);
    PickleWriter pickle;
    pickle.dict([&] {
      pickle.text("a");
      pickle_tensor(pickle, 0, Dtype::kF32, {2, 3});
      pickle.text("none");
      pickle_tensor(pickle, 1, Dtype::kI64, {0, 3});
      pickle.text("b");
      pickle_tensor(pickle, 2, Dtype::kF32, {4});
    });
    FileWriter out(folder_ / name, FileWriter::Mode::kTruncate);
    out.write(std::string(before, 'x'));
    TorchWriter torch(&out, pickle.finish(), {24, 0, 16});
    torch.write(values_.data(), 28);
    torch.write(values_.data() + 7, 12);
    return torch.finish();
  }
  TemporaryFolder folder_;
  std::vector<float> values_ = std::vector<float>(10);
};

TEST_F(TorchWriting, TheReaderFindsEveryTensor) {
  write("a.pt");
  EXPECT_TRUE(is_torch_file(folder_ / "a.pt"));
  const TorchFile file(folder_ / "a.pt");
  ASSERT_EQ(file.tensors().size(), 3u);
  std::vector<float> a(6), b(4);
  file.read(*file.find("a"), 0, 6, a.data());
  file.read(*file.find("b"), 0, 4, b.data());
  EXPECT_EQ(a, std::vector<float>(values_.begin(), values_.begin() + 6));
  EXPECT_EQ(b, std::vector<float>(values_.begin() + 6, values_.end()));
  EXPECT_EQ(file.find("none")->shape, (Shape{0, 3}));
  EXPECT_EQ(file.find("none")->dtype, Dtype::kI64);
}

TEST_F(TorchWriting, MembersAreAlignedFromTheArchivesStart) {
  const uint64_t bytes = write("b.pt", 128);
  const std::string file = read_file(folder_ / "b.pt");
  ASSERT_EQ(file.size(), 128 + bytes);
  const auto members = parse_zip(std::string_view(file).substr(128), "b.pt");
  ASSERT_EQ(members.size(), 6u);
  EXPECT_EQ(members[2].name, "archive/data/0");
  for (const ZipMember& m : members) EXPECT_EQ(m.begin % 64, 0u) << m.name;
}

// The name of a tensor would be another one, without a fault in the pickle.
TEST_F(TorchWriting, APickleWithAFlippedBitIsRefused) {
  write("a.pt");
  std::string file = read_file(folder_ / "a.pt");
  const size_t name = file.find("none");
  ASSERT_NE(name, std::string::npos);
  EXPECT_EQ(TorchArchive(file, "a.pt").root().num_entries(), 3u);
  file[name] ^= 1;
  const std::string refusal = error_of<UserError>([&] { TorchArchive(file, "a.pt"); });
  EXPECT_NE(refusal.find("a.pt: member \"archive/data.pkl\" has the checksum"), std::string::npos)
      << refusal;
}

TEST_F(TorchWriting, TheChecksumOfEveryMemberIsThere) {
  write("c.pt");
  const std::string file = read_file(folder_ / "c.pt");
  const ZipMember version = parse_zip(file, "c.pt").back();
  ASSERT_EQ(version.name, "archive/version");
  const std::string checksum = "\xd1\x9e\x67\x55";  // CRC-32 of "3\n"
  EXPECT_EQ(file.substr(version.end, 4), std::string("PK\x07\x08"));
  EXPECT_EQ(file.substr(version.end + 4, 4), checksum);
  EXPECT_NE(file.find(checksum, version.end + 8), std::string::npos) << "in the directory too";
}

TEST_F(TorchWriting, MissingBytesAreABug) {
  FileWriter out(folder_ / "d.pt", FileWriter::Mode::kTruncate);
  TorchWriter torch(&out, "", {8});
  torch.write(values_.data(), 4);
  EXPECT_NE(error_of<BugError>([&] { torch.finish(); }).find("missing"), std::string::npos);
  EXPECT_NE(error_of<BugError>([&] { torch.write(values_.data(), 8); }).find("more bytes"),
            std::string::npos);
}

TEST(DcpMetadata, TensorsAndValuesAreReadBack) {
  DcpTensor w{{"model", "w"}, {3, 2}, Dtype::kBf16, "", {}};
  w.chunks = {{{0, 0}, {2, 2}, "__0_0.distcp", 64, 200}, {{2, 0}, {1, 2}, "__0_1.distcp", 0, 150}};
  DcpTensor step{{"optim", "state", "w", "step"}, {}, Dtype::kF32, "", {}};
  step.chunks = {{{}, {}, "__0_1.distcp", 192, size_t{5} << 32}};
  const std::string bytes = pickle_dcp_metadata(
      {{"model.w", w}, {"optim.state.w.step", step}},
      {{"optim.param_groups.0.lr", {{"optim", "param_groups", "0", "lr"}, "__0_1.distcp", 1, 2}}});
  const auto read = parse_dcp_metadata(bytes, "written");
  ASSERT_EQ(read.size(), 2u);
  const DcpTensor& got = read.at("model.w");
  EXPECT_EQ(got.path, w.path);
  EXPECT_EQ(got.shape, w.shape);
  EXPECT_EQ(got.dtype, Dtype::kBf16);
  ASSERT_EQ(got.chunks.size(), 2u);
  EXPECT_EQ(got.chunks[1].offset, (Shape{2, 0}));
  EXPECT_EQ(got.chunks[1].extent, (Shape{1, 2}));
  EXPECT_EQ(got.chunks[1].file, "__0_1.distcp");
  EXPECT_EQ(got.chunks[0].begin, 64u);
  EXPECT_EQ(got.chunks[0].end, 200u);
  EXPECT_EQ(read.at("optim.state.w.step").chunks[0].end, size_t{5} << 32);
  const Pickle pickle(bytes, "written");
  const PickleValue paths = pickle.root().state()->at("planner_data");
  EXPECT_EQ(paths.at("optim.param_groups.0.lr")[2].as_int(), 0);
}

}  // namespace
}  // namespace weft

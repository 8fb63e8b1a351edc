#!/usr/bin/env python3
"""tests/tools/weft_ray_libraries_test.py: where python/weft_ray looks for CUDA's libraries."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from weft_ray.libraries import with_cuda  # noqa: E402


class Libraries(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = Path(place.name)

    def add(self, name):
        path = self.folder / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        return str(path.parent)

    def folders(self, environment, places):
        with mock.patch.object(sys, "path", places):
            return with_cuda(environment).get("LD_LIBRARY_PATH")

    def test_folders_of_packages_come_after_the_users(self):
        found = [self.add("cu13/lib/libcublasLt.so.13"), self.add("cudnn/lib/libcudnn.so.9"), self.add("nccl/lib/libnccl.so.2")]
        self.add("cusparse/lib/libcusparse.so.12")  # weft does not load it
        self.assertEqual(self.folders({}, [str(self.folder)] * 2), ":".join(found))
        self.assertEqual(self.folders({"LD_LIBRARY_PATH": "/mine"}, [str(self.folder)]), ":".join(["/mine", *found]))

    def test_nothing_where_there_is_none(self):
        self.assertIsNone(self.folders({"HOME": "/"}, [str(self.folder)]))
        self.assertEqual(self.folders({"LD_LIBRARY_PATH": "/mine"}, [str(self.folder)]), "/mine")

    def test_relative_places_are_left_out(self):
        self.add("cu13/lib/libcublasLt.so.13")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.assertIsNone(self.folders({}, ["", "."]))


if __name__ == "__main__":
    unittest.main()

# Makefile: the project's commands. Each first installs what is missing (tools/setup.sh).
JOBS ?= $(shell nproc)

.PHONY: build test test-gpu bench-gpu survive-gpu gpu-bundle tests quickstart wheel interop sanitize mutate bench lint format setup clean

build: setup                   ## the program: build/weft
	@mkdir -p build && cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	@cmake --build build -j $(JOBS) --target weft

setup:
	@tools/setup.sh build

tests: build
	@cmake --build build -j $(JOBS)

test: tests                    ## this commit's share of the tests without a GPU or outside programs; FULL=1: all
	@tools/run_tests.py build -j $(JOBS)

quickstart: build              ## a small model, trained here, answers in SQL
	@examples/quickstart/run.sh

ifeq ($(CUDA),1)
wheel:                         ## the same with CUDA: build-cuda/wheel/weft_ray-*+cuda*.whl
	@tools/setup.sh cuda >/dev/null
	@mkdir -p build-cuda && cmake --preset cuda $(WEFT_CMAKE_ARGS) >build-cuda/configure.log 2>&1 || { cat build-cuda/configure.log; exit 1; }
	@cmake --build build-cuda -j $(JOBS) --target weft_wheel
	@PYTHON=$$(tools/setup.sh wheel) && "$$PYTHON" tools/make_wheel.py build-cuda/wheel/program/weft build-cuda/wheel
else
wheel: build                   ## build/wheel/weft_ray-*.whl: the program, its libraries, the trainer for Ray; CUDA=1
	@cmake --build build -j $(JOBS) --target weft_wheel
	@PYTHON=$$(tools/setup.sh wheel) && "$$PYTHON" tools/make_wheel.py build/wheel/program/weft build/wheel
endif

# Long matrices run in slots; FULL=1 runs all (tests/interop/sampling.py).
interop: tests wheel               ## the real outside programs read what weft writes, and the reverse; FULL=1
	@PYTHON=$$(tools/setup.sh interop) && tools/run_interop.py "$$PYTHON"

sanitize:                      ## fuzzers and tests under ASan, UBSan and TSan
	@tools/setup.sh sanitize
	@tools/sanitize.py -j $(JOBS)

mutate: setup                  ## one-line bugs in src/ROOM that its tests find; ROOM=data N=20 SEED=1, not in CI
	@tools/mutate.py $(ROOM) $(or $(N),20) --seed $(or $(SEED),1) --jobs $(JOBS)

bench: build                   ## weft against PyTorch: benchmarks/results/
	@PYTHON=$$(tools/setup.sh interop) && mkdir -p benchmarks/results && \
	  "$$PYTHON" benchmarks/bench.py --weft build/weft --out benchmarks/results/bench-$$(date +%F).md && \
	  "$$PYTHON" benchmarks/mesh_bench.py --weft build/weft --out benchmarks/results/mesh-$$(date +%F).md && \
	  "$$PYTHON" benchmarks/checkpoint_bench.py --weft build/weft --out benchmarks/results/checkpoint-$$(date +%F).md --folder build
	@cmake --build build --target tokenizer_bench gemm_bench comm_bench rendezvous_bench && build/benchmarks/gemm_bench && build/benchmarks/rendezvous_bench
	@benchmarks/comm_table.py build/benchmarks/comm_bench benchmarks/results/comm-$$(date +%F).md
	@if [ -d ../shared/data ]; then "$$(tools/setup.sh interop)" benchmarks/tokenizer_table.py build/benchmarks/tokenizer_bench benchmarks/results/tokenizer-$$(date +%F).md; fi

test-gpu:                      ## what needs a GPU: kernels, golden runs, ranks on one GPU
	@tools/gpu.sh test

bench-gpu:                     ## weft against torch.compile on a GPU; MODEL=qwen2.5-0.5b|qwen2-7b|bloomz-1b1|t5-3b|...
	@tools/gpu.sh bench $(MODEL)

survive-gpu:                   ## killed ranks that share a GPU, and what snapshots of MODEL cost
	@tools/gpu.sh survive $(MODEL)

gpu-bundle:                    ## gpu-bundle/: what these need on a machine with only CUDA and PyTorch; ARCH=amd64|arm64
	@tools/gpu.sh bundle $(ARCH)

lint:                          ## format, rooms, clang-tidy on changed files
	@tools/setup.sh lint
	@tools/lint.sh $(JOBS)

format:                        ## rewrites what clang-format would complain about
	@tools/setup.sh lint
	@git ls-files -co --exclude-standard -- "*.h" "*.cpp" "*.cu" | grep -v ^src/text/unicode_tables | xargs clang-format-14 -i

clean:
	rm -rf build build-*
